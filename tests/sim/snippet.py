"""Runs a few lines of AMD assembly on the simulator with given registers, and gives the registers after them."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.decode.decoder import Decoder
from pyflame.runtime.sim.decode.inst import EXEC, ROWS, VCC, Counts, Fault, Inst, Launch, Program
from pyflame.runtime.sim.decode.text import read_listing
from pyflame.runtime.sim.interpreter import interpreter
from pyflame.runtime.sim.memory import Memory

LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
# Tests of instructions run on one target of each kind; on its relatives when there is time.
each_target = pytest.mark.parametrize(
    "target", [t if t in ("gfx942", "gfx1100") else pytest.param(t, marks=pytest.mark.thorough) for t in LANES]
)
ALL = {64: 0xFFFFFFFFFFFFFFFF, 32: 0xFFFFFFFF}
MODE = 0x3F0  # denormals on, round to nearest, DX10 clamp, IEEE


class Stopped(Exception):
    """A fault before the end of the text."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"fault {fault.kind} in instruction {fault.inst} of {text!r}")
        self.fault = fault


@dataclass
class State:
    """Registers: s (128 words) and v (rows x lanes, words; row 256 is a0). counts: one per instruction, with COUNT."""

    s: Any
    v: Any
    counts: Any = None

    @property
    def vcc(self) -> int:
        return int(self.s[VCC]) | int(self.s[VCC + 1]) << 32

    @property
    def exec(self) -> int:
        return int(self.s[EXEC]) | int(self.s[EXEC + 1]) << 32

    def pair(self, row: int) -> Any:
        """Two rows as 64-bit values."""
        return self.v[row].astype(np.uint64) | self.v[row + 1].astype(np.uint64) << np.uint64(32)


def tool(name: str) -> str:
    found = next(filter(None, (shutil.which(n) for n in (f"{name}-22", name))), None)
    assert found, f"expected {name}-22 of Debian's llvm-22"
    return found


@functools.cache
def assemble(target: str, text: str) -> Any:
    """The decoded instructions of some assembly, by LLVM's assembler and disassembler."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.o")
        subprocess.run(
            [tool("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", "-o", out],
            input=text + "\ns_endpgm\n", text=True, check=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        listing = subprocess.run(
            [tool("llvm-objdump"), "-d", f"--mcpu={target}", out], capture_output=True, text=True, check=True
        ).stdout
    lines, _ = read_listing(listing)
    decoder = Decoder(interpreter(LANES[target]).forms, target)
    insts, numbers = [], {}
    for halves in lines:
        numbers[halves[0].address] = len(insts)
        insts += decoder.decode(halves)
    table = (Inst * len(insts))(*insts)
    for inst in table:
        if inst.target:
            inst.target = numbers[inst.target]
    return table


def run(
    target: str, text: str, v: dict[int, Any] | None = None, s: dict[int, Any] | None = None, *,
    exec: int | None = None, vcc: int = 0, memory: Memory | None = None, mode: int = MODE, lds_bytes: int = 0,
    scratch_bytes: int = 0, checks: int = 0,
) -> State:  # fmt: skip
    """Registers after the text. v: row -> one word per lane (or one for all); s: number -> word."""
    lanes = LANES[target]
    insts = assemble(target, text)
    before = np.zeros(128 + ROWS * lanes, np.uint32)
    rows = before[128:].reshape(ROWS, lanes)
    for n, values in (v or {}).items():
        rows[n] = np.asarray(values).astype(np.uint32) if np.ndim(values) == 0 else np.asarray(values).view(np.uint32)
    for n, word in (s or {}).items():
        before[n] = word
    on = ALL[lanes] if exec is None else exec
    before[EXEC], before[EXEC + 1] = on & 0xFFFFFFFF, on >> 32
    before[VCC], before[VCC + 1] = vcc & 0xFFFFFFFF, vcc >> 32
    after = np.zeros_like(before)
    launch = Launch()
    program = Program(insts, len(insts), None, 0, 0, 0)
    launch.program = ctypes.pointer(program)
    launch.grid = launch.block = (1, 1, 1)
    launch.block[0] = lanes
    launch.vgprs, launch.mode, launch.generation, launch.checks = ROWS, mode, int(target[3:-2]), checks
    launch.lds_bytes, launch.scratch_bytes = lds_bytes, scratch_bytes
    launch.step_limit = 100_000
    spans = None
    if memory is not None:
        spans, launch.span_count = memory.spans()
        launch.spans = ctypes.addressof(spans)
    launch.start_state, launch.stop_state = before.ctypes.data, after.ctypes.data
    stops = (ctypes.c_uint8 * len(insts))(*[0] * (len(insts) - 1), 1)
    launch.stops = ctypes.addressof(stops)
    launch.counts = counts = (Counts * len(insts))()
    status = interpreter(lanes).run(launch)
    if status != 3:
        raise Stopped(launch.fault, text)
    return State(after[:128], after[128:].reshape(ROWS, lanes), counts)
