"""The ROCm backend under its historical path, `pyflame.backend.rocm`, and names."""

from __future__ import annotations

from pyflame.backend.rocm import memory
from pyflame.backend.rocm.devices import (
    rocm_device_count,
    rocm_get_device,
    rocm_get_device_info,
    rocm_is_available,
    rocm_set_device,
    rocm_synchronize,
)
from pyflame.backend.rocm.executor import DeviceInfo, ExecutionResult, ROCmExecutor
from pyflame.backend.rocm.launchers import (
    launch_bce_loss,
    launch_clamp,
    launch_comparison,
    launch_cross_entropy_loss,
    launch_elementwise_binary,
    launch_elementwise_unary,
    launch_gelu_forward,
    launch_mse_loss,
    launch_silu_forward,
    launch_where,
)
from pyflame.backend.rocm.memory import MemoryStats, PinnedMemoryPool, ROCmMemoryManager
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
from pyflame.engine.libraries.rocm import (
    BatchNormParams,
    ConvParams,
    MIOpenTuningCache,
    PoolParams,
    ROCmBLAS,
    ROCmDNN,
    get_blas,
    get_dnn,
    get_tuning_cache,
)
from pyflame.schedule.patterns import FusedOpType, can_fuse
from pyflame.tensor.kernels import ROCmCompiler, compile_kernel
from pyflame.tensor.torch_cuda import rocm

__all__ = [
    "AMDBackendError",
    "AMDConfigurationError",
    "AMDDeviceError",
    "AMDDeviceFaultError",
    "AMDOptimizationError",
    "BatchNormParams",
    "ConvParams",
    "DeviceInfo",
    "ExecutionResult",
    "FusedOpType",
    "HIPCompilationError",
    "MIOpenTuningCache",
    "MatrixCoreError",
    "MemoryStats",
    "PinnedMemoryPool",
    "PoolParams",
    "ROCmBLAS",
    "ROCmCompiler",
    "ROCmDNN",
    "ROCmExecutor",
    "ROCmMemoryError",
    "ROCmMemoryManager",
    "ROCmNotAvailableError",
    "can_fuse",
    "compile_kernel",
    "get_blas",
    "get_current_device",
    "get_device_count",
    "get_device_info",
    "get_dnn",
    "get_memory_manager",
    "get_pinned_pool",
    "get_tuning_cache",
    "is_available",
    "launch_bce_loss",
    "launch_clamp",
    "launch_comparison",
    "launch_cross_entropy_loss",
    "launch_elementwise_binary",
    "launch_elementwise_unary",
    "launch_gelu_forward",
    "launch_mse_loss",
    "launch_silu_forward",
    "launch_where",
    "rocm_device_count",
    "rocm_get_device",
    "rocm_get_device_info",
    "rocm_is_available",
    "rocm_set_device",
    "rocm_synchronize",
    "set_device",
    "synchronize",
    "warmup_memory_pool",
]

get_current_device = rocm_get_device
get_device_count = rocm_device_count
is_available = rocm_is_available
set_device = rocm_set_device
synchronize = rocm_synchronize


def get_device_info(device_id: int = 0) -> DeviceInfo:
    """An AMD GPU, by number. `pf.rocm_get_device_info` gives the same and more as a dict."""
    return DeviceInfo.of(rocm_get_device_info(device_id))


def get_memory_manager(device_id: int | None = None) -> ROCmMemoryManager:
    """The memory manager of an AMD GPU: of the current one, else of the first. One each."""
    return memory.manager_of(rocm.id_of("get_memory_manager", device_id))


def get_pinned_pool(device_id: int | None = None) -> PinnedMemoryPool:
    """The pool of page-locked host memory of an AMD GPU: acquire, release, warmup, clear."""
    return rocm.pinned_pool(rocm.id_of("get_pinned_pool", device_id))


def warmup_memory_pool(batch_size: int, model_size: str = "medium") -> int:
    """Have the pool of an AMD GPU hold what training a 'small', 'medium' or 'large' model will ask for (an estimate),
    within half of what is free. Gives the bytes that it holds."""
    return memory.warmup(rocm.id_of("warmup_memory_pool"), batch_size, model_size)
