"""From an aten op to a function of ours.

Most rows are not written down: PyFlame has PyTorch's names and meanings, so `aten.softplus` is `pf.softplus`. Ops
whose aten form differs from the public function have an adapter in `rows/`, named by op or by op and overload. A row
takes the arguments of the aten op. Whether it fits is tried per node, by building it on a device that computes nothing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

import pyflame as pf
from pyflame.bridge.torch import attention_on_gpu, rows
from pyflame.bridge.torch.crossing import dtype_of

__all__ = ["attention_on_gpu", "call_row", "is_number", "row_of"]  # the first enters its rows when it is imported

Row = Callable[..., Any]

# Arguments that say where and how memory lies: the graph's device is ours to choose, and results are row-major.
_WHERE = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking"))
# Names that PyTorch has too, with another meaning than the aten op's, or that cannot be part of a plan.
_NOT_BY_NAME = frozenset(
    (
        "equal",
        "item",
        "native_batch_norm",  # it writes to its arguments
        "is_same_size",
        "is_nonzero",
        "record_stream",
        "set",
        "resize",
        "unsafe_split",
    )
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


def is_number(value: Any) -> bool:
    """Whether a node's example is a number: the sizes of dynamic shapes, and what is computed of them."""
    return isinstance(value, _SYMBOLIC)


@functools.cache
def _named(name: str) -> Row | None:
    """Our public function of this name."""
    if name in _NOT_BY_NAME or name.startswith("_"):
        return None
    places: list[Any] = [pf, pf.nn.functional]
    for prefix, place in (("special_", pf.special), ("linalg_", pf.linalg), ("fft_", pf.fft)):
        if name.startswith(prefix):
            places, name = [place], name.removeprefix(prefix)
    for place in (*places, pf.Tensor):
        found = getattr(place, name, None)
        if callable(found) and not isinstance(found, type):
            return found  # type: ignore[no-any-return]
    return None


def _item(values: Any, at: Any) -> Any:
    return values[at]


def _drawing_nothing(op: Any, *args: Any, **kwargs: Any) -> Any:
    """An op of a checkpointed layer that may draw random numbers, where it draws none, as attention without dropout."""
    row = row_of(op)
    if row is None or row in rows.RANDOM:
        raise pf.NotSupportedError(f"[bridge] expected an op that draws no random numbers but got {op}")
    return row(*args, **kwargs)


def _saving_state(op: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The same in the forward pass, with a state of torch's generator of the CPU, which nobody needs then."""
    return pf.zeros(torch.get_rng_state().numel(), dtype=pf.uint8), _drawing_nothing(op, *args, **kwargs)


def _with_state(_state: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """The same when the layer is computed again."""
    return _drawing_nothing(op, *args, **kwargs)


_OTHERS: dict[Any, Row] = {
    operator.getitem: _item, run_and_save_rng_state: _saving_state, run_with_rng_state: _with_state,
}  # fmt: skip


def row_of(target: Any) -> Row | None:
    """The function for an fx node's target, or None."""
    if target in _OTHERS:
        return _OTHERS[target]
    if not isinstance(target, torch._ops.OpOverload):
        return None
    namespace, _, name = target._schema.name.partition("::")
    if namespace not in ("aten", "prims"):
        return None
    found = rows.ROWS.get(f"{name}.{target._overloadname}") or rows.ROWS.get(name)
    return found or (_named(name) if namespace == "aten" else None)


def _converted(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_converted, value)) if type(value) in (list, tuple) else [_converted(v) for v in value]
    return value


def call_row(row: Row, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call it with the arguments of the aten op."""
    named = {k: _converted(v) for k, v in kwargs.items() if k not in _WHERE}
    return row(*map(_converted, args), **named)
