"""Results of view ops, found again: transpose(0, 1), view(2, -1), chunk(3).

What such an op makes of a tensor follows from the tensor's meta and whole numbers alone, so it is looked up: the ops,
their attributes and signatures. Indices are looked up in a way of their own (basic_index.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pyflame.core import knobs
from pyflame.core.device import CPU
from pyflame.core.maker import InC
from pyflame.core.shape import Size
from pyflame.core.state import state
from pyflame.engine.value import PARTS
from pyflame.ir import OPS, Meta, Node, OpDef
from pyflame.ir.node import NODES, SERIALS
from pyflame.ir.opdef import MOVEMENT
from pyflame.tensor.basic_index import KNOWN
from pyflame.tensor.paths import Path, path_between
from pyflame.tensor.tensor import TENSORS, Tensor
from pyflame.tensor.views import LINKS, MAY_COPY, read_as


class _Known(NamedTuple):
    """One result: the Nodes from the tensor's to its own, but for their sources, and its path."""

    made: tuple[tuple[OpDef, tuple[Any, ...], Meta, int], ...]
    path: Path


class _Result(NamedTuple):
    """What an op gives: one tensor, or a list or a tuple of several."""

    kind: type | None
    parts: list[_Known]


_known: dict[tuple[Any, ...], _Result] = {}
_MAX_KNOWN = 10_000
_MOVES = [op for op in OPS.values() if op.kind == MOVEMENT and op.differentiable and op.grad is not None]
_NO_VALUES = [op for op in _MOVES if op.grad and not {"out", "srcs", "rest", *op.srcs} & {*op.grad.needs}]
READS = InC(
    "_reads", LINKS, PARTS, TENSORS, KNOWN, _known, dict.fromkeys(_NO_VALUES),
    dict.fromkeys([op for op in OPS.values() if op.name in MAY_COPY]), SERIALS, CPU, slice, Ellipsis, Size,
    *("grad_enabled", "start", "stop", "step", "pop", "itemsize"), knobs.MAX_PENDING.integer(),
)  # fmt: skip


def view(fn: Callable[..., Any], base: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """New tensors that an op reads from one; `args`: those behind it. None where its results may be no views, or where
    arguments are more than whole numbers. Where there is neither a tracer nor a recorder."""
    if not _are_whole(args) or not _are_whole(kwargs.values()):
        return None
    node, here = base._node, state.__dict__
    place = here["device"] or state.device
    key = (fn, node.meta, place, args, *kwargs.items()) if kwargs else (fn, node.meta, place, args)
    found = _known.get(key)
    if found is None:
        found = _learned(key, node, fn(node, *args, **kwargs))
        if found is None:
            return None
    if found.kind is None:
        return _read(base, node, found.parts[0])
    return found.kind([_read(base, node, part) for part in found.parts])


def _are_whole(values: Iterable[Any]) -> bool:
    """Whether arguments are whole numbers, or tuples of them. 1.0 and True are equal to 1, and mean something else."""
    for value in values:  # each view comes here, and a generator takes twice as long
        kind = type(value)
        if kind is not int and value is not None and not ((kind is tuple or kind is Size) and _are_whole(value)):
            return False
    return True


def _read(base: Tensor, node: Node, known: _Known) -> Tensor:
    made = node
    for op, attrs, meta, sig in known.made:
        made = NODES.new(op, (made,), attrs, meta, sig)
    state.__dict__["pending"] += len(known.made)
    return read_as(base, node, made, known.path)


def _learned(key: tuple[Any, ...], node: Node, out: Any) -> _Result | None:
    """Keep what an op made of a Node; None if that is more than moves of elements."""
    parts = [_moves(node, one) for one in ([out] if type(out) is Node else out)]
    if None in parts:
        return None
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    found = _known[key] = _Result(None if type(out) is Node else type(out), parts)  # type: ignore[arg-type]
    return found


def _moves(node: Node, made: Node) -> _Known | None:
    path = path_between(node, made)
    chain: list[Node] = []
    while made is not node and made.op.kind == MOVEMENT:
        chain.append(made)
        made = made.srcs[0]
    if path is None or made is not node or len(path) != len(chain):
        return None
    return _Known(tuple([(n.op, n.attrs, n.meta, n.sig) for n in reversed(chain)]), path)
