"""Where AMD's libraries are: beside the HIP runtime of this process, else as AMD's own bindings find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.libs.binding import LibraryError, find
from pyflame.libs.rocm.errors import AMDLibraryMissingError
from pyflame.runtime.rocm import find as rocm


def find_rocm(name: str, short: str, files: Sequence[str], path: str | None) -> tuple[Any, str]:
    """Load `lib<short>.so`."""
    try:
        return find(name, files, (), path or rocm.resolve(short) or None)
    except LibraryError as error:
        raise AMDLibraryMissingError(str(error)) from None
