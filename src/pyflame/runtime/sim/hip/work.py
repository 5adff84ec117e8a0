"""Work that streams have been given, run as late and in as bad an order as the rules of HIP allow.

Work is a node of a graph: it may run when all that it comes behind is done. The host makes work run by waiting for some
of it; then all that this needs runs, and now and then something else that may. Among what may run the newest comes
first, mostly: hosts tend to give work in the order in which it ought to run, so the reverse shows a missing event. The
rest is left to a seeded random choice.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyflame.core.errors import PyFlameError
from pyflame.runtime.sim.faults import SimulationFault

if TYPE_CHECKING:
    from pyflame.runtime.sim.hip.capture import Capture

_NEWEST = 0.75  # how often the newest of what may run is taken
_OTHER = 0.125  # how often something runs that nobody waits for
_NUDGED = 4  # most that a question makes run


class Work:
    """Something for a device to do. `failed`: the fault that it met, or that what it came behind met.

    `known`: of each handle of a library, how many of its uses it comes behind, its own included.
    """

    __slots__ = ("device", "done", "failed", "followers", "known", "leaders", "left", "number", "run", "what")

    def __init__(self, number: int, device: int, what: str, run: Callable[[], None] | None) -> None:
        self.number = number
        self.device = device
        self.what = what
        self.run = run
        self.done = False
        self.failed: SimulationFault | None = None
        self.leaders: tuple[Work, ...] = ()  # what it comes behind
        self.left = 0  # how many of them are not done
        self.followers: list[Work] = []
        self.known: dict[int, int] = {}


class Scheduler:
    """All pending work of a process. `broke(device, fault)` is called when work of a device fails.

    >>> scheduler = Scheduler(seed=0)
    >>> out = []
    >>> first = scheduler.add(0, "first", lambda: out.append(1))
    >>> second = scheduler.add(0, "second", lambda: out.append(2), [first])
    >>> scheduler.finish([second]); out
    [1, 2]
    """

    def __init__(self, seed: int, broke: Callable[[int, SimulationFault], None] = lambda device, fault: None) -> None:
        self._random = random.Random(seed)
        self._broke = broke
        self._pending: dict[int, Work] = {}
        self._ready: dict[int, Work] = {}
        self._count = 0
        self._uses: dict[int, int] = {}  # of handles, all so far
        self._waited: dict[int, int] = {}  # … and those that the host has waited for
        self._ended: dict[int, dict[int, int]] = {}  # … and those that are done, by device

    def add(
        self,
        device: int,
        what: str,
        run: Callable[[], None] | None = None,
        behind: Iterable[Work | None] = (),
        handle: int = 0,
    ) -> Work:
        """Queue work that comes behind other work. Now and then the device is quick, and something runs at once.

        `handle`: of a library whose work this is; it must come behind all that has used it.
        """
        self._count += 1
        work = Work(self._count, device, what, run)
        given = [w for w in behind if w is not None]
        _merge(work.known, self._waited, *(w.known for w in given))
        if handle:
            self._use(work, handle)
        leaders = {w.number: w for w in given if not w.done}
        work.leaders = tuple(leaders.values())
        work.left = len(leaders)
        for leader in work.leaders:
            leader.followers.append(work)
        self._pending[work.number] = work
        if not work.left:
            self._ready[work.number] = work
        if self._random.random() < _OTHER:
            self._step(self._ready)
        return work

    def finish(self, goals: Iterable[Work | None]) -> None:
        """Run what these need, and them."""
        wanted = [g for g in goals if g is not None]
        needed = self._needed(wanted)
        while needed:
            done = self._step(self._ready if self._random.random() < _OTHER else needed)
            needed.pop(done.number if done is not None else -1, None)
        _merge(self._waited, *(g.known for g in wanted))

    def waited(self, device: int) -> None:
        """The host has waited for all that a device was given."""
        _merge(self._waited, self._ended.get(device, {}))

    def _use(self, work: Work, handle: int) -> None:
        """What is in no order with the last use of a handle may run beside it, though it runs behind it here."""
        uses = self._uses.get(handle, 0)
        if work.known.get(handle, 0) < uses:
            work.run = functools.partial(_refuse, work.what, handle)
        self._uses[handle] = work.known[handle] = uses + 1

    def nudge(self, goals: Iterable[Work | None]) -> None:
        """Some time passes: a few of what these need may run."""
        needed = self._needed(goals)
        for _ in range(self._random.randint(0, _NUDGED)):
            self._step(needed)

    def of(self, device: int) -> list[Work]:
        """What a device has not done yet."""
        return [w for w in self._pending.values() if w.device == device]

    def drop(self, device: int, fault: SimulationFault | None) -> None:
        """Forget what a device has not done yet: it is broken, or reset."""
        for work in self.of(device):
            work.run = None
            work.failed = work.failed or fault

    @staticmethod
    def _needed(goals: Iterable[Work | None]) -> dict[int, Work]:
        found: dict[int, Work] = {}
        stack = [g for g in goals if g is not None]
        while stack:
            work = stack.pop()
            if not work.done and work.number not in found:
                found[work.number] = work
                stack += work.leaders
        return found

    def _step(self, among: dict[int, Work]) -> Work | None:
        """Run one of these that may run."""
        ready = [n for n in self._ready if n in among]
        if not ready:
            return None
        newest = self._random.random() < _NEWEST
        work = self._ready.pop(max(ready) if newest else self._random.choice(ready))
        try:
            if work.run is not None and work.failed is None:
                work.run()
        except PyFlameError as error:
            work.failed = error if isinstance(error, SimulationFault) else SimulationFault("error", str(error))
            self._broke(work.device, work.failed)
        finally:
            self._complete(work)
        return work

    def _complete(self, work: Work) -> None:
        work.done, work.run, work.leaders = True, None, ()
        if work.known:
            _merge(self._ended.setdefault(work.device, {}), work.known)
        del self._pending[work.number]
        for follower in work.followers:
            follower.failed = follower.failed or work.failed
            follower.left -= 1
            if not follower.left:
                self._ready[follower.number] = follower
        work.followers = []


def _merge(into: dict[int, int], *others: dict[int, int]) -> None:
    for other in others:
        for handle, count in other.items():
            into[handle] = max(count, into.get(handle, 0))


def _refuse(what: str, handle: int) -> None:
    raise SimulationFault(
        "handle",
        f"[sim] expected {what} to come behind all that used handle {handle:#x} but it is in no order with the last; "
        "on a GPU the two may wait for each other for ever: use a handle for each stream, or an event between them",
    )


@dataclass(eq=False)
class Stream:
    """A queue of work of one device. `blocking`: it and the null stream wait for each other."""

    handle: int
    device: int
    flags: int = 0
    priority: int = 0
    null: bool = False
    tail: Work | None = None
    capture: Capture | None = None

    @property
    def blocking(self) -> bool:
        return not self.null and not self.flags & 1


@dataclass(eq=False)
class Event:
    """A point in a stream: the work it was recorded behind or, in a capture, the nodes."""

    handle: int
    device: int
    flags: int
    work: Work | None = None
    at: float = field(default=0.0)
    capture: Capture | None = None

    @property
    def timing(self) -> bool:
        return not self.flags & 2

    def stamp(self) -> None:
        """It is reached now. Time is that of the host: a simulator has no other."""
        self.at = time.perf_counter()
