"""torch.serialization by its path: which classes a PyTorch file may hold beside tensors and plain values."""

from __future__ import annotations

import pickle  # noqa: F401  which programs name as torch.serialization.pickle
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from pyflame.core.errors import ArgumentTypeError
from pyflame.io import load, save
from pyflame.io.torch_pickle import ALLOWED

__all__ = [
    "DEFAULT_PROTOCOL", "MAP_LOCATION", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load",
    "safe_globals", "save",
]  # fmt: skip

DEFAULT_PROTOCOL = 2  # of pickle
MAP_LOCATION = Callable[[Any, str], Any] | str | dict[str, str] | None
Global = Any  # a class or function, or a pair of it and the name that files know it by


def _named(given: Global) -> tuple[tuple[str, str], Global]:
    """The module and name that stand for it in a file."""
    if isinstance(given, tuple):
        if len(given) != 2 or not callable(given[0]) or not isinstance(given[1], str) or "." not in given[1]:
            raise ArgumentTypeError(f"[add_safe_globals] expected (class, 'module.name') but got {given!r:.80}")
        module, _, name = given[1].rpartition(".")
        return (module, name), given
    if not callable(given):
        raise ArgumentTypeError(f"[add_safe_globals] expected classes or functions but got {type(given).__name__}")
    return (given.__module__, given.__qualname__), given


def add_safe_globals(safe_globals: Sequence[Global]) -> None:
    """Let `pf.load` build these classes, and call these functions, where a PyTorch file names them. A pair names
    another: `(Mine, "package.Theirs")`.

    >>> import argparse
    >>> pf.serialization.add_safe_globals([argparse.Namespace])
    >>> pf.serialization.clear_safe_globals()
    """
    ALLOWED.update(_named(given) for given in safe_globals)


def get_safe_globals() -> list[Global]:
    """What was added.

    >>> pf.serialization.get_safe_globals()
    []
    """
    return list(ALLOWED.values())


def clear_safe_globals() -> None:
    """Forget what was added.

    >>> pf.serialization.clear_safe_globals()
    """
    ALLOWED.clear()


class safe_globals:
    """`add_safe_globals` for a `with` block.

    >>> import argparse
    >>> with pf.serialization.safe_globals([argparse.Namespace]):
    ...     len(pf.serialization.get_safe_globals())
    1
    """

    def __init__(self, safe_globals: Sequence[Global]) -> None:
        self.given = list(safe_globals)

    def __enter__(self) -> None:
        self._before = dict(ALLOWED)
        add_safe_globals(self.given)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ALLOWED.clear()
        ALLOWED.update(self._before)
