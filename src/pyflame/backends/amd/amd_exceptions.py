"""The errors of AMD GPUs under the path of the seeds. They are those of core/errors.py, which the driver raises too."""

from pyflame.core.errors import (
    AMDBackendError,
    AMDConfigurationError,
    AMDDeviceError,
    AMDDeviceFaultError,
    AMDOptimizationError,
    HIPCompilationError,
    MatrixCoreError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)

__all__ = [
    "AMDBackendError",
    "AMDConfigurationError",
    "AMDDeviceError",
    "AMDDeviceFaultError",
    "AMDOptimizationError",
    "HIPCompilationError",
    "MatrixCoreError",
    "ROCmMemoryError",
    "ROCmNotAvailableError",
]
