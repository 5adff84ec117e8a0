"""The ROCm backend under its historical path, `pyflame.backend.rocm`, and names."""

from __future__ import annotations

from typing import NoReturn

from pyflame.engine.executor import ExecutionResult, ROCmExecutor
from pyflame.engine.rocm_libs import (
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
from pyflame.tensor.devices import (
    rocm_device_count,
    rocm_get_device,
    rocm_get_device_info,
    rocm_is_available,
    rocm_missing,
    rocm_set_device,
    rocm_synchronize,
)

__all__ = [
    "BatchNormParams",
    "ConvParams",
    "ExecutionResult",
    "FusedOpType",
    "MIOpenTuningCache",
    "PoolParams",
    "ROCmBLAS",
    "ROCmDNN",
    "ROCmExecutor",
    "can_fuse",
    "get_blas",
    "get_current_device",
    "get_device_count",
    "get_device_info",
    "get_dnn",
    "get_memory_manager",
    "get_pinned_pool",
    "get_tuning_cache",
    "is_available",
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
get_device_info = rocm_get_device_info
is_available = rocm_is_available
set_device = rocm_set_device
synchronize = rocm_synchronize


def get_memory_manager() -> NoReturn:
    """The memory pool of an AMD GPU. There is no ROCm runtime yet, so this raises and says so."""
    rocm_missing("get_memory_manager")


def get_pinned_pool() -> NoReturn:
    """The pool of page-locked host memory. There is no ROCm runtime yet, so this raises and says so."""
    rocm_missing("get_pinned_pool")


def warmup_memory_pool(batch_size: int, model_size: str = "medium") -> NoReturn:
    """Allocate buffers of common sizes in advance. There is no ROCm runtime yet, so this raises and says so."""
    rocm_missing("warmup_memory_pool")
