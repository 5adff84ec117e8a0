"""Variants of our own kernels: timed once where a GPU is real, remembered, and never timed where nothing may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.kernels import matmul_gpu, tile_gpu
from tests.libs.test_plans import NAME, Bench, bench, explained, random

__all__ = ["bench"]  # a fixture


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of each trial the kernel's block; the 16x64 one is the fastest."""
    seen: list[str] = []

    def seconds(self: Any) -> float:
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
