"""`cached_property` without a lock, as Python has it from 3.12 on.

Before, all objects of a class share one lock, which a Ctrl-C between two bytecodes leaves taken, and a fork copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):
    """An attribute that is computed when it is first read; two threads may both compute it.

    >>> class Circle:
    ...     @cached_property
    ...     def area(self) -> float:
    ...         return 3.0
    >>> Circle().area
    3.0
    """

    def __init__(self, fn: Callable[[Any], T]) -> None:
        self.fn = fn
        self.__doc__ = fn.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        found: T = instance.__dict__.setdefault(self.fn.__name__, self.fn(instance))
        return found
