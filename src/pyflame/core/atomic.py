"""Files that are either whole or not there: written aside, flushed to the disk and renamed.

A rename within one folder is atomic, so a reader sees the old content or the new one, never a part. The content is
synced before the rename and the folder after it, so this holds across a power cut too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp-"  # how names of unfinished files and folders start


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file or a folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to within a `with` block; what was written takes the place of `path` at its end.

    After an error the temporary file is gone and `path` is as it was.

    >>> with atomic_path("notes.txt") as temporary:
    ...     temporary.write_text("whole or not at all")
    """
    target = Path(os.path.realpath(path))  # through a link, as writing to it would go
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(target.parent))
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    # Made here for its permissions: those of the file it replaces, or the user's default.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        permissions = (target if target.exists() else temporary).stat().st_mode & 0o7777
        yield temporary
        os.chmod(temporary, permissions)
        sync(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(target.parent)


def write_atomic(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replace a file's content by this, whole or not at all. Text is written as UTF-8.

    >>> write_atomic("config.json", "{}")
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
