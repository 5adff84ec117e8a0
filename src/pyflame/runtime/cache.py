"""Compiled code on disk: content-addressed, verified on read, written atomically, trimmed by size.

Every file ends in the SHA-256 of what stands before it (the dynamic loader ignores bytes behind an ELF), so a torn or
altered entry is seen and made anew. Names are hashes of source, options, resolved ISA flags and compiler version, so
entries never need to be invalidated. Any number of processes may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyflame.core import knobs
from pyflame.core.atomic import TEMPORARY
from pyflame.core.cache_folder import cache_dirs, distrust_status, make_private, use_private
from pyflame.core.files import plain_name
from pyflame.core.locks import lock

FORMAT = "v1"
_DIGEST = 32
_ABANDONED = 3600.0  # seconds after which an unfinished file is that of a dead process


@dataclass
class CompileStats:
    """Counters of this process: kernels asked for, found in memory or on disk, compiled, and entries found damaged."""

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    damaged: int = 0
    compiles: int = 0
    compile_seconds: float = 0.0


stats = CompileStats()


def digest(*parts: str | bytes) -> str:
    """A short name for content."""
    h = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()[:40]


class DiskCache:
    """Verified files, in the folders of `cache_dirs(root)`. Nothing about them stops a program: where they cannot be
    read or written, code is compiled again, and a warning tells."""

    def __init__(self, root: Path | None = None, limit_bytes: int | None = None) -> None:
        self._folders = cache_dirs(root)
        self.limit = knobs.CACHE_MB.integer() << 20 if limit_bytes is None else limit_bytes
        self._verified: set[Path] = set()
        self._written = 0
        self._lock = lock()

    @property
    def root(self) -> Path:
        """Where entries are written."""
        return self._folders[0] / FORMAT

    def path(self, name: str) -> Path:
        """Where an entry is written."""
        return _place(self._folders[0], name)

    def find(self, name: str) -> Path | None:
        """Path of an intact entry; a damaged one is removed."""
        for path in self._trusted(name):
            if path in self._verified and path.exists():
                return path
            if self._read(path) is not None:
                self._verified.add(path)
                return path
        return None

    def read(self, name: str) -> bytes | None:
        """Content of an intact entry."""
        return next((body for path in self._trusted(name) if (body := self._read(path)) is not None), None)

    def _trusted(self, name: str) -> Iterator[Path]:
        """Where an entry may be. A folder that others have come to write to since it was opened is given up."""
        for folder in list(self._folders):
            path = _place(folder, name)
            try:  # what is above the folder was looked at when it was opened, and is ours or root's to change
                reasons = [distrust_status(place, os.lstat(place)) for place in (folder, folder / FORMAT, path.parent)]
            except OSError:  # it is not there, or cannot be looked at
                continue
            reason = next(filter(None, reasons), "")
            if reason:
                use_private(self._folders, reason, forget=True)
                return
            yield path

    def _read(self, path: Path) -> bytes | None:
        try:
            with open(path, "rb", opener=_open_plain) as file:
                reason = distrust_status(path, os.fstat(file.fileno()))
                raw = b"" if reason else file.read()
        except OSError:
            return None
        body, tail = raw[:-_DIGEST], raw[-_DIGEST:]
        if len(raw) < _DIGEST or hashlib.sha256(body).digest() != tail:
            stats.damaged += 1
            if reason:
                warnings.warn(f"[cache] {reason}: it is not used", RuntimeWarning, stacklevel=3)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # least recently used is by modification time
        return body

    def write(self, name: str, data: bytes) -> Path | None:
        """Add an entry: written aside and renamed. One torn by a power cut fails its check and is made anew.

        Where there is no room, or no right to write, a temporary folder takes it; None: that has no room either.
        """
        try:
            return self._store(name, data)
        except OSError as error:
            self.retreat(f"{error} ({self.root})")
        try:
            return self._store(name, data)
        except OSError as error:
            warnings.warn(f"[cache] {self.root} takes no more ({error}): nothing is kept", RuntimeWarning, stacklevel=2)
            return None

    def retreat(self, reason: str) -> None:
        """Write to a temporary folder from now on."""
        use_private(self._folders, reason)

    def _store(self, name: str, data: bytes) -> Path:
        path = self.path(name)
        make_private(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.write(hashlib.sha256(data).digest())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        with self._lock:
            self._written += len(data)
            if self._written > self.limit // 16 or self._written == len(data):
                self._written = 1
                self.trim()
        return path

    def entries(self) -> list[tuple[float, int, Path]]:
        """(time of last use, size, path) of every entry."""
        found = []
        with contextlib.suppress(OSError):  # somebody removes the folder
            for path in self.root.glob("??/*"):
                with contextlib.suppress(OSError):  # or the file
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def trim(self) -> None:
        """Remove the least recently used entries until the folder is below its limit, and what crashes left."""
        entries = self.entries()
        for used, _, path in entries:
            if path.name.startswith(TEMPORARY) and used < time.time() - _ABANDONED:
                with contextlib.suppress(OSError):
                    path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def clear(self) -> int:
        """Remove everything; gives the bytes freed."""
        freed = 0
        for _, size, path in self.entries():
            with contextlib.suppress(OSError):
                path.unlink()
                freed += size
        self._verified.clear()
        return freed


def _place(folder: Path, name: str) -> Path:
    return folder / FORMAT / plain_name("cache", name)[:2] / name


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a link, or a pipe that nobody writes to, is no entry
