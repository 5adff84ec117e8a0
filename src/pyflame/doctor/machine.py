"""What checks may ask of a machine: files below a root folder, the environment, groups, and programs to run.

The root is `/`, or a folder that holds a copy of another machine's files (`/sys`, `/proc`, `/dev`, `/opt/rocm`, ...).
Of a copy the environment and the groups are read from `proc/self/environ` and `proc/self/status`, and nothing runs.
Reading never raises: what is missing or unreadable is empty.
"""

from __future__ import annotations

import glob
import importlib
import os
import platform
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST = 1 << 22  # bytes of a file that are looked at
_LINKS = 16
# Where Python packages lie in a copy of a machine.
_PACKAGES = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/local/lib/python3*/*-packages",
    "/opt/*/lib/python3*/site-packages",
)


@dataclass(frozen=True)
class Ran:
    """How a program ended and what it printed. 127: it could not be started, 124: it took too long."""

    status: int
    text: str


Run = Callable[[Sequence[str], float], Ran]


def run_program(command: Sequence[str], seconds: float) -> Ran:
    """Run a program of this machine.

    >>> run_program(["true"], 5.0).status
    0
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
            check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ran(124, f"no answer within {seconds:.0f} s")
    except OSError as error:
        return Ran(127, str(error))
    return Ran(done.returncode, done.stdout.decode(errors="replace"))


def run_nothing(command: Sequence[str], seconds: float) -> Ran:
    return Ran(127, "nothing runs in a copy of a machine")


def import_error(name: str) -> str:
    """Why a package does not import; empty if it does. A broken one may raise anything.

    >>> import_error("json")
    ''
    """
    try:
        importlib.import_module(name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def open_error(path: str) -> str:
    """Why a device file cannot be opened; empty if it can. Rights alone do not tell: a container may forbid it too."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def disk_space(path: str) -> tuple[int, int]:
    """Bytes in total and free where a path lies."""
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine, or a copy of its files.

    >>> Machine().exists("/proc")
    True
    """

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uid: int = os.geteuid() if hasattr(os, "geteuid") else 0
    groups: frozenset[int] = frozenset()
    arch: str = platform.machine()
    system: str = platform.system()
    packages: tuple[str, ...] = ()  # folders of Python packages, below the root
    python: tuple[int, int] = sys.version_info[:2]
    live: bool = False  # whether it is this very machine
    run: Run = run_nothing
    import_error: Callable[[str], str] = lambda name: ""
    disk_space: Callable[[str], tuple[int, int]] = lambda path: (0, 0)
    open_error: Callable[[str], str] = lambda path: ""

    def path(self, path: str) -> str:
        """Where a path of that machine lies here. Links within a copy that say `/opt/...` mean the copy's own."""
        root = str(self.root)
        if root == "/":
            return path
        here = os.path.join(root, path.lstrip("/"))
        for _ in range(_LINKS):
            try:
                target = os.readlink(here)
            except (OSError, ValueError):
                break
            here = os.path.join(root if target.startswith("/") else os.path.dirname(here), target.lstrip("/"))
        return here

    def read(self, path: str) -> str:
        """A file's text, or nothing."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read(_MOST).decode(errors="replace")
        except (OSError, ValueError):
            return ""

    def line(self, path: str) -> str:
        """A file of one line, as those of sysfs."""
        return self.read(path).strip().partition("\n")[0].strip("\0 ")

    def number(self, path: str) -> int | None:
        """A file that holds a number, decimal or as 0x1002."""
        return as_number(self.line(path))

    def pairs(self, path: str) -> dict[str, str]:
        """A file of lines `name value` or `name: value`."""
        rows = (row.replace(":", " ", 1).split(None, 1) for row in self.read(path).splitlines())
        return {row[0]: row[1].strip() for row in rows if len(row) == 2}

    def kernel(self) -> str:
        """The release of Linux that runs."""
        told = self.line("/proc/sys/kernel/osrelease")
        return told or next(iter(self.line("/proc/version").split()[2:3]), "of unknown release")

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(self.path(path))
        except (OSError, ValueError):
            return None

    def glob(self, pattern: str) -> list[str]:
        """The paths of that machine that match, sorted."""
        return sorted(f"/{found}" for found in glob.glob(pattern.lstrip("/"), root_dir=self.root))

    def link(self, path: str) -> str:
        """The last part of what a link leads to."""
        try:
            return os.path.basename(os.readlink(os.path.join(self.root, path.lstrip("/"))))
        except (OSError, ValueError):
            return ""

    def which(self, name: str) -> str:
        """A program's path by PATH, or nothing."""
        folders = [""] if name.startswith("/") else self.env.get("PATH", "").split(":")
        places = (os.path.join(folder, name) for folder in folders if folder or name.startswith("/"))
        return next((p for p in places if (s := self.status(p)) and stat.S_ISREG(s.st_mode) and s.st_mode & 0o111), "")

    def may_use(self, status: os.stat_result) -> bool:
        """Whether this process may read and write a file, by its owner, groups and mode."""
        if self.uid == 0:
            return True
        if status.st_uid == self.uid:
            return status.st_mode & 0o600 == 0o600
        if status.st_gid in self.groups:
            return status.st_mode & 0o060 == 0o060
        return status.st_mode & 0o006 == 0o006

    def group_lines(self) -> list[tuple[str, int, list[str]]]:
        """Name, number and members of each group in /etc/group."""
        rows = (row.split(":") for row in self.read("/etc/group").splitlines())
        return [
            (row[0], int(row[2]), row[3].strip().split(",")) for row in rows if len(row) == 4 and row[2].isdecimal()
        ]

    def user(self) -> str:
        """This user's name."""
        rows = (row.split(":") for row in self.read("/etc/passwd").splitlines())
        return next((row[0] for row in rows if len(row) > 2 and row[2] == str(self.uid)), self.env.get("USER", ""))


def as_number(text: str) -> int | None:
    """A number in decimal or as 0x1f, or None.

    >>> as_number("0x1002"), as_number("12"), as_number("none")
    (4098, 12, None)
    """
    try:
        return int(text, 0) if len(text) <= 20 else None
    except ValueError:
        return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def this_machine() -> Machine:
    """The machine that this process runs on."""
    folders = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    groups = {os.getegid(), *os.getgroups()} if hasattr(os, "getgroups") else set()
    return Machine(
        groups=frozenset(groups), live=True, run=run_program, import_error=import_error, disk_space=disk_space,
        open_error=open_error,
        packages=tuple(dict.fromkeys(f for f in folders if f and os.path.isdir(f))),
    )  # fmt: skip


def recorded_machine(root: Path) -> Machine:
    """A machine whose files were copied below a folder."""
    tree = Machine(root, env={})
    rows = (row.partition("=") for row in tree.read("/proc/self/environ").replace("\n", "\0").split("\0"))
    env = {name: value for name, sign, value in rows if sign}
    status = tree.pairs("/proc/self/status")
    numbers = [as_number(n) for n in f"{status.get('Gid', '')} {status.get('Groups', '')}".split()]
    ids = status.get("Uid", "").split()
    patterns = (*_PACKAGES, *([f"{env['VIRTUAL_ENV']}/lib/python3*/site-packages"] if "VIRTUAL_ENV" in env else []))
    return Machine(
        root, env, (as_number(ids[1]) if len(ids) > 1 else None) or 0, frozenset(n for n in numbers if n is not None),
        tree.line("/proc/sys/kernel/arch") or platform.machine(), tree.line("/proc/sys/kernel/ostype") or "Linux",
        tuple(folder for pattern in patterns for folder in tree.glob(pattern)),
    )  # fmt: skip
