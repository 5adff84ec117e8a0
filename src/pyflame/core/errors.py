"""The typed errors of PyFlame. Each also is the builtin exception a Python user would catch.

Messages read `[op] expected ... but got ...` and end with the way out.
"""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Iterable


class PyFlameError(Exception):
    """Base of all errors raised by PyFlame on purpose."""


class ShapeError(PyFlameError, ValueError):
    """Shapes, axes or sizes that do not fit together."""


class DTypeError(PyFlameError, TypeError):
    """An element type that an operation does not take."""


class ArgumentError(PyFlameError, ValueError):
    """An argument with the right type and a value that has no meaning."""


class ArgumentTypeError(PyFlameError, TypeError):
    """An argument of a type that an operation cannot use, or too many or too few of them."""


class DeviceError(PyFlameError, RuntimeError):
    """A device that is absent, not supported, or not the one the data lives on."""


class DeviceNameError(PyFlameError, ValueError):
    """A device string that names nothing."""


class IndexError(PyFlameError, builtins.IndexError):
    """An index outside of its axis, found when the data was read."""


class CompileError(PyFlameError, RuntimeError):
    """The compiler refused a kernel; the message shows the source around the failing line."""


class OutOfMemoryError(PyFlameError, MemoryError):
    """A device has no memory left; the message tells what was asked, held, cached and free."""


class TraceError(PyFlameError, RuntimeError):
    """A traced function asked for a value that exists only when the plan runs."""


class GradientError(PyFlameError, RuntimeError):
    """A backward pass that cannot be done."""


class FileFormatError(PyFlameError, ValueError):
    """A file that is damaged, cut off or of another format; the message names it."""


class StateDictError(PyFlameError, RuntimeError):
    """Saved state whose names or shapes are not those of the object it should go into."""


def suggest(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
