"""What every reader and writer of files needs: names that stay in their folder, and JSON that may be hostile."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError, FileFormatError

MAX_JSON = 256 << 20  # bytes; files of ours are far smaller


def plain_name(op: str, name: str) -> str:
    """The name, which must be that of a file in a folder and lead nowhere else.

    >>> plain_name("save", "model")
    'model'
    """
    if not name or name in (".", "..") or set(name) & {"/", "\\", "\0"}:
        raise ArgumentError(f"[{op}] expected a plain file name but got {name!r}; leave out folders and separators")
    return name


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file. What is no such file is a ValueError, before anything is read of what is too large."""
    return parse_json(read_file(path, MAX_JSON))


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The content of a file of at most `limit` bytes, which is checked before any is read."""
    size = check_regular(path).st_size
    if limit is not None and size > limit:
        raise FileFormatError(f"[file] expected at most {limit:,} bytes but {path} has {size:,}")
    return path.read_bytes()


def check_regular(path: Path) -> os.stat_result:
    """Refuse a pipe or a device, which may never end. Opening a folder is refused by the system."""
    status = os.stat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise FileFormatError(f"[file] expected a file but {path} is a pipe or a device")
    return status
