"""Losses in chunks of rows (passes/logits.py) on a real NVIDIA GPU, with libraries: the same numbers, less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import clear_plans
from tests.gpu.nvidia import absent

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

GPU = "cuda:0"
ROWS, WIDTH, CLASSES = 4096, 256, 10007


def jitted(x: Any, w: Any, t: Any) -> tuple[Callable[[], list[pf.Tensor]], pf.Report]:
    """Loss and gradients of a head in bfloat16, and its plan."""

    @pf.jit
    def run(x: pf.Tensor, w: pf.Tensor, t: pf.Tensor) -> Any:
        with pf.autocast(pf.bfloat16):
            loss = pf.cross_entropy(x.requires_grad_() @ w.requires_grad_().T, t)
        return [loss, *pf.autograd.grad(loss, [x, w])]

    return lambda: run(x, w, t), pf.explain(run, x, w, t, run=False)


def test_chunks_agree_with_whole_logits_in_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arenas, results = [], []
    with pf.device(GPU):
        x, w = (pf.tensor(rng.standard_normal((n, WIDTH), np.float32) * 0.1) for n in (ROWS, CLASSES))
        t = pf.tensor(rng.integers(0, CLASSES, ROWS))
        for most in (0, ROWS * CLASSES // 4):  # a power of two of rows: eight chunks
            monkeypatch.setenv("PYFLAME_MAX_LOGITS", str(most))
            clear_plans()
            call, report = jitted(x, w, t)
            arenas.append(report.arena_bytes)
            assert len(report.notes) == (most > 0)
            pf.synchronize()
            pf.reset_peak_memory_stats()
            before = pf.memory_allocated()
            for _ in range(4):  # nobody waits: they share a workspace, which may have a library's scratch too
                out = call()
            outputs = sum(v.nbytes for v in out)
            assert pf.max_memory_allocated() - before < 1.2 * report.arena_bytes + 3 * outputs + (64 << 20)
            results.append([v.numpy() for v in out])
    assert arenas[1] < arenas[0] / 2
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2 * np.abs(b).max())
