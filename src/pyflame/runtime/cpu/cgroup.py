"""What the control groups of a process leave of memory and cores; /proc/meminfo tells of the whole machine only.

A process has a group in version 2 of the hierarchy, or in version 1 one for each controller. Each group up to the root
may have a limit, and the tightest counts. In a container the group's own folder often is the mounted root itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# version: limit, use, and what of that use is cached files, which are given up when memory is short
_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_NO_LIMIT = 1 << 62  # version 1 writes nearly 2^63 for none


def free_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process's groups may still take; None where none of them has a limit.

    >>> free = free_bytes()
    >>> free is None or free >= 0
    True
    """
    left = [free for version, folder in groups("memory", root) if (free := _left(version, folder)) is not None]
    return min(left, default=None)


def limit_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process's groups may take in all; None where none of them has a limit."""
    limits = [limit for version, folder in groups("memory", root) if (limit := _limit(version, folder)) is not None]
    return min(limits, default=None)


def granted_cores(root: Path = Path("/")) -> float | None:
    """Cores that this process's groups may keep busy; None where none of them has a limit."""
    found = []
    for version, folder in groups("cpu", root):
        files = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        numbers = [_number(word) or 0 for name in files for word in _text(folder / name).split()]
        if len(numbers) == 2 and min(numbers) > 0:  # version 2 writes "max" for none, version 1 -1
            found.append(numbers[0] / numbers[1])
    return min(found, default=None)


def groups(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """The process's groups for a controller, such as memory or cpu, and those above, as (version, folder)."""
    mounts = root / "sys/fs/cgroup"
    names = dict.fromkeys([(2, ""), (1, "")])  # the mounted roots, in any case
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" and not controllers:
            names[2, name.lstrip("/")] = None
        elif controller in controllers.split(","):
            names[1, name.lstrip("/")] = None
    found: dict[tuple[int, Path], None] = {}
    for version, name in names:
        path = Path(name)
        for part in (path, *path.parents):
            if ".." not in part.parts:
                found[version, (mounts if version == 2 else mounts / controller) / part] = None
    yield from found


def _text(path: Path) -> str:
    """A file's text; nothing where it is missing, hidden, or no file."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _limit(version: int, folder: Path) -> int | None:
    limit = _number(_text(folder / _FILES[version][0]))
    return limit if limit is not None and limit < _NO_LIMIT else None


def _left(version: int, folder: Path) -> int | None:
    _, use_file, cached = _FILES[version]
    limit, use, stat = _limit(version, folder), _number(_text(folder / use_file)), _text(folder / "memory.stat")
    if limit is None or use is None or not stat:
        return None  # no limit, not this group's, or hidden
    rows = (line.split() for line in stat.splitlines())
    given_up = sum(_number(row[1]) or 0 for row in rows if len(row) == 2 and row[0] == cached)
    return max(0, limit - use + given_up)
