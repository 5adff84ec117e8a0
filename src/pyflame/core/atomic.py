"""Files that are either whole or not there: written aside, flushed to the disk and renamed.

A rename within one folder is atomic, so a reader sees the old content or the new one, never a part. The content is
synced before the rename and the folder after it, so this holds across a power cut too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp-"  # how names of unfinished files and folders start
_ABANDONED = 60.0  # seconds: a file is made before its lock is taken


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
    temporary, handle = _unfinished(target)
    try:
        permissions = (target if target.exists() else temporary).stat().st_mode & 0o7777
        yield temporary
        os.chmod(temporary, permissions)
        sync(temporary)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from None  # what the user knows it by
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    sync(target.parent)


def _unfinished(target: Path) -> tuple[Path, int]:
    """A new file beside `target`, with the user's default permissions, and a handle that holds its lock.

    Its name follows from the target's, so that the next write finds what a killed process has left; another process
    that writes to the same target at this moment takes a random one.
    """
    temporary = target.with_name(TEMPORARY + hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16])
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    _remove_abandoned(temporary)
    try:
        handle = os.open(temporary, flags, 0o666)
    except FileExistsError:
        temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        handle = os.open(temporary, flags, 0o666)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody removes it
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return temporary, handle


def _remove_abandoned(path: Path) -> None:
    """Remove an unfinished file of ours whose process is gone: it is old and nobody holds its lock."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # there is none, or it is another's
    try:
        status = os.fstat(handle)
        if status.st_uid == os.geteuid() and status.st_mtime < time.time() - _ABANDONED:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(status, os.lstat(path)):  # nobody was faster
                os.unlink(path)
    except OSError:
        return  # in use, or a file system without locks: it stays
    finally:
        os.close(handle)


def write_atomic(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replace a file's content by this, whole or not at all. Text is written as UTF-8.

    >>> write_atomic("config.json", "{}")
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
