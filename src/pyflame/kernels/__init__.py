"""Hand-written kernels: <op>.c and <op>.hip with <op>.py, which says what they take and how to launch them."""

from pyflame.kernels import (
    attention,
    attention_gpu,
    contraction,
    conv_gpu,
    cumulative,
    cumulative_gpu,
    matmul_gpu,
    pool,
    pool_gpu,
    scatter,
    scatter_gpu,
    sort,
    sort_gpu,
)
from pyflame.kernels.spec import SPECS, Epilogue, KernelSpec

__all__ = [
    "SPECS",
    "Epilogue",
    "KernelSpec",
    "attention",
    "attention_gpu",
    "contraction",
    "conv_gpu",
    "cumulative",
    "cumulative_gpu",
    "matmul_gpu",
    "pool",
    "pool_gpu",
    "scatter",
    "scatter_gpu",
    "sort",
    "sort_gpu",
]
