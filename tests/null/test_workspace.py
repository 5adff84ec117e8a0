"""What a call would take of memory, from its plan alone."""

from __future__ import annotations

import gc

import pytest

import pyflame as pf
from pyflame.transform.explain import workspace_bytes


def step(x: pf.Tensor) -> pf.Tensor:
    return ((x @ x).exp() @ x).softmax(-1).sum()


@pytest.mark.slow
def test_it_is_what_a_run_takes() -> None:
    planned = workspace_bytes(pf.jit(step), "cpu", pf.empty(512, 512, device="null"))
    x = pf.rand(512, 512, device="cpu")
    pf.eval(x)
    gc.collect()
    pf.reset_peak_memory_stats("cpu")
    before = pf.memory_stats("cpu").allocated
    pf.jit(step)(x).item()
    taken = pf.memory_stats("cpu").peak_allocated - before
    assert 2 * 512 * 512 * 4 <= planned <= taken <= planned * 1.13  # the pool rounds up to one of 8 sizes per octave


def test_for_a_gpu_without_running_anything() -> None:
    x = pf.empty(1024, 1024, dtype=pf.bfloat16, device="null")
    assert workspace_bytes(pf.jit(step), "sim:gfx942", x) >= 2 * 1024 * 1024 * 2
