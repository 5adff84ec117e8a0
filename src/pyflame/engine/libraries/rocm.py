"""AMD's libraries for what stands above the engine: `pyflame.backend.rocm` gives these names to users."""

from __future__ import annotations

from pyflame.core.device import DeviceId, parse_device
from pyflame.engine.devices import current_of
from pyflame.engine.memory import gpu_of
from pyflame.libs.rocm import miopen, rocblas
from pyflame.libs.rocm.miopen import BatchNormParams, ConvParams, PoolParams
from pyflame.libs.rocm.tuning import MIOpenTuningCache, get_tuning_cache
from pyflame.runtime.base import GpuDevice


def _opened(device: object) -> GpuDevice:
    """A GPU, made current for a library that opens on whichever is: a number, a name, or None for the current one."""
    if device is None:
        wanted = current_of("rocm")
    else:
        wanted = DeviceId("rocm", device) if isinstance(device, int) else parse_device(device)
    found = gpu_of("rocm", wanted)
    found.use()
    return found


class ROCmBLAS(rocblas.ROCmBLAS):
    """rocBLAS on an AMD GPU, by number or name; without one, on the current GPU. Matrices lie by columns.

    Until `set_stream` its work is in order with that of tensors.

    >>> blas = ROCmBLAS()                                                              # doctest: +SKIP
    >>> blas.gemm("N", "N", M, N, K, 1.0, A, M, B, K, 0.0, C, M)                       # doctest: +SKIP
    """

    def __init__(self, path: str | None = None, device: object = None) -> None:
        gpu = _opened(device)
        super().__init__(path)
        self._library.prepare = gpu.use
        self.set_stream(gpu.stream)


class ROCmDNN(miopen.ROCmDNN):
    """MIOpen on an AMD GPU, by number or name; without one, on the current GPU. Data are addresses of packed tensors.

    Until `set_stream` its work is in order with that of tensors.

    >>> dnn = ROCmDNN()                                                                   # doctest: +SKIP
    >>> dnn.softmax_forward("float32", (8, 1000), x, y)                                   # doctest: +SKIP
    """

    def __init__(self, path: str | None = None, device: object = None, cache: MIOpenTuningCache | None = None) -> None:
        gpu = _opened(device)
        super().__init__(path, gpu.properties.arch_full, cache)
        self._library.prepare = gpu.use
        self.set_stream(gpu.stream)


_blas: dict[GpuDevice, ROCmBLAS] = {}  # by opened GPU
_dnn: dict[GpuDevice, ROCmDNN] = {}


def get_blas(device: object = None) -> ROCmBLAS:
    """rocBLAS of an AMD GPU: of the current one, else of the first. One each."""
    gpu = _opened(device)
    return _blas.get(gpu) or _blas.setdefault(gpu, ROCmBLAS(device=gpu))


def get_dnn(device: object = None) -> ROCmDNN:
    """MIOpen of an AMD GPU: of the current one, else of the first. One each."""
    gpu = _opened(device)
    return _dnn.get(gpu) or _dnn.setdefault(gpu, ROCmDNN(device=gpu))


__all__ = [
    "BatchNormParams",
    "ConvParams",
    "MIOpenTuningCache",
    "PoolParams",
    "ROCmBLAS",
    "ROCmDNN",
    "get_blas",
    "get_dnn",
    "get_tuning_cache",
]
