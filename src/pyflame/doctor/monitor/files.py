"""Small files of the kernel, which may vanish between two lines of a program."""

from __future__ import annotations

import re
from pathlib import Path


def text(path: Path) -> str | None:
    """Its content, or None where it is not there or must not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(path: Path, scale: float = 1.0) -> float | None:
    """Its content, a whole number, in another unit.

    >>> number(Path("/sys/class/drm/card0/device/hwmon/hwmon4/power1_average"), 1e-6)
    73.0
    """
    found = whole(path)
    return None if found is None else found * scale


def whole(path: Path) -> int | None:
    """Its content as a whole number; the driver writes no others."""
    content = text(path) or ""
    return int(content) if re.fullmatch(r"-?\d{1,20}", content) else None


def entries(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where it is not there or must not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
