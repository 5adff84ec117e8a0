"""Locks that no interrupt leaves taken, and that a child of fork finds free, whichever thread of its parent had them.

What they guard is whole between any two bytecodes, or interrupts would break it; so a child may go on with it too.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any
from weakref import ref

from pyflame.core.undo import Exit

_made: dict[Any, None] = {}  # weak references, whose callback is in C: an interrupt within one in Python would be lost


class Lock(partial):  # type: ignore[type-arg]
    """A lock for `with` statements: taken when they ask for `__exit__`, given back when they let go of it.

    It is a call that takes the lock and gives the Exit which holds it, without a bytecode.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    else:
        __enter__ = "".format
        __exit__ = property(partial.__call__)


def _made_of(made: Any) -> Lock:
    _made[ref(made, _made.pop)] = None
    return Lock(next, map(Exit, repeat(made.__exit__), starmap(made.acquire, repeat(()))))


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
