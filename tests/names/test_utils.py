"""torch.utils: benchmark, hooks and checkpoint's names."""

from __future__ import annotations

import contextlib
import importlib
import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.benchmark as theirs

import pyflame as pf
from pyflame.utils import benchmark, checkpoint
from pyflame.utils.hooks import RemovableHandle

TIMES = [0.011, 0.012, 0.0105, 0.02, 0.0115, 0.0118]


def measured(lib: Any, times: list[float], **spec: Any) -> Any:
    return lib.Measurement(10, times, lib.utils.common.TaskSpec(**spec) if lib is theirs else lib.TaskSpec(**spec))


def test_measurements_say_what_torch_says() -> None:
    spec = dict(stmt="f(x)", setup="x = 1", label="F", sub_label="small", description="old")
    ours, other = measured(benchmark, TIMES, **spec), measured(theirs, TIMES, **spec)
    for name in ("median", "mean", "iqr", "times"):
        np.testing.assert_allclose(getattr(ours, name), getattr(other, name), rtol=1e-12)
    for name in ("significant_figures", "has_warnings", "title", "as_row_name", "label", "number_per_run"):
        assert getattr(ours, name) == getattr(other, name), name
    assert str(ours).splitlines()[1:] == str(other).splitlines()[1:]
    merged = benchmark.Measurement.merge([ours, ours])
    assert len(merged) == 1 and len(merged[0].raw_times) == 12
    for t in (2e-9, 3e-6, 0.5e-3, 0.02, 3.0):
        assert benchmark.select_unit(t) == theirs.select_unit(t)
        assert benchmark.trim_sigfig(t, 2) == pytest.approx(theirs.utils.common.trim_sigfig(t, 2))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ours.nothing


def test_timer_computes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    modes = importlib.import_module("pyflame.tensor.modes")
    monkeypatch.setattr(modes, "eval", lambda values: seen.append([v is not None for v in values]))
    stmt = "y, n = x @ z, [i for i in (1,)]\nif n[0] > 1:\n    w = 3\nx + y"
    benchmark.Timer(stmt, setup="z = x * 2", globals={"x": pf.ones(3, 3)}).timeit(3)
    assert len(seen) == 5 and seen[0] == [True] * 3  # 2 runs to warm up, and 3


def test_timer_times() -> None:
    def nap() -> None:
        time.sleep(0.002)

    found = benchmark.Timer("nap()", globals={"nap": nap}, label="nap").blocked_autorange(min_run_time=0.05)
    assert 0.002 <= found.median < 0.05 and sum(found.raw_times) >= 0.05 and found.label == "nap"
    counted: list[int] = []
    steady = benchmark.Timer("nap()", globals={"nap": nap}).adaptive_autorange(
        threshold=10.0, callback=lambda n, t: counted.append(n)
    )
    assert len(counted) == len(steady.raw_times) >= 4 and steady.num_threads == pf.get_num_threads()
    assert benchmark.Timer("pass").timeit(10).median >= 0
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0").timeit(1)
    with pytest.raises(SyntaxError):
        benchmark.Timer("x +")
    with pytest.raises(pf.ArgumentError, match="in Python"):
        benchmark.Timer("x", language="c++")


def test_compare() -> None:
    rows = [("f", "old", 2e-3), ("f", "new", 1e-3), ("a longer one", "old", 30e-3)]
    table = benchmark.Compare(
        [measured(benchmark, [t * 10], stmt=s, setup="", label="L", description=d) for s, d, t in rows]
    )
    lines = str(table).splitlines()
    assert [[c.strip() for c in line.split("|")] for line in (lines[1], *lines[3:5])] == [
        ["", "old", "new"],
        ["f", "2.0", "1.0"],
        ["a longer one", "30.0", ""] if lines[4].count("|") == 2 else ["a longer one", "30.0"],
    ]
    assert lines[0].strip("[]-") == " L " and "Times are in milliseconds (ms)." in lines
    table.colorize(rowwise=True)
    assert "\033[92m" in str(table)
    with pytest.raises(pf.ArgumentError, match="expected Measurements"):
        benchmark.Compare([3])  # type: ignore[list-item]


def test_handles() -> None:
    layer = pf.nn.Linear(2, 2)
    handle = layer.register_forward_hook(lambda *args: None)
    assert isinstance(handle, RemovableHandle)
    handle.remove()
    hooks: dict[int, Any] = {}
    own = RemovableHandle(hooks)
    hooks[own.id] = print
    own.remove()
    assert not hooks


# --- checkpoint -------------------------------------------------------------------------------------------------------


def test_contexts_of_both_runs() -> None:
    for lib in (pf, torch):
        seen: list[str] = []

        @contextlib.contextmanager
        def noted(name: str, seen: list[str] = seen) -> Any:
            seen.append(name)
            yield

        x = lib.ones(3, requires_grad=True)
        lib.utils.checkpoint.checkpoint(
            lambda v: v.exp().sin(),
            x,
            use_reentrant=False,
            context_fn=lambda noted=noted: (noted("first"), noted("again")),
        ).sum().backward()
        assert seen == ["first", "again"]


def test_a_second_run_that_differs() -> None:
    calls: list[int] = []

    def fn(x: Any) -> Any:
        calls.append(1)
        return x.exp() if len(calls) == 1 else x.exp()[:2]

    out = checkpoint.checkpoint(fn, pf.ones(3, requires_grad=True), use_reentrant=False)
    with pytest.raises(checkpoint.CheckpointError, match="expected the second run to give"):
        out.sum().backward()


def test_small_names() -> None:
    x = pf.ones(2, requires_grad=True) * 2
    (y, n) = checkpoint.detach_variable((x, 3))
    assert y.is_leaf and y.requires_grad and n == 3
    with pytest.raises(TypeError, match="a tuple of tensors"):
        checkpoint.detach_variable([x])  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="no input requires gradients"):
        checkpoint.check_backward_validity([pf.ones(2)])
    with checkpoint.set_checkpoint_early_stop(False):
        checkpoint.checkpoint(pf.exp, x, early_stop=False).sum().backward()
