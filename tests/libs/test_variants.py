"""Variants of our own kernels: timed once where a GPU is real, remembered, and never timed where nothing may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import CompileError
from pyflame.kernels import matmul_gpu, tile_gpu
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.compiler import GpuKernels
from pyflame.runtime.kernels import KernelTable
from tests.libs.bench import NAME, Bench, bench, explained, prefer, random

__all__ = ["bench"]  # a fixture


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of each trial the kernel's block; the 16x64 one is the fastest."""
    seen: list[str] = []

    def seconds(self: Any, best: float) -> float:
        (source, *_) = self._executable.plan.sources
        rows, cols = (int(source.text.split(f"{name} = ")[1].split(",")[0]) for name in ("ROWS", "COLS"))
        self.start()
        seen.append(f"{rows}x{cols}")
        return 1e-3 if seen[-1] == "16x64" else 2e-3

    monkeypatch.setattr("pyflame.engine.libraries.trial.Trial.seconds", seconds)
    monkeypatch.setattr(matmul_gpu, "TIMED", 0)
    monkeypatch.setenv("PYFLAME_LIBRARIES", "none")
    return seen


def test_the_fastest_is_taken_and_remembered(bench: Bench, timed: list[str]) -> None:
    a, b = random(24, 40), random(40, 36)
    x, y = (pf.tensor(v, device=str(NAME)) for v in (a, b))
    report, got = explained(lambda: x @ y)
    assert "16x64: measured 1 ms; " in report.launches[0].why
    assert len(timed) == len(set(timed)) == tile_gpu.VARIANTS
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
    timed.clear()
    bench.forget()
    report, got = explained(lambda: x @ y)
    assert "16x64: measured 1 ms; " in report.launches[0].why and not timed
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)


def test_the_guess_stays_where_nothing_may_be_timed(
    bench: Bench, timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = pf.tensor(random(24, 40), device=str(NAME))
    with pf.deterministic():
        explained(lambda: x @ x.T)
    monkeypatch.setattr(matmul_gpu, "TIMED", 1 << 40)
    explained(lambda: x.T @ x)
    monkeypatch.setattr(matmul_gpu, "TIMED", 0)
    monkeypatch.setenv("PYFLAME_TUNE", "0")
    explained(lambda: (x + 1.0) @ x.T)
    assert not timed


@dataclass
class Compiled:
    """How many kernels were compiled at once, each time: in the background, and by who asked for them."""

    ahead: list[int] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)


@pytest.fixture
def compiled(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiled:
    """Nothing is known before."""
    found = Compiled()
    compile_missing, build_ahead = KernelTable._compile_missing, KernelTable._build_ahead

    def noted(table: Any, missing: Any) -> None:
        found.waited.extend([len(missing)] * bool(missing))
        compile_missing(table, missing)

    def noted_ahead(table: Any, batch: Any, missing: Any) -> None:
        found.ahead.append(len(batch))
        build_ahead(table, batch, missing)

    monkeypatch.setattr(KernelTable, "_compile_missing", noted)
    monkeypatch.setattr(KernelTable, "_build_ahead", noted_ahead)
    kernels = bench.device.kernels
    monkeypatch.setattr(kernels, "cache", DiskCache(tmp_path / "kernels"))
    kernels.forget()
    return found


def network(x: pf.Tensor, weights: list[pf.Tensor]) -> pf.Tensor:
    for w in weights:
        x = pf.relu(x @ w)
    return pf.softmax(x, -1)


@pytest.mark.slow
def test_variants_of_all_launches_are_compiled_ahead(timed: list[str], compiled: Compiled) -> None:
    """And what the plan launches beside them: nobody compiles what he needs when he needs it."""
    sizes = [(24, 40), (40, 36), (36, 72), (72, 20)]
    x, *weights = (pf.tensor(random(*size), device=str(NAME)) for size in sizes)
    got = network(x, weights).numpy()
    assert len(timed) == 3 * tile_gpu.VARIANTS
    assert not compiled.waited and sum(compiled.ahead) > tile_gpu.VARIANTS, compiled
    want = network(*[pf.tensor(random(*sizes[0])), [pf.tensor(random(*size)) for size in sizes[1:]]]).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_trials_of_libraries_are_compiled_ahead(
    bench: Bench, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libraries are compared with, and what is left behind their products, as the rest of the plan."""
    prefer(monkeypatch, library=True)
    sizes = [(24, 40), (40, 36), (36, 72), (72, 20)]
    x, *weights = (pf.tensor(random(*size), device=str(NAME)) for size in sizes)
    report, _ = explained(lambda: network(x, weights))
    assert sum(launch.implementation.startswith("hipBLASLt") for launch in report.launches) == 3
    assert not compiled.waited and compiled.ahead, compiled
    bench.forget()
    compiled.ahead.clear()
    network(x, weights).numpy()
    assert compiled == Compiled()


def test_a_candidate_that_does_not_compile_is_met_by_its_own_trial(
    bench: Bench, timed: list[str], compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in the background, and then whoever runs it."""
    build = GpuKernels.build

    def broken(table: GpuKernels, source: str) -> bytes:
        if "ROWS = 16," in source and "COLS = 64," in source:
            raise CompileError("[compile] expected a kernel that can be compiled")
        return build(table, source)

    monkeypatch.setattr(GpuKernels, "build", broken)
    x = pf.tensor(random(24, 40), device=str(NAME))
    with pytest.warns(RuntimeWarning, match="16x64 own failed"):
        got = (x @ x.T).numpy()
    assert "16x64" not in timed and len(timed) == tile_gpu.VARIANTS - 1
    np.testing.assert_allclose(got, random(24, 40) @ random(24, 40).T, rtol=1e-4, atol=1e-4)
