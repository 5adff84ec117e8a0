"""pf.explain: the report, its table and its page."""

from __future__ import annotations

import numpy as np

import pyflame as pf


def test_report_names_ops_bytes_flops_and_reasons() -> None:
    x, w = pf.ones(64, 32), pf.ones(32, 16)
    pf.eval(x, w)
    report = pf.explain(pf.softmax(pf.relu(x @ w + 1.0), axis=-1))
    first, last = report.launches
    assert first.ops == ("matmul",)
    assert first.implementation == "gemm"
    assert first.why
    assert first.flops >= 2 * 64 * 32 * 16
    assert {"add", "relu", "exp", "reduce_sum"} <= set(last.ops)
    assert last.bytes == 2 * 64 * 16 * 4
    assert last.seconds is not None
    assert last.gb_per_second is not None
    assert report.edges == [(0, 1)]
    assert report.arena_bytes >= 64 * 16 * 4


def test_table_and_page() -> None:
    report = pf.explain(lambda x: pf.exp(x).sum(), pf.ones(1000))
    assert "reduce_sum" in str(report)
    assert "1 launches on cpu" in str(report)
    page = report.html()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "exp" in page


def test_explaining_a_step_changes_nothing() -> None:
    w = pf.tensor(np.ones(4, np.float32))

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        nonlocal w
        w += x
        return w.sum()

    step(pf.ones(4))
    before = w.numpy().copy()
    pf.explain(step, pf.ones(4))
    np.testing.assert_array_equal(w.numpy(), before)


def test_null_device_explains_without_running() -> None:
    with pf.device("null:gfx942"):
        report = pf.explain(pf.softmax(pf.zeros(8, 8) + 1.0, axis=-1))
    assert report.device == "null:gfx942"
    assert all(launch.seconds is None for launch in report.launches)
