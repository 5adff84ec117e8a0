"""Arrays on an NVIDIA GPU through NVIDIA's own bindings: a test's means, not a runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.gpu.nvidia import done, driver


class OnGpu:
    """A copy of an array in the GPU's memory, `before` bytes behind an address that the driver aligned."""

    def __init__(self, array: np.ndarray[Any, Any], before: int = 0) -> None:
        self.like = np.ascontiguousarray(array)
        self.memory = done(driver.cuMemAlloc(max(self.like.nbytes, 1) + before))
        self.address = int(self.memory) + before
        done(driver.cuMemcpyHtoD(self.address, self.like.ctypes.data, self.like.nbytes))

    def numpy(self) -> np.ndarray[Any, Any]:
        """What is there now. Waits for the GPU."""
        done(driver.cuCtxSynchronize())
        out = np.empty_like(self.like)
        done(driver.cuMemcpyDtoH(out.ctypes.data, self.address, out.nbytes))
        return out

    def close(self) -> None:
        done(driver.cuMemFree(self.memory))

    def __enter__(self) -> OnGpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Area:
    """Memory of a size, with nothing in it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = done(driver.cuMemAlloc(nbytes))
        self.address = int(self.memory)

    def close(self) -> None:
        done(driver.cuMemFree(self.memory))
