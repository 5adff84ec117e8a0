"""Small files of the kernel, which may vanish between two lines of a program."""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str | None:
    """Its content, or None where it is not there or must not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(path: Path, scale: float = 1.0) -> float | None:
    """Its content as a number in another unit.

    >>> number(Path("/sys/class/drm/card0/device/hwmon/hwmon4/power1_average"), 1e-6)
    73.0
    """
    content = text(path)
    try:
        return None if content is None else float(content) * scale
    except ValueError:
        return None


def whole(path: Path) -> int | None:
    found = number(path)
    return None if found is None else int(found)


def entries(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where it is not there or must not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
