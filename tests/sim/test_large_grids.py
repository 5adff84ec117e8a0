"""Launches of more threads than HIP allows, 2^32 - 1: blocks take several groups of threads. Here fewer are allowed."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.codegen import gpu_text
from pyflame.engine.evaluate import clear_plans
from pyflame.ir.kernel import GpuPhase

MOST = 1 << 11


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_blocks_take_several_groups(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[GpuPhase] = []
    monkeypatch.setattr(gpu_text, "MAX_THREADS", MOST)
    monkeypatch.setattr(gpu_text, "GpuPhase", lambda *args: made.append(GpuPhase(*args)) or made[-1])
    clear_plans()
    x = np.random.default_rng(0).standard_normal((93, 211), np.float32)
    with pf.device(f"sim:{target}"):
        t = pf.tensor(x)
        found = {
            "flat": (t * 2 + 1, x * 2 + 1),
            "turned": ((t.T * 3).contiguous(), x.T * 3),
            "rows": (pf.softmax(t, 1), np.exp(x) / np.exp(x).sum(1, keepdims=True)),
            "columns": (t.sum(0), x.sum(0)),
            "all": ((t * t).sum(), (x * x).sum()),
        }
        for name, (ours, wanted) in found.items():
            np.testing.assert_allclose(ours.numpy(), wanted, 1e-4, 1e-4, err_msg=name)
    assert len(made) >= len(found) and all(phase.grid * phase.block < MOST for phase in made)
    assert sum((MOST - 1) // phase.block == phase.grid for phase in made) > 2  # these take turns
    clear_plans()
