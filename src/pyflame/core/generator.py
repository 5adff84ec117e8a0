"""Generator: which random stream comes next. It holds two numbers, a seed and a count of streams handed out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock

_MASK = (1 << 64) - 1
_draws = itertools.count(1)
as_device: Callable[[str], Any] = str  # what programs see of a device's name; the room of tensors has more of it


class Generator:
    """A source of random numbers. The same seed gives the same numbers on every device.

    >>> g = pf.Generator().manual_seed(1)
    >>> bool((pf.rand(3, generator=g) == pf.rand(3, generator=pf.Generator().manual_seed(1))).all())
    True
    """

    __slots__ = ("_lock", "_offset", "_place", "_seed")
    last_draw: ClassVar[int] = 0  # another number whenever a stream was handed out, by any generator

    def __init__(self, seed: int | str | None = None, device: object = None) -> None:
        if isinstance(seed, str):  # PyTorch's Generator("cuda")
            seed, device = None, seed
        self._place = str(device or "cpu")  # remembered only: it draws for all of them
        self._lock = lock()
        self._seed = 0
        self._offset = 0
        if seed is None:
            self.seed()
        else:
            self.manual_seed(seed)

    @property
    def device(self) -> Any:
        """The device that it was made for."""
        return as_device(self._place)

    def manual_seed(self, seed: int) -> Generator:
        """Start over from this seed, any integer of 64 bits."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"[manual_seed] expected a whole number but got {seed!r}")
        value = seed.__index__()
        if not -(1 << 63) <= value <= _MASK:
            raise ArgumentError(f"[manual_seed] expected a seed of 64 bits but got {value}")
        with self._lock:
            self._seed, self._offset = value & _MASK, 0
        return self

    def seed(self) -> int:
        """Start over from a seed that the operating system draws; gives that seed."""
        value = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """The seed that this generator started from."""
        return self._seed

    def next_stream(self) -> tuple[int, int]:
        """(seed, offset) of a stream that nobody had before: one per random tensor."""
        with self._lock:
            self._offset += 1
            Generator.last_draw = next(_draws)
            return self._seed, self._offset - 1

    def get_state(self) -> tuple[int, int]:
        """What `set_state` needs to continue from here."""
        with self._lock:
            return self._seed, self._offset

    def set_state(self, state: tuple[int, int]) -> Generator:
        """Continue where `get_state` was called."""
        try:
            seed, offset = (int(n) for n in state)
        except (TypeError, ValueError):
            raise ArgumentError(f"[set_state] expected the two numbers of get_state() but got {state!r}") from None
        with self._lock:
            self._seed, self._offset = seed & _MASK, offset & _MASK
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, self.get_state()

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self._offset})"


def _restored(seed: int, offset: int) -> Generator:
    return Generator(0).set_state((seed, offset))


# Used where no generator is given. Its first seed is drawn by the operating system, as PyTorch's is.
default_generator = Generator()


class Streams:
    """The random streams that a function drew, so that it can be run again on the same ones."""

    def __init__(self, outer: Streams | None) -> None:
        self._outer = outer
        self._drawn: list[Any] = []
        self._again: Iterator[Any] | None = None

    def take(self, draw: Callable[[], Any]) -> Any:
        """The next stream: drawn, or the one that was drawn at this place before."""
        if self._again is not None:
            return next(self._again)
        self._drawn.append(draw() if self._outer is None else self._outer.take(draw))
        return self._drawn[-1]

    def repeat(self) -> Streams:
        """Hand out the same streams once more."""
        self._again = iter(self._drawn)
        return self
