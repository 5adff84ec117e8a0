"""Where compiled kernels and measurements are kept between processes.

What lies there is loaded and run, so it must be a folder that nobody else may write to, nor to any folder above it. One
that is not, and one that cannot be made or written, is replaced by a temporary folder of this process, with a warning:
computing goes on, and compiles again next time.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import grp
import os
import pwd
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

from pyflame.core.errors import CompileError
from pyflame.core.knobs import CACHE_DIR
from pyflame.core.locks import rlock

_PREFIX = "pyflame-cache-"
_LOCK = ".lock"  # in a temporary folder: held while its process lives
_dirs: dict[str, list[Path]] = {}  # what was asked for -> the folders in use
_private: list[Path] = []  # this process's temporary folder, the newest last
_locked: list[int] = []  # handles that hold the locks of these
_guard = rlock()


def cache_dir() -> Path:
    """The folder that compiled kernels are written to.

    >>> cache_dir().is_dir()
    True
    """
    return cache_dirs()[0]


def cache_dirs(wanted: Path | None = None) -> list[Path]:
    """The folders to look in, the first of which is written to. A live list: `use_private` puts another first.

    More than one: the one asked for is sound but cannot be written.
    """
    asked = str(wanted) if wanted is not None else CACHE_DIR.text()
    with _guard:
        if asked not in _dirs:
            _dirs[asked] = _opened(asked)
        return _dirs[asked]


def _users_folder() -> Path:
    import platformdirs  # imported here: it is needed by the first compile only

    try:
        folder = Path(platformdirs.user_cache_dir("pyflame", appauthor=False))
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from None
    if not folder.is_absolute():  # older versions leave the ~ of a user without a home
        raise FileNotFoundError(f"there is no home directory for {folder}")
    return folder


def _opened(asked: str) -> list[Path]:
    dirs: list[Path] = []
    try:
        folder = Path(os.path.abspath(os.path.expanduser(asked))) if asked else _users_folder()
        make_private(folder)
        reason = distrust(folder)
        if not reason:
            folder = Path(os.path.realpath(folder))  # once: a link may lead elsewhere later
            dirs.append(folder)
            reason = "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"
    except OSError as error:
        reason = str(error)
    if reason:
        use_private(dirs, reason)
    return dirs


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    for place in reversed((folder, *folder.parents)):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)


def distrust(path: Path) -> str:
    """Why somebody else could have put there what lies at a path, or at its place later; empty if nobody could."""
    real = Path(os.path.realpath(path))
    for place in dict.fromkeys((path, *path.parents, real, *real.parents)):
        reason = distrust_status(place, os.lstat(place), above=place not in (path, real))
        if reason:
            return reason
    return ""


def distrust_status(place: Path, status: os.stat_result, above: bool = False) -> str:
    """As `distrust`, of one file or folder; `above`: of a folder that matters for what is in it alone."""
    if status.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode):
        return ""  # a link's mode says nothing
    if above and status.st_mode & stat.S_ISVTX:
        return ""  # like /tmp: nobody may rename or remove what is not theirs
    if status.st_mode & 0o002 or (status.st_mode & 0o020 and not _own_group(status.st_gid)):
        return f"others may write to {place} (mode {stat.S_IMODE(status.st_mode):04o}; chmod go-w takes that away)"
    return ""


def _own_group(number: int) -> bool:
    """Whether a group is this user alone, as many systems give each user one of the same name."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def use_private(dirs: list[Path], reason: str, *, forget: bool = False) -> None:
    """Write to a temporary folder of this process from now on, and say so. `forget`: do not read the others either."""
    with _guard:
        before = list(dirs)
        try:
            folder = _private_folder()
        except OSError as error:
            raise CompileError(
                f"[cache] expected a folder for compiled kernels but {reason}, and no temporary one ({error}); "
                f"name one that can be written in {CACHE_DIR.name}, or in TMPDIR"
            ) from None
        dirs[:] = [folder, *(() if forget else [d for d in before if d != folder])]
    if before[:1] != [folder]:
        warnings.warn(
            f"[cache] expected a folder for compiled kernels that this user alone can write but {reason}. They go to "
            f"{folder} and are lost when this process ends; mend that, or name another folder in {CACHE_DIR.name}",
            RuntimeWarning,
            stacklevel=2,
        )


def _private_folder() -> Path:
    if not _private or not _private[-1].is_dir():  # it may have been tidied away
        _sweep()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _locked.append(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600))
        with contextlib.suppress(OSError):  # no locks there: nobody sweeps it then
            fcntl.flock(_locked[-1], fcntl.LOCK_SH)
        atexit.register(_remove, folder, os.getpid())
        _private.append(folder)
    return _private[-1]


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a fork goes on using its parent's
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove such folders of this user's processes that were killed: nobody holds their locks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or just gone
            if folder.lstat().st_uid != os.geteuid():
                continue
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)
