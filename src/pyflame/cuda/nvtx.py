"""torch.cuda.nvtx by its path: ranges that profilers show, as pf.annotate makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.trace import thread
from pyflame.profiling import annotate

__all__ = ["mark", "range", "range_pop", "range_push"]


def range_push(msg: str) -> int:
    """Begin a range; gives how many it is in.

    >>> pf.cuda.nvtx.range_push("forward"), pf.cuda.nvtx.range_pop()
    (0, 0)
    """
    annotate(msg).__enter__()
    return len(thread.open) - 1


def range_pop() -> int:
    """End the range that was begun last; gives how many it was in, or -2 where there is none."""
    if not thread.open:
        return -2
    annotate("").__exit__(None, None, None)
    return len(thread.open)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a `with` block or a function; the arguments are put into the name by `format`.

    >>> with pf.cuda.nvtx.range("step {}", 3):
    ...     pf.eval(pf.ones(2))
    """
    with annotate(msg.format(*args, **kwargs)):
        yield


def mark(msg: str) -> None:
    """A range without length."""
    with annotate(msg):
        pass
