"""torch.profiler's names over our profiler: schedules as torch has them, spans, tables and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentError

SCHEDULES: tuple[dict[str, Any], ...] = (
    dict(wait=1, warmup=1, active=2),
    dict(wait=0, warmup=0, active=1, repeat=2),
    dict(wait=2, warmup=1, active=3, repeat=2, skip_first=3),
    dict(wait=2, warmup=0, active=1, skip_first=1, skip_first_wait=1),
)


@pytest.mark.parametrize("options", SCHEDULES)
def test_schedules_are_torchs(options: dict[str, Any]) -> None:
    ours, theirs = (lib.profiler.schedule(**options) for lib in (pf, torch))
    assert [ours(n).name for n in range(30)] == [theirs(n).name for n in range(30)]


def test_spans_of_a_schedule_are_handed_out(tmp_path: Path) -> None:
    sizes: list[int] = []

    def ready(p: Any) -> None:
        sizes.append(sum(row.calls for row in p.key_averages()))
        pf.profiler.tensorboard_trace_handler(str(tmp_path))(p)

    plan = pf.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with pf.profiler.profile(schedule=plan, on_trace_ready=ready, record_shapes=True) as p:
        for _ in range(10):
            pf.eval(pf.randn(8, 8).exp().sum())
            p.step()
    assert len(sizes) == 2 and sizes[0] == sizes[1] > 0
    files = list(tmp_path.glob("*.pt.trace.json"))
    assert len(files) == 2 and json.loads(files[0].read_text())["traceEvents"]


def test_without_a_schedule_all_is_recorded(tmp_path: Path) -> None:
    activities = [pf.profiler.ProfilerActivity.CPU, pf.profiler.ProfilerActivity.CUDA]
    with pf.profiler.profile(activities=activities) as p, pf.profiler.record_function("forward"):
        pf.eval(pf.randn(8, 8) @ pf.randn(8, 8))
    assert "matmul" in p.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    assert any(e.kind == "range" and e.name == "forward" for e in p.events())
    p.export_chrome_trace(str(tmp_path / "trace"))
    assert json.loads((tmp_path / "trace").read_text())["traceEvents"]


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="expected active of at least 1"):
        pf.profiler.schedule(wait=0, warmup=0, active=0)
    with pytest.raises(ArgumentError, match="behind the with block"):
        pf.profiler.profile().key_averages()
