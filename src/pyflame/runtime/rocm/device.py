"""AMD GPUs as devices: `ROCM.open(0)`."""

from __future__ import annotations

from pyflame.core.errors import AMDDeviceError, ROCmMemoryError
from pyflame.runtime.gpu.vendor import Vendor
from pyflame.runtime.rocm.compiler import find_compiler
from pyflame.runtime.rocm.driver import HipDriver, no_device

ROCM = Vendor(HipDriver, find_compiler, ROCmMemoryError, no_device, "/dev/kfd", AMDDeviceError)
