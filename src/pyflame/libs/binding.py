"""Vendor libraries through ctypes: found by name, called by a table.

A binding is a table of plain text, `{"function": "ptr handle, i32 n, f64 epsilon"}`, with the names that the vendor's
header gives the parameters. `tests/libs` compares every table with facts read from those headers: for libraries that
cannot be run where PyFlame is developed, that comparison is what stands between a typing slip and a crash.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyflame.core.errors import ArgumentTypeError, DeviceError

WORDS: dict[str, Any] = {
    "ptr": ctypes.c_void_p,
    "i32": ctypes.c_int32,  # also every enum
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "size": ctypes.c_size_t,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "bool": ctypes.c_bool,
}


class LibraryError(DeviceError):
    """A vendor library that is missing, refuses a call or computes something else; there is always a kernel of ours."""


def parameters(declaration: str) -> list[tuple[str, str]]:
    """The (word, name) pairs of one entry of a table.

    >>> parameters("ptr handle, i32 n")
    [('ptr', 'handle'), ('i32', 'n')]
    """
    pairs = [p.split() for p in declaration.split(",") if p.strip()]
    return [(word, name) for word, name in pairs]


def _nothing() -> None:
    pass


class Library:
    """A loaded library: `call(function, ...)` for functions that return a status, `plain(...)` for the others.

    `prepare` is called before each: it may make a device current, where others work in between.
    """

    def __init__(
        self,
        name: str,
        handle: Any,
        table: Mapping[str, str],
        plain: Mapping[str, tuple[Any, str]] | None = None,
        statuses: Mapping[int, str] | None = None,
        error: type[LibraryError] = LibraryError,
    ) -> None:
        self.name = name
        self._error = error
        self.prepare: Callable[[], None] = _nothing
        self._statuses = statuses or {}
        self._functions: dict[str, Callable[..., Any]] = {}
        for function, declaration in table.items():
            self._functions[function] = self._bound(handle, function, ctypes.c_int, declaration)
        for function, (result, declaration) in (plain or {}).items():
            self._functions[function] = self._bound(handle, function, result, declaration)

    def _bound(self, handle: Any, function: str, result: Any, declaration: str) -> Callable[..., Any]:
        try:
            bound: Any = getattr(handle, function)
        except AttributeError:
            raise self._error(
                f"[{self.name}] expected the function {function} but this version of the library does not have it; "
                "install a newer one, or go on with PyFlame's own kernels"
            ) from None
        bound.argtypes = [WORDS[word] for word, _ in parameters(declaration)]
        bound.restype = result
        return bound  # type: ignore[no-any-return]

    def plain(self, function: str, *arguments: Any) -> Any:
        """Call a function that returns a value."""
        self.prepare()
        return self._functions[function](*arguments)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function that returns a status, and raise if it is not success."""
        status = self.status(function, *arguments)
        if status != 0:
            self.fail(function, status)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function whose failure is an answer: "not supported" is no error."""
        self.prepare()
        return int(self._functions[function](*arguments))

    def fail(self, function: str, status: int) -> None:
        """Raise for a status."""
        raise self._error(
            f"[{self.name}] expected {function} to succeed but got status {status} "
            f"({self._statuses.get(status, 'unknown to PyFlame')}); PyFlame's own kernels do not need this library"
        )

    def create(self, function: str, *arguments: Any) -> int:
        """Call a function that makes something and stores its address through its first parameter."""
        made = ctypes.c_void_p()
        self.call(function, ctypes.byref(made), *arguments)
        return made.value or 0

    def number(self, function: str, *arguments: Any) -> int:
        """Call a function that stores a size through its last parameter."""
        found = ctypes.c_size_t()
        self.call(function, *arguments, ctypes.byref(found))
        return found.value


def stream_handle(name: str, stream: Any) -> int:
    """The driver's handle of a stream: of a pf.Stream, or the number itself.

    >>> stream_handle("rocBLAS", 0)
    0
    """
    found = getattr(stream, "stream", stream)
    found = getattr(found, "handle", found)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ArgumentTypeError(f"[{name}] expected a pf.Stream or a stream's handle but got {stream!r}")
    return found


def statuses(constants: type, prefix: str) -> dict[int, str]:
    """Names of status codes among a library's constants."""
    return {v: k for k, v in vars(constants).items() if k.startswith(prefix)}


def find(name: str, files: Sequence[str], folders: Iterable[str], path: str | None = None) -> tuple[Any, str]:
    """Load a shared library: a given path, else pip's wheels, the vendor's folders, the dynamic loader's.

    `folders` may hold `*`. Gives the ctypes handle and the path it was loaded from.
    """
    candidates = [path] if path else [*_in_folders(files, folders), *files]
    tried = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate), candidate
        except OSError as error:
            tried.append(f"{candidate}: {error}")
    raise LibraryError(
        f"[{name}] expected to find one of {', '.join(files)} but could not load it ({'; '.join(tried)[:600]}); "
        "install it, or go on without: PyFlame's own kernels do not need it"
    )


def _in_folders(files: Sequence[str], folders: Iterable[str]) -> list[str]:
    wheels = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    roots = [os.path.join(base, f) for f in folders for base in (wheels if not f.startswith("/") else [""])]
    return [p for file in files for root in roots for p in sorted(glob.glob(os.path.join(root, file)), reverse=True)]
