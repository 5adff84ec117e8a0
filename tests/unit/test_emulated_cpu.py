"""Kernels for vectors that this CPU lacks, run by QEMU (Debian: qemu-user) and held against NumPy: tests/qemu.py.

SVE was never run on hardware here.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.runtime.cpu import arm
from tests.needs import need

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="this machine's compiler makes no such kernels")

Array = np.ndarray[Any, Any]
MAX = "asimd asimddp asimdfhm asimdhp atomics bf16 i8mm"
# What QEMU calls a CPU, and what it has.
CPUS = {
    "sve256_mmla": ("max,sve256=on,pauth-impdef=on", f"{MAX} sve256"),  # as Neoverse V1
    "sve512": ("a64fx", "asimd asimdhp atomics sve512"),
    "neon_mmla": ("max,sve128=on,pauth-impdef=on", MAX),  # as Neoverse V2, whose SVE is as long as NEON
    "sve512_mmla": ("max,sve512=on,pauth-impdef=on", f"{MAX} sve512"),
}
RARE = {
    "sve256": (CPUS["sve256_mmla"][0], "asimd asimddp asimdhp atomics sve256"),
    "neon": ("max,sve=off,pauth-impdef=on", "asimd"),
}
TOLERANCE = {"float64": 1e-14, "float16": 2e-3, "bfloat16": 1e-2}  # others: 3e-6
some = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if list(CPUS).index(n) < 3 else pytest.mark.thorough) for n in CPUS]
)
every = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.thorough) for n in CPUS | RARE])


def results(folder: Path, which: str, name: str = "", **environment: str) -> tuple[str, dict[str, Array]]:
    """The instruction set that products were planned for, and results."""
    cpu, isa = (CPUS | RARE)[name] if name else ("", "")
    given = [str(folder / "out.npz"), which, *([cpu, *isa.split()] if cpu else [])]
    command = [sys.executable, "-W", "ignore", "-m", "tests.qemu", *given]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(folder / "out.npz") as found:
        return done.stdout.strip(), dict(found)


def check(folder: Path, which: str, name: str) -> None:
    need(shutil.which("qemu-aarch64"), "qemu-aarch64 (Debian: qemu-user)")
    planned, got = results(folder, which, name)
    _, wanted = results(folder, which, PYFLAME_CC="none")  # NumPy's
    assert planned == name and list(got) == list(wanted)
    for program, want in wanted.items():
        kind = program.rsplit(".", 1)[-1]
        error, scale = np.abs(got[program] - want).max(), np.abs(want).max()
        assert error <= TOLERANCE.get(kind, 3e-6) * scale, (program, error, scale)


@some
def test_programs(name: str, tmp_path: Path) -> None:
    check(tmp_path, "some", name)


@every
def test_all_programs(name: str, tmp_path: Path) -> None:
    check(tmp_path, "every", name)


@some
def test_features(name: str) -> None:
    """The real ones, as Linux tells a process: there Python is emulated, for a second and without PyFlame."""
    qemu = need(shutil.which("qemu-aarch64"), "qemu-aarch64 (Debian: qemu-user)")
    cpu, isa = CPUS[name]
    done = subprocess.run([qemu, "-cpu", cpu, sys.executable, "-S", "-E", arm.__file__], capture_output=True, text=True)
    assert done.stdout.split() == isa.split(), done.stderr
