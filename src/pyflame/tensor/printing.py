"""How tensors print: to the letter as PyTorch's do, but for the names of dtypes, which are ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.dtype import bool_, complex_of, get_default_dtype, int64
from pyflame.core.errors import ArgumentError

if TYPE_CHECKING:
    from pyflame.tensor.tensor import Tensor


@dataclass
class PrintOptions:
    """What `set_printoptions` sets. Programs know it as torch._tensor_str.PRINT_OPTS."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()
_PROFILES = {"default": PrintOptions(), "short": PrintOptions(2, edgeitems=2), "full": PrintOptions(threshold=math.inf)}


def set_options(
    precision: int | None,
    threshold: int | None,
    edgeitems: int | None,
    linewidth: int | None,
    profile: str | None,
    sci_mode: bool | None,
) -> None:
    """Change how tensors print; None leaves an option as it is, but for sci_mode: it chooses by the numbers again."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(f"[set_printoptions] expected a profile of {', '.join(_PROFILES)} but got {profile!r}")
        vars(OPTIONS).update(vars(_PROFILES[profile]))
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth)
    vars(OPTIONS).update({name: value for name, value in given.items() if value is not None})
    OPTIONS.sci_mode = sci_mode


def format_tensor(tensor: Tensor) -> str:
    """tensor([1., 2.]) with the dtype where it is not the default, and the device where it is not the CPU."""
    ours = type(tensor).__module__.partition(".")[0] == "pyflame"
    start = "tensor(" if ours else f"{type(tensor).__name__}("
    there = tensor.device.id.computes
    notes = [] if tensor.device == "cpu" else [f"device={str(tensor.device)!r}"]
    sized = (tensor.numel() == 0 and tensor.ndim != 1) or not there or not OPTIONS.edgeitems
    notes += [f"size={tuple(tensor.shape)}"] if sized else []
    notes += dtype_note(tensor, always=tensor.numel() == 0 or not there)
    notes += _gradient_note(tensor)
    return with_notes(start + (elements(tensor, len(start)) if there else "..."), notes, len(start))


def format_sparse(parts: dict[str, Tensor], whole: Any, newline: bool = False) -> str:
    """A sparse tensor: the tensors that it is made of by their names, and what it is as a whole."""
    indent = len("tensor(")
    listed = []
    for name, part in parts.items():
        start = f"{name}=tensor("
        sizes = f", size={tuple(part.shape)}" if part.numel() == 0 else ""
        listed.append(f"{start}{elements(part, indent + len(start))}{sizes})")
    notes = [f"size={tuple(whole.shape)}", f"nnz={whole._nnz()}", *dtype_note(parts["values"])]
    notes += [f"layout={whole.layout}", *_gradient_note(parts["values"])]
    return with_notes("tensor(" + f",\n{' ' * indent}".join(listed), notes, indent, newline)


def dtype_note(tensor: Tensor, always: bool = False) -> list[str]:
    """Its dtype, where the numbers do not tell; `always` where there are none."""
    default = get_default_dtype()
    known = (default,) if always else (default, complex_of(default), int64, bool_)
    return [] if tensor.dtype in known else [f"dtype={tensor.dtype}"]


def _gradient_note(tensor: Tensor) -> list[str]:
    if tensor.grad_fn is not None:
        return [f"grad_fn={tensor.grad_fn}"]
    return ["requires_grad=True"] if tensor.requires_grad else []


def with_notes(text: str, notes: Iterable[str], indent: int, newline: bool = False) -> str:
    """The text, what is said of it behind it, on lines of their own where they are too long, and the bracket."""
    column = len(text) - text.rfind("\n") + 1
    for note in notes:
        newline = newline or column + len(note) + 2 > OPTIONS.linewidth
        text += f",\n{' ' * indent}{note}" if newline else f", {note}"
        column = indent + len(note) if newline else column + len(note) + 2
        newline = False
    return text + ")"


def elements(tensor: Tensor, indent: int) -> str:
    """The nested lists of numbers; lines begin behind `indent` columns."""
    if tensor.numel() == 0:
        return "[]"
    array = tensor.detach().resolve_conj()._snapshot().numpy()
    if tensor.dtype.compute is not tensor.dtype:
        array = array.astype(np.float32)
    short = array.size > OPTIONS.threshold
    seen = _ends(array) if short else array
    return _nested(array, indent, short, _texts(seen))


def _ends(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What stays of an array of which the middle of each axis is left out."""
    keep = OPTIONS.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * keep:
            array = np.take(array, [*range(keep), *range(size - keep, size)], axis)
    return array


# --- one number -----------------------------------------------------------------------------------------------------


def _texts(seen: np.ndarray[Any, Any]) -> tuple[Callable[[Any], str], int]:
    """How a number of these prints, and how many columns it takes."""
    if seen.dtype.kind == "f":
        return _real_texts(seen)
    if seen.dtype.kind != "c":
        width = max((len(str(v)) for v in seen.reshape(-1).tolist()), default=1)
        return lambda value: str(value).rjust(width), width
    real, wide = _real_texts(seen.real)
    imaginary, long = _real_texts(seen.imag)

    def text(value: complex) -> str:
        behind = imaginary(value.imag).lstrip() + "j"
        return real(value.real) + ("" if behind[0] in "+-" else "+") + behind

    return text, wide + long + 1


def _real_texts(seen: np.ndarray[Any, Any]) -> tuple[Callable[[float], str], int]:
    """Zeros and what is not finite do not decide about the form of the others, nor about their width."""
    counted = seen[np.isfinite(seen) & (seen != 0)].astype(np.float64)
    sizes = np.abs(counted)
    wide = counted.size > 0 and bool(sizes.max() / sizes.min() > 1e3 or sizes.max() > 1e8 or sizes.min() < 1e-4)
    powers = counted.size > 0 and (wide if OPTIONS.sci_mode is None else OPTIONS.sci_mode)
    digits = OPTIONS.precision
    if powers:
        form: Callable[[float], str] = f"{{:.{digits}e}}".format
    elif np.all(counted == np.ceil(counted)):
        form = _whole
    else:
        form = f"{{:.{digits}f}}".format
    width = max((len(form(v)) for v in counted.tolist()), default=1)
    return lambda value: form(value).rjust(width), width


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


# --- lists ----------------------------------------------------------------------------------------------------------


def _nested(array: np.ndarray[Any, Any], indent: int, short: bool, texts: tuple[Callable[[Any], str], int]) -> str:
    text, width = texts
    if array.ndim == 0:
        return text(array.item())
    keep = OPTIONS.edgeitems
    cut = short and len(array) > 2 * keep
    if array.ndim == 1:
        first, last = (array[:keep], array[len(array) - keep :]) if cut else (array, array[:0])
        listed = [*map(text, first.tolist()), *([" ..." if keep else "..."] if cut else []), *map(text, last.tolist())]
        return f"[{_lines(listed, indent, width)}]"
    parts = [*range(keep), None, *range(len(array) - keep, len(array))] if cut else range(len(array))
    inner = ["..." if i is None else _nested(array[i], indent + 1, short, texts) for i in parts]
    return f"[{(',' + chr(10) * (array.ndim - 1) + ' ' * (indent + 1)).join(inner)}]"


def _lines(listed: list[str], indent: int, width: int) -> str:
    many = max(1, (OPTIONS.linewidth - indent) // (width + 2))
    lines = [", ".join(listed[i : i + many]) for i in range(0, len(listed), many)]
    return f",\n{' ' * (indent + 1)}".join(lines)
