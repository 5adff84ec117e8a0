"""pf.checkpoint: keep a function's arguments instead of its intermediate values, and compute these again for gradients.

The second computation starts from `after(argument, gradient)`: a value that equals the argument, yet is not the same
node, so nothing of the first one is found again; and that cannot be had before the gradient is there, so memory is
taken late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyflame.autograd import Entry, Joint, Leaf, now
from pyflame.autograd.walk import backward
from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, GradientError
from pyflame.core.generator import Streams
from pyflame.core.state import mode, state
from pyflame.core.undo import Exit
from pyflame.ir import F, Node, const
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import call
from pyflame.tensor.tensor import alias, read
from pyflame.tensor.views import link_detached
from pyflame.transform.tree import flatten, is_tensor, rebuild


class CheckpointError(GradientError):
    """A function that was run again for gradients gave results of another number, shape or dtype than at first."""


class Rebinds:
    """Puts cells back that were rebound within a `with` block, as core/undo.py says."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._writes: tuple[list[Any], list[str], list[Any]] = [], [], []  # objects, attributes, values

    def note(self, cell: Tensor) -> None:
        """A cell is about to be rebound."""
        if id(cell) in self._known:
            return
        traced = None if state.tracer is None else state.tracer.cell(cell)
        holder, names = (cell, ["_node", "_entry"]) if traced is None else (traced, ["node", "entry"])
        objects, attributes, values = self._writes
        values += [getattr(holder, name) for name in names]
        attributes += names
        objects += [holder, holder]  # last: until then nothing is put back
        self._known.add(id(cell))

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = "".format

        @property
        def __exit__(self) -> Any:
            return Exit(any, map(setattr, *self._writes))


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), whose intermediate values are computed again in the backward pass instead of being kept.

    Random numbers are the same in both runs, and tensors that fn assigns to are assigned once.

    >>> x = pf.ones(3, requires_grad=True)
    >>> pf.checkpoint(lambda x: pf.exp(x).sin(), x).sum().backward()
    >>> x.grad
    tensor([-2.4783, -2.4783, -2.4783])
    """
    if not callable(fn):
        raise ArgumentError(f"[checkpoint] expected a function but got {type(fn).__name__}")
    if not state.grad_enabled:
        return fn(*args, **kwargs)
    call = _Checkpoint(fn, args, kwargs)
    result, results, inputs, start = call.first()
    wanted = [r._tape for r in results if r._tape is not None]
    if not wanted:
        return result
    call.outside = _outside(wanted, {t._tape for t in inputs if t._tape is not None}, start)
    metas = [*[n.meta for n in call.nodes], *[e.meta for e in call.outside]]
    joint = Joint("Checkpoint", call.gradients, (*call.parents, *call.outside), tuple(metas))
    parts = [joint.part(read(r).meta) for r in results]  # of all: gradients come for each, or None
    out = [r if r._tape is None else Tensor(read(r), part) for r, part in zip(results, parts, strict=True)]
    return rebuild(result, is_tensor, iter(out))


class _Checkpoint:
    """A function and its arguments, run twice with the same random numbers."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.given: list[Tensor] = []
        flatten([args, kwargs], self.given, is_tensor)
        self.streams = Streams(state.streams)
        self.autocast = state.autocast
        self.nodes = [read(t) for t in self.given]
        self.parents = [t._tape for t in self.given]
        self.first_metas: list[tuple[tuple[int, ...], Any]] = []  # shapes and dtypes of the first run's results
        self.outside: list[Entry | Leaf] = []  # what the results depend on besides the arguments

    def _run(self, tensors: list[Tensor]) -> tuple[Any, list[Tensor]]:
        args, kwargs = rebuild([self.args, self.kwargs], is_tensor, iter(tensors))
        with mode(streams=self.streams, autocast=self.autocast):
            result = self.fn(*args, **kwargs)
        results: list[Tensor] = []
        flatten(result, results, is_tensor)
        return result, results

    def first(self) -> tuple[Any, list[Tensor], list[Tensor], int]:
        """Run it: the result, its tensors, the tensors it was called with, and when that was on the tape."""
        fresh = [Tensor(alias(n)) for n in self.nodes]
        for made, t in zip(fresh, self.given, strict=True):
            if t._tape is not None:
                made.requires_grad_()
            else:
                link_detached(made, t)  # what fn writes to an argument, it writes to the caller's
        start = now()
        result, results = self._run(fresh)
        self.first_metas = [(r.shape, r.dtype) for r in results]
        return result, results, fresh, start

    def gradients(
        self, grads: list[Node | None], known: dict[Node, Entry | Leaf], create_graph: bool
    ) -> list[Node | None]:
        """Run it again, and walk back through that run."""
        # a gradient without elements is nothing to wait for
        token = next((g for g in grads if g is not None and g.size), const(0, float32))
        first = F.slice(token, tuple((0, 1, 1) for _ in token.shape))
        rebinds = Rebinds()
        with rebinds, mode(grad_enabled=True, recorder=None, rebinds=rebinds, streams=None):
            again = [
                call(F.after, (Tensor(node, entry), Tensor(F.reshape(first, (1,) * node.ndim))), {})
                for node, entry in zip(self.nodes, self.parents, strict=True)
            ]
            self.streams.repeat()
            _, repeated = self._run(again)
        if (metas := [(r.shape, r.dtype) for r in repeated]) != self.first_metas:
            raise CheckpointError(
                f"[checkpoint] expected the second run to give {self.first_metas}, as the first, but got {metas}; the "
                "function must do the same each time"
            )
        ends = [*[t._tape for t in again], *self.outside]
        roots = [(r._tape, g) for r, g in zip(repeated, grads, strict=True) if r._tape is not None and g is not None]
        stop = {e for e in ends if e is not None}
        found = backward(roots, create_graph=create_graph, entries=known, stop=stop)
        return [None if e is None else found.get(e) for e in ends]


def _outside(roots: list[Entry | Leaf], inputs: set[Entry | Leaf], start: int) -> list[Entry | Leaf]:
    """What a function's results depend on besides its arguments: leaves, and entries from before it ran."""
    found: dict[Entry | Leaf, None] = {}
    seen: set[Entry | Leaf] = set()
    stack = list(roots)
    while stack:
        entry = stack.pop()
        if entry in seen or entry in inputs:
            continue
        seen.add(entry)
        if isinstance(entry, Leaf) or entry.age < start:
            found[entry] = None
        else:
            stack.extend(p for p in entry.parents if p is not None)
    return list(found)
