"""Functions in C over Python's objects (native.c and those behind it): what every op and evaluation does.

The compiler of the CPU's kernels compiles them, without Python's headers. Until that is done, and where it cannot be,
the same is done in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pyflame.core.locks import Lock, lock
from pyflame.core.maker import MAKERS, WANTED, Maker
from pyflame.core.state import state
from pyflame.engine import host, known, portions, views
from pyflame.engine.devices import cpu
from pyflame.engine.ownership import reliable
from pyflame.engine.starts import STARTS, learn_start
from pyflame.engine.value import Part, Value
from pyflame.ir import OPS, Meta, Node, signature
from pyflame.ir.opdef import ASSIGN, COLLECTIVE, CONST, COPY, IOTA, LEAF, MOVEMENT, OpDef
from pyflame.runtime.cpu.compiler import find_compiler
from pyflame.runtime.cpu.device import PAUSE, runner_text
from pyflame.runtime.pool import Block, HostPool

_THING, _NUMBERS, _NUMBER = ctypes.py_object, ctypes.c_void_p, ctypes.c_int64
_FILES = ("native", "walk", "known", "gpu_run", "evaluate", "jitted_call", "direct", "calls", "reads")
walk: Callable[..., Any] | None = None  # PendingGraph._walk
_caller: Callable[..., Any] | None = None  # gives what calls jitted functions
direct: Callable[..., Any] | None = None  # runs plans on memory of the caller's: (rows, arguments, what to give else)


def native_text() -> str:
    """Their source, as that of a kernel, behind the numbers that Python has as well."""
    numbers = f"enum {{ MANY = {portions.MANY}, KINDS = {portions.KINDS}, SMALL = {host.SMALL} }};"
    return "\n".join([numbers, *[Path(__file__).with_name(f"{name}.c").read_text() for name in _FILES]])


@cache
def load() -> None:
    """Get the functions. This may take as long as compiling a kernel."""
    if not reliable() or find_compiler() is None or (compiler := cpu().compiler) is None:
        return
    # with the runner, which every plan of the CPU needs: two files compile at once
    wanted = [one.name for one in WANTED]
    texts = [
        (
            native_text(),
            ("_ready", "_given", "_walk", "_known", "_fetch", "_number", "_maker", "_call", "_direct", *wanted),
        ),
        (runner_text(), ("_run",)),
    ]
    (ready, *functions), (run,) = compiler.functions(texts)
    if ctypes.CFUNCTYPE(ctypes.c_int)(ready)():
        with contextlib.suppress(ValueError):  # an attribute is not to be found
            _take(functions, run)


def _take(functions: Sequence[int], run: int) -> None:
    """Let C do what it can. What goes in: the addresses of its functions, and the runner's."""
    global walk, _caller, direct
    given, walk_of, known_of, fetch_of, number_of, maker_of, call_of, direct_of, *wanted = functions
    places = _offsets(Node, ("srcs", "op", "sig", "serial", "data", "attrs", "line", "meta"))
    places += _offsets(OpDef, ("plain", "kind", "alias")) + _offsets(Value, ("storage", "offset", "strides"))
    places += _offsets(Block, ("address", "memory", "nbytes"), cpu().allocate(0))
    places += _offsets(Meta, ("size", "device", "dtype", "shape")) + _offsets(Lock, ("_shared",), lock())
    ops = OPS["slice"], OPS["reshape"], OPS["leaf"], OPS["const"], OPS["cat"], OPS["uninitialized"]
    things = *ops, LEAF, CONST, IOTA, MOVEMENT, COPY, COLLECTIVE, ASSIGN, Value, Part, Block, None, False, True, ()
    ctypes.PYFUNCTYPE(None, _THING, _NUMBERS)(given)(things, (_NUMBER * len(places))(*places))
    walk = ctypes.PYFUNCTYPE(_THING)(walk_of)()
    if _counts_lie_first():
        made = ctypes.PYFUNCTYPE(_THING, _THING, _NUMBERS, ctypes.c_double)(known_of)
        methods = HostPool._fresh, HostPool._take_back, deque.popleft, cpu().allocate, signature
        names = "address", "_allocated", "_allocations", "_recent_peak", "_peak", "itemsize", "leaf"
        known.in_c = made((views.LAYOUTS, views.view_of_memory, STARTS, learn_start, *methods, *names), run, PAUSE)
        _caller = ctypes.PYFUNCTYPE(_THING, _THING, _NUMBERS)(call_of)
        direct = ctypes.PYFUNCTYPE(_THING, _THING)(direct_of)(("data_ptr", "stride"))
        host.fetch_in_c = ctypes.PYFUNCTYPE(_THING)(fetch_of)()
        host.in_c = ctypes.PYFUNCTYPE(_THING, _THING)(number_of)((cpu().lock, lock(), *host.IN_C))
    _make_objects(maker_of)
    for one, function in zip(WANTED, wanted, strict=True):
        of_maker = [_address(thing) if isinstance(thing, Maker) else thing for thing in one.things]
        one.made = ctypes.PYFUNCTYPE(_THING, _THING)(function)(tuple(of_maker))


def _address(maker: Maker) -> int:
    """Where C has what it knows of a maker."""
    return maker.new.__self__  # type: ignore[attr-defined, no-any-return]


def caller_of(tensors: Maker, nodes: Maker) -> Callable[..., Any] | None:
    """What calls jitted functions again (transform/jitted_call.py): (rows, arguments, what to give where none fits)."""
    if _caller is None:
        return None
    places = _offsets(tensors.kind, ("_node", "_entry", "_grad", "_link"))
    names = "__dict__", "_values", "left", "storages", "replay"
    found: Callable[..., Any] = _caller((state, nodes.new, tensors.new, *names), (_NUMBER * len(places))(*places))
    return found


def _counts_lie_first() -> bool:
    """Whether an object begins with the count of references to it, as 32 bits."""
    things = [object(), object()]
    another = (things[1], things[1])
    counts = [count.value for count in map(ctypes.c_uint32.from_address, map(id, things))]
    return counts == [1, 1 + len(another)]


def _make_objects(maker_of: int) -> None:
    in_c = ctypes.PYFUNCTYPE(_THING, _THING, _NUMBERS, _NUMBER, _THING, _NUMBER)(maker_of)
    for one in MAKERS:
        count, places = len(one.names), _offsets(one.kind, one.names)
        (counted,) = (0,) if one.counted is None else _offsets(one.kind, (one.counted,))
        one.new = in_c(one.kind, (_NUMBER * count)(*places), count, one.counter, counted)


def _offsets(kind: type[Any], names: Sequence[str], probe: Any = None) -> list[int]:
    """Where objects of a class hold attributes of their slots, in bytes: tried out on one."""
    probe, values = probe or object.__new__(kind), [object() for _ in names]
    for name, value in zip(names, values, strict=True):
        setattr(probe, name, value)
    words = list((ctypes.c_size_t * (kind.__basicsize__ // 8)).from_address(id(probe)))
    return [8 * words.index(id(value)) for value in values]
