"""Compilers in libraries, over a module that pretends to be NVRTC."""

from __future__ import annotations

import ctypes
import enum
from pathlib import Path
from typing import Any

import pytest

from pyflame.core.errors import CompileError, HIPCompilationError, NotAvailableError
from pyflame.core.targets import TARGETS
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.cuda.compiler import Nvrtc
from pyflame.runtime.rocm import compiler as rocm_compiler


class Status(enum.IntEnum):
    SUCCESS = 0
    COMPILATION = 6


def fill(room: bytes, content: bytes) -> None:
    """Write into bytes, as NVIDIA's bindings do."""
    assert len(room) == len(content)
    ctypes.memmove(room, content, len(content))


class FakeNvrtc:
    """NVRTC whose code is the source backwards. A source with `wrong` in it has an error in that line."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.options: list[bytes] = []
        self.sources: dict[int, bytes] = {}

    def nvrtcVersion(self) -> tuple[Status, int, int]:
        return Status.SUCCESS, 13, 1

    def nvrtcCreateProgram(self, source: bytes, name: bytes, count: int, headers: Any, names: Any) -> Any:
        number = len(self.sources) + 1
        self.sources[number] = source
        self.alive.add(number)
        return Status.SUCCESS, number

    def nvrtcCompileProgram(self, program: int, count: int, options: list[bytes]) -> tuple[Status]:
        assert count == len(options)
        self.options = options
        return (Status.COMPILATION if b"wrong" in self.sources[program] else Status.SUCCESS,)

    def _log(self, program: int) -> bytes:
        lines = self.sources[program].decode().splitlines()
        at = next((n for n, line in enumerate(lines, 1) if "wrong" in line), 0)
        return f"kernels({at - 1}): error: identifier is undefined\0".encode()  # behind #line

    def nvrtcGetProgramLogSize(self, program: int) -> tuple[Status, int]:
        return Status.SUCCESS, len(self._log(program))

    def nvrtcGetProgramLog(self, program: int, log: bytes) -> tuple[Status]:
        fill(log, self._log(program))
        return (Status.SUCCESS,)

    def nvrtcGetCUBINSize(self, program: int) -> tuple[Status, int]:
        return Status.SUCCESS, len(self.sources[program])

    def nvrtcGetCUBIN(self, program: int, code: bytes) -> tuple[Status]:
        fill(code, self.sources[program][::-1])
        return (Status.SUCCESS,)

    def nvrtcDestroyProgram(self, program: int) -> tuple[Status]:
        self.alive.remove(program)
        return (Status.SUCCESS,)


def test_nvrtc(tmp_path: Path) -> None:
    fake = FakeNvrtc()
    compiler = Nvrtc(fake, DiskCache(tmp_path))
    assert compiler.build("text", TARGETS["sm_90"])[::-1] == b'#line 1 "kernels"\n#include "pf_gpu.h"\ntext'
    assert compiler.build("text", TARGETS["sm_90"])[::-1] == b'#line 1 "kernels"\n#include "pf_gpu.h"\ntext'
    assert len(fake.sources) == 1 and not fake.alive
    assert {b"--gpu-architecture=sm_90a", b"--std=c++17", b"-DPF_WAVE=32"} <= set(fake.options)
    assert compiler.version == "NVRTC 13.1"


def test_a_refused_source_is_shown(tmp_path: Path) -> None:
    fake = FakeNvrtc()
    compiler = Nvrtc(fake, DiskCache(tmp_path))
    with pytest.raises(CompileError, match=r"(?s)NVRTC 13\.1 refused a kernel for sm_90, COMPILATION.*>    3 \| wrong"):
        compiler.compile("first\nwrong\nlast", TARGETS["sm_90"])
    assert not fake.alive


def test_a_missing_library(tmp_path: Path) -> None:
    class Absent:
        def nvrtcVersion(self) -> None:
            raise RuntimeError("libnvrtc.so.13 was not found")

    with pytest.raises(NotAvailableError, match=r"expected to call nvrtcVersion but got: libnvrtc"):
        Nvrtc(Absent(), DiskCache(tmp_path))


def test_which_compiler_serves_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    monkeypatch.delenv("PYFLAME_HIP_CLANG", raising=False)
    monkeypatch.setattr(rocm_compiler, "Hiprtc", _hiprtc(known=True))
    assert rocm_compiler.find_compiler(TARGETS["gfx942"], cache).version == "hiprtc"
    monkeypatch.setattr(rocm_compiler, "Hiprtc", _hiprtc(known=False))
    monkeypatch.setattr(rocm_compiler, "find_clang", lambda: None)
    with pytest.raises(HIPCompilationError, match=r"found neither \(hiprtc does not know gfx942\)"):
        rocm_compiler.find_compiler(TARGETS["gfx942"], cache)
    monkeypatch.setattr(rocm_compiler, "find_clang", lambda: "clang")
    monkeypatch.setattr(rocm_compiler, "ClangHip", lambda cache: "a clang")
    assert rocm_compiler.find_compiler(TARGETS["gfx942"], cache) == "a clang"
    monkeypatch.setattr(rocm_compiler, "Hiprtc", _hiprtc(known=True, old=True))
    assert rocm_compiler.find_compiler(TARGETS["gfx942"], cache) == "a clang"
    monkeypatch.setattr(rocm_compiler, "find_clang", lambda: None)
    assert rocm_compiler.find_compiler(TARGETS["gfx942"], cache).version == "hiprtc"
    monkeypatch.setattr(rocm_compiler, "Hiprtc", _hiprtc(known=True))
    monkeypatch.setenv("PYFLAME_HIP_CLANG", "clang")
    assert rocm_compiler.find_compiler(TARGETS["gfx942"], cache) == "a clang"


def _hiprtc(known: bool, old: bool = False) -> Any:
    class Hiprtc:
        version, first = "hiprtc", not old

        def __init__(self, cache: DiskCache) -> None:
            pass

        def knows(self, target: Any) -> bool:
            return known

    return Hiprtc
