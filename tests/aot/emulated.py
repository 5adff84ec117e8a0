"""A driver whose device is the host: kernels run block by block in the emulation of tests/null, on guarded memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.transform.aot import AotPlan
from tests.null.test_gpu_text import host_library

FENCE = 256
FILL = 0xFF  # NaN as any float: nothing may take fresh memory for zeros


class HostDriver:
    """What `engine.aot_run` asks of a driver. `texts`: the sources that were built for the plan."""

    kind = "host"

    def __init__(self, plan: AotPlan, texts: list[str], folder: Path, reverse: bool = False) -> None:
        exports = "\n".join(f"EMU_EXPORT({name})" for name in dict.fromkeys(x.name for x in plan.launches))
        self.library = host_library("\n".join([*texts, exports]), TARGETS[plan.target].wave_size, folder)
        self.reverse = reverse
        self.memory: dict[int, tuple[np.ndarray[Any, Any], int, int]] = {}
        self.modules: set[int] = set()

    def set_device(self, index: int) -> None:
        assert index == 0

    def alloc(self, nbytes: int) -> int:
        raw = np.full(nbytes + 3 * FENCE, FILL, np.uint8)
        start = FENCE + -(raw.ctypes.data + FENCE) % FENCE
        self.memory[raw.ctypes.data + start] = (raw, start, start + nbytes)
        return raw.ctypes.data + start

    def free(self, address: int) -> None:
        raw, start, end = self.memory.pop(address)
        assert (raw[:start] == FILL).all() and (raw[end:] == FILL).all(), "written outside of a buffer"

    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        _, start, end = self.memory[dst]
        assert nbytes <= end - start
        ctypes.memmove(dst, src, nbytes)

    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        _, start, end = self.memory[src]
        assert nbytes <= end - start
        ctypes.memmove(dst, src, nbytes)

    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.copy_h2d(dst, src, nbytes, stream)

    def load_module(self, code: bytes) -> int:
        assert code[:4] == b"\x7fELF"
        self.modules.add(id(code))
        return id(code)

    def unload_module(self, module: int) -> None:
        self.modules.remove(module)

    def get_function(self, module: int, name: str) -> Any:
        assert module in self.modules
        return getattr(self.library, f"run_{name}")

    def launch(
        self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], lds: int, stream: int, words: Any
    ) -> None:
        assert grid[1:] == block[1:] == (1, 1)
        parted = function(
            ctypes.c_void_p(words.array.ctypes.data), ctypes.c_longlong(grid[0]), block[0], int(self.reverse)
        )
        assert parted == 0, "threads parted at a barrier or shuffle"

    def stream_synchronize(self, stream: int) -> None:
        """Launches are done when they return."""


class Emulation:
    """Compiles functions ahead of time and runs the plans on the host."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch = patch
        self.folder = folder
        self.drivers: list[tuple[AotPlan, HostDriver]] = []

    def compile(self, fn: Callable[..., Any], *inputs: Any, target: str = "gfx942") -> tuple[AotPlan, Any]:
        """The plan, and a function that runs it."""
        texts: list[str] = []
        original = ClangHip.build

        def build(compiler: ClangHip, source: str, wanted: Any) -> bytes:
            texts.append(source)
            return original(compiler, source, wanted)

        with self.patch.context() as patch:
            patch.setattr(ClangHip, "build", build)
            plan = pf.aot.compile(fn, *inputs, target=target)
        return plan, self.runner(plan, texts)

    def runner(self, plan: AotPlan, texts: list[str]) -> Callable[..., Any]:
        folder = self.folder / str(len(self.drivers))
        folder.mkdir()
        driver = HostDriver(plan, texts, folder)
        plan.place(driver, 0, 0)
        self.drivers.append((plan, driver))
        return plan.run

    def close(self) -> None:
        """Every plan gives its memory back; nothing was written outside of it."""
        for plan, driver in self.drivers:
            plan.close()
            assert not driver.memory and not driver.modules, "something was not given back"
