"""The C-family expression of one instruction: shared by every dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyflame.core.dtype import DType
from pyflame.ir.c_types import small_float, storage
from pyflame.ir.kernel import Instr


def register(dtype: DType) -> str:
    """The C type in which a value is held."""
    return storage(dtype.compute)


def loaded(dtype: DType, text: str) -> str:
    small = small_float(dtype)
    return f"pf_{small}_to_f32({text})" if small else text


def stored(dtype: DType, text: str) -> str:
    small = small_float(dtype)
    return f"pf_f32_to_{small}({text})" if small else text


def converted(source: DType, target: DType, text: str) -> str:
    """A cast. To a small float it rounds through storage, so that an explicit cast is seen by later ops."""
    if target.name == "bool_":
        return f"(uint8_t)(({text}) != 0)"
    small = small_float(target)
    if small:
        wide = f"pf_f64_to_{small}" if source.name == "float64" else f"pf_f32_to_{small}"
        return f"pf_{small}_to_f32({wide}({text}))"
    if target.is_int and source.is_float:
        return f"pf_to_{target.name[0]}{8 * target.itemsize}({text})"
    return f"({register(target)})({text})"


def reinterpreted(source: DType, target: DType, text: str) -> str:
    """The same bits as an element of another dtype, which has as many."""
    unsigned = f"uint{8 * source.itemsize}_t"
    if source.is_float:
        text = stored(source, text) if small_float(source) else f"pf_bits_f{8 * source.itemsize}({text})"
    if target.name == "bool_":
        return f"(uint8_t)(({text}) != 0)"
    if not target.is_float:
        return f"({register(target)})({text})"
    bits = f"({unsigned})({text})"
    return loaded(target, bits) if small_float(target) else f"pf_from_bits_f{8 * target.itemsize}({bits})"


IDENTITY: dict[str, Callable[[DType], str]] = {
    "zero": lambda d: "0",
    "one": lambda d: "1",
    "lowest": lambda d: "-INFINITY" if d.is_float else _extreme(d, low=True),
    "highest": lambda d: "INFINITY" if d.is_float else _extreme(d, low=False),
}


def _extreme(dtype: DType, low: bool) -> str:
    bits = dtype.itemsize * 8
    if not dtype.is_signed:
        return "0" if low else "1" if dtype.name == "bool_" else f"{(1 << bits) - 1}ull"
    return f"INT{bits}_MIN" if low else f"INT{bits}_MAX"


def expression(instr: Instr, args: Sequence[str], dtypes: Sequence[DType]) -> str:
    """The right-hand side of an `op` instruction."""
    op = instr.op
    assert op is not None
    if op.name == "cast":
        return converted(dtypes[0], instr.dtype, args[0])
    if op.name == "bitcast":
        return reinterpreted(dtypes[0], instr.dtype, args[0])
    assert op.c is not None
    names = dict(zip(op.srcs, args, strict=True))
    names.update({k: str(v) for k, v in zip(op.attrs, instr.attrs, strict=True)})
    text = op.c.format(T=register(instr.dtype), S=register(dtypes[0]) if dtypes else "", **names)
    if instr.dtype.name == "bool_":
        return f"(uint8_t)(({text}) != 0)"  # True + True is True
    if instr.dtype.is_complex:
        return text
    # C computes small integers as int: wrap back to the width they have.
    return f"({register(instr.dtype)})({text})" if not instr.dtype.is_float else text


def combine(instr: Instr, a: str, b: str) -> str:
    """One step of a reduction."""
    assert instr.op is not None and instr.op.c is not None
    return instr.op.c.format(a=a, b=b, T=register(instr.dtype))


def identity(instr: Instr) -> str:
    assert instr.op is not None and instr.op.identity is not None
    return IDENTITY[instr.op.identity](instr.dtype.compute)
