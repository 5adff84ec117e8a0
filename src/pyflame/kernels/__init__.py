"""Hand-written kernels: <op>.c and <op>.hip with <op>.py, which says what they take and how to launch them."""

from pyflame.kernels import attention, contraction, cumulative, pool, scatter, sort
from pyflame.kernels.spec import SPECS, Epilogue, KernelSpec

__all__ = ["SPECS", "Epilogue", "KernelSpec", "attention", "contraction", "cumulative", "pool", "scatter", "sort"]
