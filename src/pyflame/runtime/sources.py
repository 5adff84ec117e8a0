"""What every compiler needs: where the kernels' headers are, and how to show the source it refused."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from pyflame.core.errors import CompileError

_LINE = re.compile(r'#\s*line\s+(\d+)\s+"([^"]*)"\s*$')
# `a/file.hip:3:7: error: ...` (clang, hiprtc, gcc) and `file.hip(3): error: ...` (NVRTC)
_PLACE = re.compile(r"([^\s:()'\"/]+)(?::(\d+)(?::\d+)?|\((\d+)\)):?(.*)")
_INCLUDED = re.compile(r"(In file included)?\s*from ")  # how a line tells the way to a header, rather than a fault
_SHOWN = 2000  # characters of the compiler's words


def include_dir() -> Path:
    return Path(str(resources.files("pyflame") / "kernels" / "include"))


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for a compiler's files, which goes when the block ends. One that cannot be written is a CompileError."""
    try:
        with tempfile.TemporaryDirectory(prefix="pyflame-") as folder:
            yield Path(folder)
    except OSError as error:
        raise CompileError(
            f"[compile] expected room for a compiler's files but got: {error}; name a folder that has some in TMPDIR"
        ) from error


def explain_failure(said: str, source: str, file: str = "kernels", context: int = 3) -> str:
    """The compiler's first words, and the numbered source around the line that they name.

    `file`: what the compiler calls the source, its folder and extension aside. `#line` in the source counts.
    """
    rows = _numbered(source, file)
    shown = said.strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}\n..."
    at = _first_place(said, rows)
    if at is None:
        return shown
    name, number = at
    near = [n for n in range(number - context, number + context + 1) if (name, n) in rows]
    return f"{shown}\n" + "\n".join(f"{'>' if n == number else ' '}{n:5d} | {rows[name, n]}" for n in near)


def _numbered(source: str, file: str) -> dict[tuple[str, int], str]:
    """(file, line) -> text, as a compiler counts."""
    rows: dict[tuple[str, int], str] = {}
    number = 0
    for text in source.splitlines():
        number += 1
        directive = _LINE.match(text)
        if directive:
            number, file = int(directive[1]) - 1, directive[2].rpartition("/")[2]
        else:
            rows[file, number] = text
    return rows


def _first_place(said: str, rows: dict[tuple[str, int], str]) -> tuple[str, int] | None:
    """Where the first error is; for one in a header, where the source led to it."""
    first = None
    for line in said.splitlines():
        match = None if _INCLUDED.match(line) else _PLACE.search(line)
        if match is None:
            continue
        number = int(match[2] or match[3])
        place = next((p for p in ((match[1], number), (match[1].rpartition(".")[0], number)) if p in rows), None)
        if place is not None and " error" in match[4]:
            return place
        first = first or place
    return first
