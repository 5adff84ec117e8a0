"""Hand-written kernels: <op>.c and <op>.hip with <op>.py, which says what they take and how to launch them."""

from functools import cache
from importlib import import_module

from pyflame.kernels.spec import SPECS, Epilogue, KernelSpec

__all__ = ["Epilogue", "KernelSpec", "specs"]

_FILES = (
    "attention", "attention_async_gpu", "attention_decode_gpu", "attention_gpu", "attention_mma_gpu",
    "attention_paged", "contraction", "conv_gpu", "cumulative", "cumulative_gpu", "dequantize", "dequantize_gpu",
    "encoded", "encoded_gemm_gpu", "encoded_gpu", "experts_gpu", "matmul_gpu", "pool", "pool_gpu", "scatter",
    "scatter_gpu", "sort", "sort_gpu",
)  # fmt: skip


@cache
def specs() -> dict[tuple[str, str], KernelSpec]:
    """All kernels, by op and name. Their files are imported when the first plan asks for them, not with pyflame."""
    for file in _FILES:
        import_module(f"{__name__}.{file}")
    return SPECS
