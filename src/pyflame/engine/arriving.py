"""Values on their way to the host: read behind what a GPU was given so far, while it goes on with what comes next."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import DType
from pyflame.core.shape import Shape
from pyflame.engine.value import Value
from pyflame.runtime.gpu.device import GpuDevice


class Arriving:
    """A dense value that is copied to pinned memory when the stream gets there. `array` waits for that copy alone."""

    def __init__(self, device: GpuDevice, value: Value, shape: Shape, dtype: DType) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.block = device.pinned.acquire(self.nbytes)
        device.fetch(self.block.address, value.address, self.nbytes)
        self.event = device.event().record()

    def array(self) -> np.ndarray[Any, Any]:
        """The values, once they are there. What is watched is not looked at: that would wait for the rest as well."""
        self.device.guarded(self.event.synchronize)
        self.block.idle()
        return self.block.array()[: self.nbytes].copy().view(self.dtype.numpy).reshape(self.shape)
