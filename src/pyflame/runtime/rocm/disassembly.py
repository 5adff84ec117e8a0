"""What a kernel's machine code does: matrix instructions and the widths of its loads, as llvm-objdump shows them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field

from pyflame.core.errors import CompileError
from pyflame.runtime.rocm.loops import Loop, inner_loops
from pyflame.runtime.sources import scratch_folder

_OLDEST, _NEWEST = 17, 40  # versions looked for by name, as for clang
_ROCM_OBJDUMP = "/opt/rocm/llvm/bin/llvm-objdump"
_LABEL = re.compile(r"^(?:[0-9a-f]+ )?<((?!L\d+>).+)>:$")  # of a function, not of a place in it
_INSTRUCTION = re.compile(r"^\s+([a-z]\w+)")
_MATRIX = re.compile(r"v_(s?mfmac?|wmma|swmmac)_")
_LOAD = re.compile(r"(global|flat)_load_(\w+)")
_UNKNOWN = 0


@dataclass
class Instructions:
    """Counts of one kernel, as they stand in its code (a loop's body counts once)."""

    matrix: int = 0
    loads: Counter[int] = field(default_factory=Counter)  # bytes per lane -> loads from global memory; 0: not known
    loop: Loop = field(default_factory=dict)  # the inner loop


def find_objdump() -> str | None:
    """Path of an llvm-objdump, or None; newest first, as it must know the target."""
    names = [*(f"llvm-objdump-{n}" for n in range(_NEWEST, _OLDEST - 1, -1)), "llvm-objdump", _ROCM_OBJDUMP]
    return next((path for path in map(shutil.which, names) if path), None)


def read_instructions(code: bytes, objdump: str) -> dict[str, Instructions]:
    """Function name -> its counts."""
    listing = disassemble(code, objdump, "--no-show-raw-insn", "--no-leading-addr", "--symbolize-operands")
    found = parse(listing)
    for name, loop in inner_loops(listing).items():
        found[name].loop = loop
    return found


def disassemble(code: bytes, objdump: str, *options: str) -> str:
    """The listing of a code object."""
    with scratch_folder() as folder:
        file = folder / "kernels.hsaco"
        file.write_bytes(code)
        done = subprocess.run(
            [objdump, "--disassemble", *options, str(file)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CompileError(f"[disassemble] {objdump} refused a code object: {done.stderr.strip()[:500]}")
    return done.stdout


def parse(text: str) -> dict[str, Instructions]:
    """The counts in a listing of llvm-objdump."""
    found: dict[str, Instructions] = {}
    current = Instructions()
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            current = found.setdefault(label[1], Instructions())
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            continue
        name = instruction[1]
        if _MATRIX.match(name):
            current.matrix += 1
        load = _LOAD.match(name)
        if load:
            current.loads[width(load[2])] += 1
    return found


def width(form: str) -> int:
    """Bytes that a load of this form gives a lane: 16 of dwordx4 and b128, 2 of ushort and d16_b16; 0: not known."""
    dwords = re.search(r"dword(?:x(\d+))?", form)
    if dwords:
        return 4 * int(dwords[1] or 1)
    bits = re.search(r"(?:^|_)[bui](\d+)", form)
    if bits:
        return int(bits[1]) // 8
    return 2 if "short" in form else 1 if "byte" in form else _UNKNOWN
