"""The source lines of instructions, from the debug information that -g leaves in a code object."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable

from pyflame.runtime.sources import scratch_folder

_OLDEST, _NEWEST = 17, 40  # versions of llvm-symbolizer looked for by name, as of llvm-objdump

Frame = tuple[str, int]  # a file and a line in it


def find_symbolizer() -> str | None:
    names = [*(f"llvm-symbolizer-{n}" for n in range(_NEWEST, _OLDEST - 1, -1)), "llvm-symbolizer"]
    return next(filter(None, map(shutil.which, names)), None)


def source_frames(code: bytes, addresses: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """address -> where it comes from, then the lines that it was inlined into; nothing for what has no line.

    >>> source_frames(code, [0x1a40])  # doctest: +SKIP
    {6720: (('/home/me/reduce.hip', 12), ('/home/me/reduce.hip', 40))}
    """
    tool = find_symbolizer() if b".debug_line\0" in code else None
    if tool is None:
        return {}
    with scratch_folder() as folder:
        file = folder / "kernels.hsaco"
        file.write_bytes(code)
        done = subprocess.run(
            [tool, f"--obj={file}", "--functions=none", "--output-style=JSON"],
            input="\n".join(map(hex, addresses)), capture_output=True, text=True, check=False,
        )  # fmt: skip
    found: dict[int, tuple[Frame, ...]] = {}
    for row in done.stdout.splitlines():
        told = json.loads(row)
        frames = tuple((s["FileName"], s["Line"]) for s in told.get("Symbol", ()) if s["FileName"] and s["Line"])
        if frames:
            found[int(told["Address"], 16)] = frames
    return found
