"""torch.futures by its path: results that come later. Python's own futures, under PyTorch's names."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A result that somebody sets.

    >>> later = pf.futures.Future()
    >>> doubled = later.then(lambda done: done.value() * 2)
    >>> later.set_result(3); doubled.wait()
    6
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether there is a result, or an error."""
        return self._future.done()

    def wait(self) -> T:
        """The result, as soon as there is one."""
        return self._future.result()

    value = wait

    def set_result(self, result: T) -> None:
        """Give the result, once."""
        self._future.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Let `wait` raise this."""
        self._future.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call a function with this future when it is done; at once if it is."""
        self._future.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """What a function makes of this future when it is done, as a future."""
        made: Future[S] = Future()

        def run(_: Future[T]) -> None:
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(run)
        return made


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all of them, done when the last one is.

    >>> one = pf.futures.Future(); one.set_result(1)
    >>> [done.value() for done in pf.futures.collect_all([one]).wait()]
    [1]
    """
    made: Future[list[Future[Any]]] = Future()
    left = set(map(id, futures))

    def one_done(future: Future[Any]) -> None:
        left.discard(id(future))
        if not left:
            made.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one_done)
    if not futures:
        made.set_result([])
    return made


def wait_all(futures: Sequence[Future[T]]) -> list[T]:
    """All results.

    >>> one = pf.futures.Future(); one.set_result(1)
    >>> pf.futures.wait_all([one])
    [1]
    """
    return [future.wait() for future in futures]
