"""The graph of one call: every op in the order of the program, with the user's line and the module it ran in.

The function is traced, as jit does, so nothing runs and no value is asked for; what it read comes along, so that the
graph can be run on any device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyflame.core.state import state
from pyflame.ir import Node
from pyflame.ir.graph import topological
from pyflame.ir.opdef import CONST, COPY, IOTA, LEAF, MOVEMENT
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.transform.trace import Trace, trace_function
from pyflame.transform.tracer import evaluated
from pyflame.transform.tree import flatten, is_traced


@dataclass(frozen=True)
class Place:
    """Where an op was called: the innermost line outside of PyFlame, or of a language model's architecture, and the
    innermost module by its name."""

    line: str = ""
    module: str = ""


@dataclass
class Recording:
    """The nodes of a call, sources first; which of them are compared, and which are its results."""

    order: list[Node]
    compared: list[Node]
    outputs: list[Node]
    places: dict[Node, Place]
    inputs: dict[Node, Node]  # leaves of the graph -> evaluated nodes with their values
    numbers: dict[Node, Any]  # constants that each call draws anew -> what this one has drawn


class _Watched(set[Node]):
    """The nodes that a tracer knows, told one by one as tensors of them are made: each notes where that was."""

    def __init__(self, before: Iterable[Node], names: dict[int, str]) -> None:
        super().__init__(before)
        self.names = names
        self.places: dict[Node, Place] = {}

    def add(self, node: Node) -> None:
        super().add(node)
        if node not in self.places:
            self.places[node] = _place(self.names)


def _place(names: dict[int, str]) -> Place:
    """Of the call that makes a tensor now: looks outwards through the frames of all functions that are running."""
    frame: Any = sys._getframe(2)
    line = module = ours = ""
    while frame is not None and frame.f_code.co_filename != __file__:
        where, room = f"{frame.f_code.co_filename}:{frame.f_lineno}", str(frame.f_globals.get("__name__", ""))
        if not line and not room.startswith("pyflame"):
            line = where
        if not ours and room.startswith("pyflame.llm"):
            ours = where
        if not module and isinstance(owner := frame.f_locals.get("self"), Module):
            module = names.get(id(owner)) or type(owner).__name__
        frame = frame.f_back
    return Place(line or ours, module)


def record(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
    """Trace one call.

    >>> [n.op.name for n in record(lambda x: x.exp().sum(), (pf.ones(3),), {}).compared]
    ['exp', 'sum']
    """
    leaves: list[Any] = []
    for value in (*args, *kwargs.values()):
        flatten(value, leaves, is_traced)
    names = {id(m): name for name, m in fn.named_modules()} if isinstance(fn, Module) else {}
    watched = _Watched((), names)

    def call(*args: Any, **kwargs: Any) -> Any:
        watched.update(state.tracer.known)
        state.tracer.known = watched
        return fn(*args, **kwargs)

    name = getattr(fn, "__name__", type(fn).__name__)
    trace = trace_function(call, args, kwargs, leaves, name)
    order = topological(trace.nodes)
    outputs = [n for n in dict.fromkeys(trace.nodes) if n.op.kind not in (LEAF, CONST)]
    silent = (LEAF, CONST, IOTA, COPY, MOVEMENT)  # they compute nothing: whoever reads them is compared
    compared = [n for n in sorted(order, key=lambda n: n.serial) if n.op.kind not in silent or n in outputs]
    numbers: dict[Node, Any] = {}
    for generator, seed, offset in trace.draws:
        numbers[seed], numbers[offset] = generator.next_stream()
    return Recording(order, compared, outputs, _spread(order, watched.places), _inputs(trace, leaves), numbers)


def _spread(order: list[Node], known: dict[Node, Place]) -> dict[Node, Place]:
    """Places of all nodes: those that an op makes on its way to its result stand just before it in the program."""
    found: dict[Node, Place] = {}
    marks = sorted([*order, *known], key=lambda n: n.serial)
    place = Place()
    for node in reversed(marks):
        place = known.get(node, place)
        found[node] = place
    return {node: found[node] for node in order}


def _inputs(trace: Trace, leaves: list[Any]) -> dict[Node, Node]:
    """Every leaf that the call read: arguments, captured tensors and gradients."""
    found = {n: evaluated(v) for n, v in zip(trace.arguments, leaves, strict=True) if isinstance(v, Tensor)}
    found |= {made: evaluated(cell) for made, cell in zip(trace.made, trace.cells, strict=True)}
    found |= {made: evaluated(cell._grad) for cell, made in trace.grad_cells if cell._grad is not None}
    return found
