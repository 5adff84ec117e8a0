"""How an element type is named in C: generated and hand-written kernels agree on it."""

from __future__ import annotations

from functools import cache

from pyflame.core.dtype import DType


@cache
def storage(dtype: DType) -> str:
    """The C type in memory; small floats are bits there."""
    if dtype.is_float and dtype.itemsize < 4:
        return f"uint{8 * dtype.itemsize}_t"
    if dtype.is_complex:
        return {"complex64": "pf_c64", "complex128": "pf_c128"}[dtype.name]
    return {"float32": "float", "float64": "double", "bool_": "uint8_t"}.get(dtype.name, f"{dtype.name}_t")


def small_float(dtype: DType) -> str | None:
    """The name in pf_half.h's conversions, for floats that are computed in float32: bf16, f8e4m3fn."""
    return None if dtype.compute is dtype else dtype.name.replace("float", "f").replace("_", "")
