"""Where AMD's libraries are: as AMD's own bindings find them, else in /opt/rocm."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from pyflame.libs.binding import LibraryError, find
from pyflame.libs.rocm.errors import AMDLibraryMissingError

FOLDERS = ("_rocm_sdk_libraries*/lib", "_rocm_sdk_core/lib", "/opt/rocm/lib", "/opt/rocm-*/lib")


def find_rocm(name: str, short: str, files: Sequence[str], path: str | None) -> tuple[Any, str]:
    """Load `lib<short>.so`. AMD's resolver knows ROCM_PATH and the wheels of the day; it comes with the bindings."""
    if path is None:
        try:
            paths = importlib.import_module("rocm.bindings.util.paths")
        except ImportError:
            pass  # without the bindings there are still the usual folders
        else:
            resolved = os.fsdecode(paths.get_library_path(short))
            path = resolved if os.path.exists(resolved) else None
    try:
        return find(name, files, FOLDERS, path)
    except LibraryError as error:
        raise AMDLibraryMissingError(str(error)) from None
