"""How hand-written C kernels store an element type, and the way between storage and the type they compute in."""

from __future__ import annotations

from pyflame.core.dtype import DType


def stored_type(dtype: DType) -> str:
    """The C type in memory; small floats are bits there."""
    if dtype.is_float and dtype.itemsize < 4:
        return f"uint{8 * dtype.itemsize}_t"
    return {"float32": "float", "float64": "double", "bool_": "uint8_t"}.get(dtype.name, f"{dtype.name}_t")


def _small(dtype: DType) -> str | None:
    """The name in pf_half.h's conversions, for floats that are computed in float32."""
    return None if dtype.compute is dtype else dtype.name.replace("float", "f").replace("_", "")


def loaded(dtype: DType, text: str) -> str:
    """An expression for the number that is stored as `text`."""
    small = _small(dtype)
    return f"pf_{small}_to_f32({text})" if small else f"({text})"


def stored(dtype: DType, text: str) -> str:
    """An expression for what to store for the number `text`."""
    small = _small(dtype)
    return f"pf_f32_to_{small}((float)({text}))" if small else f"({stored_type(dtype)})({text})"
