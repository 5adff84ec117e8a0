"""The variables that a file sets: shell scripts, Dockerfiles, .env files, systemd units, Python programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pyflame.core.errors import FileFormatError
from pyflame.doctor.environment.assignment import Assignment
from pyflame.doctor.environment.files.lines import dockerfile, dotenv, unit
from pyflame.doctor.environment.files.python import program
from pyflame.doctor.environment.files.shell import script

Found = Iterator[tuple[str, str | None, int, str]]  # name, value, line, what came before
_LARGEST = 4 << 20  # bytes


def _reader(path: Path, text: str) -> Callable[[str], Found]:
    name = path.name.lower()
    if name.endswith(".py") or (text.startswith("#!") and "python" in text.partition("\n")[0]):
        return program
    if name.startswith(("dockerfile", "containerfile")) or name.endswith((".dockerfile", ".containerfile")):
        return dockerfile
    if name.endswith((".service", ".socket", ".timer")) or "\n[Service]" in f"\n{text}":
        return unit
    if name == ".env" or name.startswith(".env.") or name.endswith(".env"):
        return dotenv
    return script


def read_file(path: str | Path) -> list[Assignment]:
    """What a file sets, in its order.

    >>> [f"{a.where} {a.name}={a.value}" for a in read_file("setup.sh")]
    ['setup.sh:3 HSA_ENABLE_SDMA=0']
    """
    path = Path(path)
    if path.stat().st_size > _LARGEST:
        raise FileFormatError(f"[env] expected a script or settings but {path} has more than {_LARGEST >> 20} MB")
    try:
        text = path.read_text(encoding="utf-8")
        found = list(_reader(path, text)(text))
    except (UnicodeDecodeError, SyntaxError, ValueError) as error:  # ValueError: zero bytes in Python's source
        raise FileFormatError(f"[env] expected a script or settings but {path} cannot be read: {error}") from error
    return [Assignment(name, value, f"{path}:{line}", late) for name, value, line, late in found]
