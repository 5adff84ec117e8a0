"""Locks that are free in a child after fork, whichever thread of the parent held them.

What they guard is whole between any two bytecodes, or interrupts would break it too; so the child may go on with it.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import ref

_made: dict[Any, None] = {}  # weak references, whose callback is in C: an interrupt within one in Python would be lost


def _noted(made: Any) -> Any:
    _made[ref(made, _made.pop)] = None
    return made


def lock() -> Any:
    """A lock."""
    return _noted(threading.Lock())


def rlock() -> Any:
    """A lock that the thread which holds it may take again."""
    return _noted(threading.RLock())


def _free() -> None:
    for made in [weak() for weak in list(_made)]:
        if made is not None:
            made._at_fork_reinit()


os.register_at_fork(after_in_child=_free)
