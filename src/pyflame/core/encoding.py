"""Encodings of quantised weights by name. A new format is a file in core/encodings/, found by being there."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyflame.core import encodings
from pyflame.core.errors import ArgumentError, suggest

if TYPE_CHECKING:
    from pyflame.core.encodings.block import Encoding

ENCODINGS: dict[str, Encoding]  # by name
__all__ = ["ENCODINGS", "Encoding", "encoding", "row_bytes"]


@cache
def _found() -> dict[str, Encoding]:
    """All encodings. Their files are imported when the first one is asked for, not with pyflame."""
    import pkgutil

    out: dict[str, Encoding] = {}
    for file in sorted(module.name for module in pkgutil.iter_modules(encodings.__path__)):
        module = import_module(f"{encodings.__name__}.{file}")
        for one in getattr(module, "ENCODINGS", (module.ENCODING,) if hasattr(module, "ENCODING") else ()):
            if one.name in out:
                raise ValueError(f"encoding {one.name!r} is declared twice")
            out[one.name] = one
    return out


@cache
def _kind() -> type[Encoding]:
    from pyflame.core.encodings.block import Encoding

    return Encoding


def __getattr__(name: str) -> Any:
    if name == "Encoding":
        return _kind()
    if name != "ENCODINGS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _found()


def encoding(name: object, op: str = "encoding") -> Encoding:
    """The encoding of a name, or itself.

    >>> encoding("q4_0")
    <encoding q4_0: 32 elements in 18 bytes>
    """
    known = _found()
    if isinstance(name, str):
        if name.lower() in known:
            return known[name.lower()]
    elif isinstance(name, _kind()):
        return name
    hint = suggest(str(name), known)
    raise ArgumentError(f"[{op}] expected an encoding but got {name!r}{hint}; known are {', '.join(known)}")


def row_bytes(name: object, width: int) -> int:
    """The bytes of a row of so many elements.

    >>> row_bytes("q4_0", 64)
    36
    """
    return encoding(name).row_bytes(width)
