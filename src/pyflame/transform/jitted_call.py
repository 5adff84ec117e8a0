"""Calls of jitted functions that come again: rows that engine/jitted_call.c reads, so that such a call is one step.

When Python has run a call, all that the next one must compare, and all that it must do where nothing differs, is laid
down as a row: arguments, modes, guards, the state that the call has left, the plan's run or its captured graph, and
what becomes of the results. C goes through a function's rows; where none fits Python does it all, as it does for what
has no row: several devices, random numbers, arguments that are written to or that are lists and dicts of tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyflame.core import trace
from pyflame.core.dtype import default
from pyflame.core.precision import choice
from pyflame.core.state import state
from pyflame.engine import native
from pyflame.engine.build import CpuRunner
from pyflame.engine.faults import raise_bad_index
from pyflame.ir.node import NODES
from pyflame.tensor import Tensor
from pyflame.tensor.tensor import TENSORS
from pyflame.transform.tree import is_tensor, is_traced, rebuild

if TYPE_CHECKING:
    from pyflame.engine.capture import Served
    from pyflame.transform.replay import Replay
    from pyflame.transform.steady import Steady

MAX_ROWS = 8  # of one function
MISSED: Any = object()  # instead of a result: nothing has been done
_MODES = ("tracer", "grad_enabled", "autocast", "device", "deterministic")  # of the thread; compared by identity
_UNCHANGING = (int, float, str, bytes, bool, type(None))

Row = tuple[Any, ...]
_call: Callable[[Sequence[Row], Sequence[Any], Any], Any] | None = None


class Rows:
    """The rows of a jitted function, by the names of the arguments that were given by name."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], tuple[Row, ...]] = {}
        self._seen: dict[Replay, tuple[Any, bool]] = {}  # what a row depended on last, and whether it was laid down

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function returns; MISSED where Python has to see to it."""
        rows = self._rows.get(tuple(kwargs))
        if rows is None or _call is None:
            return MISSED
        return _call(rows, (*args, *kwargs.values()) if kwargs else args, MISSED)

    def lay(self, traced: Replay, args: tuple[Any, ...], kwargs: dict[str, Any], static: Sequence[bool]) -> None:
        """Lay down the row of a replay that has just run, when it comes for the second time as it was. `static`: of
        each argument whether it is a part of the signature; empty: none is."""
        steady, served = left = traced.left
        if not traced.may_have_row or (steady is None and not traced.stateless):
            return
        if traced.captures and served is None:  # a run like no other
            return
        given, names = (*args, *kwargs.values()), tuple(kwargs)
        same = [id(a) for a in given if not isinstance(a, Tensor)]
        depends = names, left, same
        before, laid = self._seen.get(traced, (None, False))
        again = before == depends
        self._seen[traced] = depends, again
        if laid == again or _in_c() is None:  # it is there, or was not there and would not stay
            return
        made = row_of(traced, given, static or [False] * len(given), steady, served) if again else None
        others = [row for row in self._rows.get(names, ()) if row[-1] is not traced]
        if made is not None:
            others.insert(0, made)
        self._rows[names] = tuple(others[:MAX_ROWS])  # whole at any time: it is read without a lock

    def forget(self) -> None:
        """Hold nothing of the traces any more."""
        self._rows, self._seen = {}, {}


def _in_c() -> Callable[..., Any] | None:
    """What calls by rows, where that can be: with a compiler and with the GIL."""
    global _call
    if _call is None:
        native.load()
        _call = native.caller_of(TENSORS, NODES)
    return _call


def row_of(
    traced: Replay, given: Sequence[Any], static: Sequence[bool], steady: Steady | None, served: Served | None
) -> Row | None:
    """The row of a call that Python has just made with these arguments, as engine/jitted_call.c takes it. `steady` and
    `served`: the state that it has left, and the graphs that it has replayed."""
    on_cpu = isinstance(traced.runner, CpuRunner)
    arguments = [
        _argument(a, on_cpu, traced.writes) if not fixed else _same(a) for a, fixed in zip(given, static, strict=True)
    ]
    # where the plan's arguments stand among those given
    places = [n for n, a in enumerate(given) if is_traced(a) and not static[n]]
    run, guards = _on_cpu(traced, places, steady) if on_cpu else _on_gpu(served)
    results = _results(traced, served)
    if run is None or results is None or None in arguments:
        return None
    guards += (default, "float", default.float), (choice, "precision", choice.precision), (trace, "recording", None)
    fixed = traced.feed.template if steady is None else steady
    inputs = [-1] * len(traced.feed.template)
    for position, leaf in traced.feed.arguments:
        inputs[position] = places[leaf]
    here = vars(state)
    single = len(results) == 1 and type(traced.result) is Tensor
    return (
        tuple(arguments),
        tuple([part for name in _MODES for part in (name, here[name])]),
        tuple([part for guard in (*traced.guards, *guards) for part in guard]),
        traced.locks[0],
        None if steady is None else steady.parts,
        struct.pack(f"={len(inputs)}q", *inputs),
        fixed,
        run if on_cpu else None,
        None if on_cpu else run,
        results,
        None if single else partial(_built, traced.result),
        traced,
    )


def _built(result: Any, tensors: list[Tensor]) -> Any:
    """What the function returned when it was traced, with these tensors."""
    return rebuild(result, is_tensor, iter(tensors))


def _argument(value: Any, on_cpu: bool, unshared: bool) -> tuple[Any, ...] | None:
    """What an argument must be; None: that cannot be told at once."""
    if isinstance(value, Tensor):
        return type(value), value._node.sig, value._entry is not None, unshared
    return (float,) if on_cpu and type(value) is float else _same(value)


def _same(value: Any) -> tuple[Any, ...] | None:
    """For an argument that must be the same object, if that tells that it is equal."""
    kind: Any = type(value)
    return (None, value) if kind in _UNCHANGING or kind.__hash__ is object.__hash__ else None


def _on_cpu(traced: Replay, places: Sequence[int], steady: Steady | None) -> tuple[Any, list[Any]]:
    """The run of a plan on the CPU, and guards of it."""
    runner = traced.runner
    assert isinstance(runner, CpuRunner)
    if runner.starts_given or runner.device.pool.exact:
        return None, []
    plan, lines = runner.plan, traced.lines
    from_args = [places[at] if source == "arg" else -1 for source, at in traced.constants]
    numbers = struct.pack(f"={len(from_args)}q", *from_args), tuple([value for _, value in traced.constants])

    def report(record: bytes) -> None:
        raise_bad_index(record, plan.checks, plan.check_lines, lines)

    known = runner.known(donated=steady is not None)
    return (*known, runner.device.pool.parts, numbers, report, runner), []


def _on_gpu(served: Served | None) -> tuple[Any, list[Any]]:
    """What replays a plan's graphs, or gives its one launch to the device, and guards of it."""
    if served is None:
        return None, []
    known, guards = served.by.known(served.sent)
    device = served.runner.executable.device
    return known, [*guards, (device, "forked", False), (served.runner, "why", served.why)]


def _results(traced: Replay, served: Served | None) -> tuple[Any, ...] | None:
    """Of each result which output of the plan it is (on a GPU: which of the storages that a graph keeps), where it
    begins there, and the leaf that it becomes. None: one lies in state, which nobody else may hold."""
    if served is None:
        strides = [view.strides for view in traced.plan.outputs]
        return tuple([(at, 0, strides[at], meta, sig) for at, meta, sig in traced.results])
    places = [served.by.place_of(at) for at, _, _ in traced.results]
    outputs = zip(places, traced.results, strict=True)
    return None if None in places else tuple([(*place, meta, sig) for place, (_, meta, sig) in outputs if place])
