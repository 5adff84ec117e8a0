"""What texts of hand-written C kernels begin with: macros, and the way between how elements are stored and computed."""

from __future__ import annotations

from collections.abc import Mapping

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


def macros(defines: Mapping[str, object]) -> str:
    """One line for each.

    >>> macros({"PF_T": "float"})
    '#define PF_T float\\n'
    """
    return "".join(f"#define {name} {value}\n" for name, value in defines.items())


def macros_with_epilogue(defines: Mapping[str, object], address_arg: int, sums: str) -> str:
    """As `macros`, with PF_EPILOGUE: a call of the function whose address an argument holds, on sums of this type."""
    call = f"((pf_epilogue)(intptr_t)(arg)[{address_arg}])(buf, arg, __VA_ARGS__)"
    kind = f"char *const *, const int64_t *, const pf_word *, int64_t, int64_t, int64_t, int64_t, const {sums} *"
    lines = macros({**defines, "PF_EPILOGUE(buf, arg, ...)": call})
    return f"{lines}typedef void (*pf_epilogue)({kind});\n#undef pf_min\n#undef pf_max\n"
