"""What the control group of a container leaves of memory; /proc/meminfo tells of the whole machine only.

A process has a group in version 2 of the hierarchy, or in version 1 under `memory`. Each group up to the root may have
a limit, and the tightest counts. In a container the group's own folder often is the mounted root itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# version: limit, use, and what of that use is cached files, which are given up when memory is short
_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process's groups may still take; None where none of them has a limit.

    >>> free = free_bytes()
    >>> free is None or free >= 0
    True
    """
    left = [free for version, folder in _groups(root) if (free := _left(version, folder)) is not None]
    return min(left, default=None)


def _groups(root: Path) -> Iterator[tuple[int, Path]]:
    """The process's groups and those above, as (version, folder)."""
    mounts = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return  # no Linux, or no groups
    for line in lines:
        number, controllers, name = line.split(":", 2)
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        top = mounts if version == 2 else mounts / "memory"
        path = Path(name.lstrip("/"))
        for part in (path, *path.parents):
            if ".." not in part.parts:
                yield version, top / part


def _left(version: int, folder: Path) -> int | None:
    limit_file, use_file, cached = _FILES[version]
    try:
        limit, use = (folder / limit_file).read_text().strip(), int((folder / use_file).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None  # not this group's, or hidden
    if limit == "max" or int(limit) >= 1 << 62:  # version 1 writes nearly 2^63 for none
        return None
    return max(0, int(limit) - use + int(stat.get(cached, 0)))
