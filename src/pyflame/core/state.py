"""Modes that hold for the calling thread: gradient recording, the current device, tracing, eager and deterministic.

They go back as core/undo.py says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from pyflame.core.device import CPU, DeviceId
from pyflame.core.locks import rlock
from pyflame.core.undo import Undo

M = TypeVar("M", bound="mode")


class DefaultDevice:
    """The device that a thread starts on: what set_device chose last, in any thread; before that the machine's best.

    `choose` finds that one, when it is first asked for. The engine, which knows the machine, puts it here.
    """

    def __init__(self) -> None:
        self.chosen: DeviceId | None = None
        self.choose: Callable[[], DeviceId] = lambda: CPU
        self._lock = rlock()

    def get(self) -> DeviceId:
        if self.chosen is None:
            with self._lock:  # two threads choose once, and warn once
                if self.chosen is None:
                    self.chosen = self.choose()
        return self.chosen


class State(threading.local):
    """One instance per thread; attributes are read on every op, so they are plain."""

    def __init__(self) -> None:
        vars(self)["device"] = default_device.chosen  # None until this thread first needs it
        self.grad_enabled = True
        self.eager: bool | int = False  # 0: as False, and C makes no calls, since a mode wants to see them
        self.deterministic = False
        self.libraries: str | None = None  # instead of PYFLAME_LIBRARIES
        self.max_fused: int | None = None  # instead of PYFLAME_MAX_FUSED
        self.matrix_cores = True  # whether kernels may use a GPU's matrix instructions
        self.tune = True  # False: as PYFLAME_TUNE=0
        self.one_by_one = False  # whether the host will give each launch of what is planned, as outside of jit
        self.many_sizes = False  # whether what is planned comes in so many sizes that small launches are not tried out
        self.autocast: Any = None  # the 16-bit DType inside pf.autocast
        self.recorder: list[Any] | None = None  # autograd replays a composite through this list
        self.keeps_tape = False  # whether a backward pass leaves its tape to another one
        self.in_backward = False  # whether gradients are being computed
        self.tracer: Any = None  # transform.jit
        self.streams: Any = None  # core.generator.Streams: random streams that a checkpoint records or repeats
        self.rebinds: Any = None  # transform.checkpoint: puts cells back that are rebound while it computes again
        self.after_backward: list[Callable[[], None]] = []  # what hooks of leaves want done when all .grad are there
        self.allocator: Any = None  # data.memory: makes the arrays of batches
        self.pending = 0  # nodes built since the last evaluation
        self.line: str | None = None  # the user's line, while a composite is being decomposed

    @property
    def device(self) -> DeviceId:
        """The current device."""
        here = vars(self)
        if here["device"] is None:
            here["device"] = default_device.get()
        found: DeviceId = here["device"]
        return found

    @device.setter
    def device(self, wanted: DeviceId) -> None:
        vars(self)["device"] = wanted


default_device = DefaultDevice()
state = State()


class _Exit(partial):  # type: ignore[type-arg]
    """What a `with` statement holds while its block runs: `undo` is called when it lets go, however that comes."""

    undo: Callable[[], None]
    __del__ = property(attrgetter("undo"))


class _Leave:
    """The `__exit__` of a mode: a new _Exit for each `with`, which asks for it just before it calls `__enter__`."""

    def __get__(self, owner: mode | None, kind: type) -> Any:
        if owner is None:
            return self
        before: dict[str, Any] = {}
        out = _Exit(self._left, owner, before)
        out.undo = partial(vars(state).update, before)
        owner._asked = before
        return out

    @staticmethod
    def _left(owner: mode, before: dict[str, Any], *exc: object) -> None:
        if owner._asked is before:  # not entered since: this is no `with`
            owner._asked = None
            owner._by_hand.pop()

    def __call__(self, owner: mode, *exc: object) -> None:
        """As contextlib.ExitStack calls it: by way of the class."""
        owner._by_hand.pop()


class mode:
    """Set attributes of the thread's state for the duration of a `with` block."""

    _outer: dict[str, Any] = {}  # noqa: RUF012  # what to go back to, where that is not what was there at the entry

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._asked: dict[str, Any] | None = None  # where `__enter__` notes what the `with` goes back to
        self._by_hand: list[Undo] = []  # of calls of `__enter__` without a `with`

    def __enter__(self: M) -> M:
        before, self._asked = self._asked, None
        here = vars(state)
        if before is None:
            before = {}
            self._by_hand.append(Undo(here.update, before))
        before.update({**{name: here[name] for name in self._changes}, **self._outer})
        here.update(self._changes)
        return self

    if TYPE_CHECKING:

        def __exit__(self, *exc: object) -> None: ...

    else:
        __exit__ = _Leave()
