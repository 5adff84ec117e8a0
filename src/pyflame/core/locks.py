"""Locks that no interrupt leaves taken, and that a child of fork finds free, whichever thread of its parent had them.

What they guard is whole between any two bytecodes, or interrupts would break it; so a child may go on with it too.
"""

from __future__ import annotations

import os
import threading
from itertools import starmap
from typing import TYPE_CHECKING, Any
from weakref import ref

from pyflame.core.undo import Exit

_made: dict[Any, None] = {}  # weak references, whose callback is in C: an interrupt within one in Python would be lost
_ONCE = ((),)  # arguments of one call


class Lock:
    """A lock for `with` statements: taken when they ask for `__exit__`, given back when they let go of it."""

    __slots__ = ("_acquire", "_leave")

    def __init__(self, lock: Any) -> None:
        _made[ref(lock, _made.pop)] = None
        self._acquire = lock.acquire
        self._leave = (lock.__exit__,)

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = "".format

        @property
        def __exit__(self) -> Any:
            return next(map(Exit, self._leave, starmap(self._acquire, _ONCE)))  # taken and held without a bytecode


def lock() -> Lock:
    """A lock."""
    return Lock(threading.Lock())


def rlock() -> Lock:
    """A lock that the thread which holds it may take again."""
    return Lock(threading.RLock())


def _free() -> None:
    for made in [weak() for weak in list(_made)]:
        if made is not None:
            made._at_fork_reinit()


os.register_at_fork(after_in_child=_free)
