"""What must happen at the end of a `with` block, whatever comes between.

An interrupt (Ctrl-C) may come between any two bytecodes: in `__exit__` before it has done anything, or behind the block
before `__exit__` is called. So no bytecode of ours undoes anything. The object that a `with` statement holds does, in
C, when the statement lets it go.
"""

from __future__ import annotations

from functools import partial


class Undo(partial):  # type: ignore[type-arg]
    """A call that is made, without a bytecode, when nothing holds it any more.

    It must be held by a frame's stack alone, as the parts of an unfinished expression are: a traceback keeps variables.
    """

    __slots__ = ()
    __del__ = partial.__call__


class Exit(Undo):
    """An Undo as the `__exit__` that a `with` statement asks for: it does nothing when it is called."""

    __slots__ = ()
    __call__ = "".format  # takes whatever comes, in C, and gives something false
