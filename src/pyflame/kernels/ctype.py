"""The way between how hand-written C kernels store an element and the type they compute in."""

from __future__ import annotations

from pyflame.core.dtype import DType
from pyflame.ir.c_types import small_float, storage


def loaded(dtype: DType, text: str) -> str:
    """An expression for the number that is stored as `text`."""
    small = small_float(dtype)
    return f"pf_{small}_to_f32({text})" if small else f"({text})"


def stored(dtype: DType, text: str) -> str:
    """An expression for what to store for the number `text`."""
    small = small_float(dtype)
    return f"pf_f32_to_{small}((float)({text}))" if small else f"({storage(dtype)})({text})"
