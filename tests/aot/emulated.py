"""A driver whose device is the host: kernels run block by block in the emulation of tests/null, on guarded memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.transform.aot import AotPlan
from tests.emulated import EmulatedDriver
from tests.null.texts import host_library


class HostDriver(EmulatedDriver):
    """The emulated GPU, with `texts`, the sources that were built for the plan, in place of its code objects."""

    def __init__(self, plan: AotPlan, texts: list[str], folder: Path, reverse: bool = False) -> None:
        super().__init__((plan.target,))
        exports = "\n".join(f"EMU_EXPORT({name})" for name in dict.fromkeys(x.name for x in plan.launches))
        self.library = host_library("\n".join([*texts, exports]), TARGETS[plan.target].wave_size, folder)
        self.reverse = reverse
        self.loaded: set[int] = set()

    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        _, start, end = self.live[dst]
        assert nbytes <= end - start
        super().copy_h2d(dst, src, nbytes, stream)

    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        _, start, end = self.live[src]
        assert nbytes <= end - start
        super().copy_d2h(dst, src, nbytes, stream)

    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.copy_h2d(dst, src, nbytes, stream)

    def load_module(self, code: bytes) -> int:
        assert code[:4] == b"\x7fELF"
        self.loaded.add(id(code))
        return id(code)

    def unload_module(self, module: int) -> None:
        self.loaded.remove(module)

    def get_function(self, module: int, name: str) -> Any:
        assert module in self.loaded
        return getattr(self.library, f"run_{name}"), self.library.emu_shape


class Emulation:
    """Compiles functions ahead of time and runs the plans on the host."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch = patch
        self.folder = folder
        self.devices: list[tuple[AotPlan, HostDriver, GpuDevice]] = []

    def compile(self, fn: Callable[..., Any], *inputs: Any, target: str = "gfx942") -> tuple[AotPlan, Any]:
        """The plan, and a function that runs it."""
        texts: list[str] = []
        original = ClangHip.build

        def build(compiler: ClangHip, source: str, wanted: Any, options: Any) -> bytes:
            texts.append(source)
            return original(compiler, source, wanted, options)

        with self.patch.context() as patch:
            patch.setattr(ClangHip, "build", build)
            plan = pf.aot.compile(fn, *inputs, target=target)
        return plan, self.runner(plan, texts)

    def runner(self, plan: AotPlan, texts: list[str]) -> Callable[..., Any]:
        folder = self.folder / str(len(self.devices))
        folder.mkdir()
        driver = HostDriver(plan, texts, folder)
        with self.patch.context() as patch:
            patch.setenv("PYFLAME_MEMORY_POOL", "exact")  # every buffer has fences
            device = GpuDevice(driver, ClangHip)
        plan.place(device)
        self.devices.append((plan, driver, device))
        return plan.run

    def close(self) -> None:
        """Every plan gives its memory back; nothing was written outside of it."""
        for plan, driver, device in self.devices:
            plan.close()
            gc.collect()  # an error that was raised holds what it was raised over
            device.empty_cache()
            assert not driver.live and not driver.loaded, "something was not given back"
