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
import threading
from dataclasses import dataclass
from pathlib import Path

from pyflame.core import knobs

FORMAT = "v1"
_DIGEST = 32


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
    """A folder of verified files."""

    def __init__(self, root: Path | None = None, limit_bytes: int | None = None) -> None:
        self.root = (root or knobs.cache_dir()) / FORMAT
        self.limit = knobs.CACHE_MB.integer() << 20 if limit_bytes is None else limit_bytes
        self._verified: set[str] = set()
        self._written = 0
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        return self.root / name[:2] / name

    def find(self, name: str) -> Path | None:
        """Path of an intact entry; a damaged one is removed."""
        path = self.path(name)
        if name in self._verified and path.exists():
            return path
        data = self.read(name)
        if data is None:
            return None
        self._verified.add(name)
        return path

    def read(self, name: str) -> bytes | None:
        """Content of an intact entry."""
        path = self.path(name)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        body, tail = raw[:-_DIGEST], raw[-_DIGEST:]
        if len(raw) < _DIGEST or hashlib.sha256(body).digest() != tail:
            stats.damaged += 1
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # least recently used is by modification time
        return body

    def write(self, name: str, data: bytes) -> Path:
        """Add an entry: written aside and renamed. One torn by a power cut fails its check and is made anew."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
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
        for path in self.root.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def trim(self) -> None:
        """Remove the least recently used entries until the folder is below its limit."""
        entries = self.entries()
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
