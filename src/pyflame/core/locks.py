"""Locks that no interrupt leaves taken, and that a child of fork finds free, whichever thread of its parent had them.

What they guard is whole between any two bytecodes, or interrupts would break it; so a child may go on with it too.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any
from weakref import ref

_made: dict[Any, None] = {}  # weak references, whose callback is in C: an interrupt within one in Python would be lost


class _Taken(partial):  # type: ignore[type-arg]
    """The `__exit__` of a taken lock: its function gives the lock back when nothing holds it any more, in C."""

    __slots__ = ()
    __call__ = "".format  # takes whatever comes, in C, and gives something false
    __del__ = vars(partial)["func"]


class Lock(map):  # type: ignore[type-arg]
    """A lock for `with` statements: taken when they ask for `__exit__`, given back when they let go of it.

    Its next item takes the lock and is what holds it, without a bytecode. All of them hold one object more, so that its
    count of references tells whether there is any.
    """

    __slots__ = ("_free", "_shared")
    _free: int  # references to the object when nobody has the lock
    _shared: object

    def taken(self) -> bool:
        """Whether a thread has it, in a tenth of the time of taking it."""
        return sys.getrefcount(self._shared) != self._free

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = "".format
        __exit__ = property(next)


def _made_of(made: Any) -> Lock:
    _made[ref(made, _made.pop)] = None
    shared = object()
    out = Lock(_Taken, repeat(made.release), starmap(made.acquire, repeat(())), repeat(shared))
    out._shared = shared
    del shared
    out._free = sys.getrefcount(out._shared)
    return out


def lock() -> Lock:
    """A lock."""
    return _made_of(threading.Lock())


def rlock() -> Lock:
    """A lock that the thread which holds it may take again."""
    return _made_of(threading.RLock())


def _free() -> None:
    for made in [weak() for weak in list(_made)]:
        if made is not None:
            made._at_fork_reinit()


os.register_at_fork(after_in_child=_free)
