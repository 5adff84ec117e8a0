"""NVIDIA GPUs as devices: `CUDA.open(0)`."""

from __future__ import annotations

from pyflame.core.device import Target
from pyflame.core.errors import OutOfMemoryError
from pyflame.runtime.cuda.compiler import Nvrtc
from pyflame.runtime.cuda.driver import CudaDriver, no_device
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.vendor import Vendor


def find_compiler(target: Target) -> KernelCompiler:
    """NVRTC, for any target."""
    return Nvrtc()


CUDA = Vendor(CudaDriver, find_compiler, OutOfMemoryError, no_device, "/dev/nvidiactl")
