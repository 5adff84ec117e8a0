"""AMD's libraries for what stands above the engine: `pyflame.backend.rocm` gives these names to users."""

from __future__ import annotations

from pyflame.libs.rocm.miopen import BatchNormParams, ConvParams, PoolParams, ROCmDNN, get_dnn
from pyflame.libs.rocm.rocblas import ROCmBLAS, get_blas
from pyflame.libs.rocm.tuning import MIOpenTuningCache, get_tuning_cache

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
