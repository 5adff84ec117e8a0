"""Kernels that come with a wheel: used where they fit, and never where plans lay out panels otherwise."""

from __future__ import annotations

import ctypes
import importlib.util
from itertools import combinations
from pathlib import Path

import pytest

from pyflame.core import knobs
from pyflame.kernels.matmul import isa_of
from pyflame.runtime.cache import DiskCache, stats
from pyflame.runtime.cpu import prebuilt
from pyflame.runtime.cpu.compiler import CompilerC, cpu_flags, find_compiler, kernel_files, level_flags

LEVELS = {name: level for levels in prebuilt.LEVELS.values() for name, level in levels.items()}
TEXT = "int PF_KEY_seven(void) { return 7; }\n"

_spec = importlib.util.spec_from_file_location("prebuild", Path(__file__).parents[2] / "tools" / "prebuild.py")
assert _spec is not None and _spec.loader is not None
prebuild = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(prebuild)


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_is_what_plans_take_its_instruction_sets_for(name: str) -> None:
    marks, used = LEVELS[name]
    assert prebuilt.level_of(used) == isa_of(set(used)) == name and set(marks) <= set(used)


@pytest.mark.parametrize("machine", prebuilt.LEVELS)
def test_no_cpu_gets_kernels_with_other_panels(machine: str) -> None:
    names = sorted({name for _, used in prebuilt.LEVELS[machine].values() for name in used})
    for count in range(len(names) + 1):
        for isa in combinations(names, count):
            assert prebuilt.level_of(isa) in (None, isa_of(set(isa)))


def test_longer_vectors_get_no_kernels_of_shorter_ones() -> None:
    neon = prebuilt.LEVELS["aarch64"]["neon_mmla"][1]
    assert prebuilt.level_of((*neon, "sve256")) == "sve256_mmla"
    assert prebuilt.level_of((*neon, "sve512")) is None
    assert prebuilt.level_of(("asimd", "sve256")) is None
    assert "-msve-vector-bits=256" in level_flags("sve256_mmla")
    assert not any("sve" in flag for flag in level_flags("neon_mmla"))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel's library for this CPU with one kernel in it."""
    compiler, level = find_compiler(), prebuilt.level_of(cpu_flags())
    assert compiler is not None and level is not None
    monkeypatch.setattr(prebuilt, "folder", lambda: tmp_path)
    path = tmp_path / prebuilt.library_name(level, level_flags(level), kernel_files())
    path.write_bytes(prebuilt.signed(prebuild.build(compiler, level, [TEXT])))
    return path


def seven(folder: Path) -> int:
    """What the kernel gives from a compiler with an empty cache; gives how many it compiled."""
    compiler = find_compiler()
    assert compiler is not None
    before = stats.compiles
    ((address,),) = CompilerC(compiler, DiskCache(folder / "cache")).functions([(TEXT, ("_seven",))])
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 7
    return stats.compiles - before


def test_what_fits_is_not_compiled(library: Path, tmp_path: Path) -> None:
    assert seven(tmp_path) == 0


def test_a_damaged_library_is_not_used(library: Path, tmp_path: Path) -> None:
    raw = bytearray(library.read_bytes())
    raw[len(raw) // 2] ^= 1
    library.unlink()
    library.write_bytes(raw)
    assert seven(tmp_path) == 1


def test_flags_of_ones_own_are_obeyed(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.CPU_FLAGS.name, "-O1")
    assert seven(tmp_path) == 1


def test_programs_need_kernels_of_every_file(tmp_path: Path) -> None:
    """Those that a wheel brings are the texts that plans for its level have: no file of kernels was left out."""
    level, (_, isa) = next(iter(prebuilt.LEVELS["aarch64"].items()))
    texts = prebuild.texts_for(level, isa)
    for file in ("attention", "conv", "cumulative", "matmul", "pool", "scatter", "sort"):
        assert any(f'"{file}.c"' in text for text in texts), file
