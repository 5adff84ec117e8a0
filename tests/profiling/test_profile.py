"""pf.profile: what it sees, that its numbers agree with each other, and that it leaves nothing behind."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import profiling
from pyflame.core import trace
from pyflame.core.errors import ArgumentError, DeviceFaultError
from pyflame.core.trace import DEVICE_KINDS, TraceEvent
from pyflame.engine import devices
from pyflame.runtime.gpu import timing
from pyflame.runtime.gpu.device import GpuDevice
from tests.emulated import emulated_device


def program(x: pf.Tensor, w: pf.Tensor) -> pf.Tensor:
    return pf.softmax(pf.relu(x @ w) * 2.0, -1)


def data() -> tuple[pf.Tensor, pf.Tensor]:
    x, w = pf.randn(12, 8), pf.randn(8, 5)
    pf.eval(x, w, program(x, w))  # compiled, and in memory
    return x, w


def work(p: profiling.Profile, kinds: tuple[str, ...] = ("kernel",)) -> list[TraceEvent]:
    return [e for e in p.events if e.kind in kinds]


def test_what_it_sees_is_what_the_plan_says(where: str) -> None:
    x, w = data()
    plan = pf.explain(program(x, w), run=False).launches
    with pf.profile() as p:
        for _ in range(3):
            pf.eval(program(x, w))
    found = {k.name: k for k in p.kernels if k.kind == "kernel"}
    assert {k: v.calls for k, v in found.items()} == {launch.name: 3 for launch in plan}
    for launch in plan:
        one = found[launch.name]
        assert (one.ops, one.device, one.implementation) == (launch.ops, where, launch.implementation)
        assert (one.bytes, one.flops) == (3 * launch.bytes, 3 * launch.flops)
    product = next(k for k in found.values() if "matmul" in k.ops)
    assert product.flops >= 3 * 2 * 12 * 8 * 5


def test_times_agree_with_each_other(where: str) -> None:
    x, w = data()
    began = time.perf_counter()
    with pf.profile() as p:
        for _ in range(4):
            pf.eval(program(x, w))
    outside = time.perf_counter() - began
    assert 0 < p.device_seconds[where] <= p.seconds <= outside
    for k in p.kernels:
        assert 0 < k.shortest <= k.mean <= k.longest and k.seconds == pytest.approx(k.mean * k.calls)
        if k.bytes:
            assert k.gb_per_second == pytest.approx(k.bytes / k.seconds / 1e9)
    assert sum(k.seconds for k in p.kernels) == pytest.approx(p.device_seconds[where])
    device = [e for e in p.events if e.kind in DEVICE_KINDS]
    assert all(a.begin + (a.seconds or 0) <= b.begin + 2e-6 for a, b in itertools.pairwise(device))
    assert device[-1].begin + (device[-1].seconds or 0) <= began + outside


def test_compiling_and_caches_are_counted(where: str) -> None:
    with pf.profile() as p:
        for _ in range(3):
            pf.eval(pf.ones(7, 3) * 1.5 + pf.ones(3) / 7.25)
    assert (p.compile.plan_misses, p.compile.plan_hits) == (1, 2)
    assert p.compile.compiles + p.compile.disk_hits + p.compile.memory_hits >= 1
    with pf.profile() as again:
        pf.eval(pf.ones(7, 3) * 1.5 + pf.ones(3) / 7.25)
    assert (again.compile.plan_misses, again.compile.compiles) == (0, 0)
    assert any(e.kind == "plan" for e in p.events) and not any(e.kind == "plan" for e in again.events)


def test_memory_of_the_region(where: str) -> None:
    nbytes = 4 << 20
    kept = pf.ones(1000) + 1.0
    pf.eval(kept)
    with pf.profile() as p:
        big = pf.ones(nbytes // 4) + 1.0
        pf.eval(big)
        del big
        with pf.profile() as inner:
            pf.eval(kept + 1.0)
    use, small = p.memory[where], inner.memory[where]
    assert use.peak - use.before >= nbytes > use.after - use.before
    assert 0 < small.peak - small.before < nbytes / 2
    pool = devices._open[next(d for d in devices._open if str(d) == where)].pool
    assert pool.stats.peak_allocated >= use.peak  # profiles do not disturb what the pool says
    assert max(e.nbytes for e in p.events if e.kind == "memory") >= nbytes


def step_of(where: str) -> tuple[Any, Any]:
    weight, total = pf.ones(8, 8) * 0.1, pf.zeros(8) + 0.0
    pf.eval(weight, total)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        y = pf.tanh(x @ weight)
        total.add_(y.sum(0))
        return y

    return step, total


def test_jitted_functions_are_seen_launch_by_launch(where: str) -> None:
    step, total = step_of(where)
    x = pf.tensor(np.ones((3, 8), np.float32))
    for _ in range(3):
        step(x)
    (traced,) = step.cache[next(iter(step.cache))]
    with pf.profile() as p:
        for _ in range(4):
            y = step(x)
    assert sum(k.calls for k in p.kernels if k.kind == "kernel") == 4 * len(traced.plan.launches)
    np.testing.assert_allclose(total.numpy(), 7 * 3 * y.numpy()[0], rtol=1e-5)
    assert p.notes == ([] if where == "cpu" else [p.notes[0]])
    if where != "cpu":
        assert "graphs=True" in p.notes[0] and p.notes[0] in p.table()
        step(x)
        step(x)
        assert traced.runner.why == "replayed as a graph"


def test_replays_are_timed_as_one_if_asked(gpu: GpuDevice) -> None:
    step, _ = step_of(str(gpu.id))
    x = pf.tensor(np.ones((3, 8), np.float32))
    for _ in range(4):
        step(x)
    (traced,) = step.cache[next(iter(step.cache))]
    assert traced.runner.why == "replayed as a graph"
    with pf.profile(graphs=True) as p:
        for _ in range(3):
            step(x)
        with pf.profile(), pf.profile(graphs=True):  # one of them wants to see launches, as long as it lasts
            step(x)
        step(x)
    (graph,) = [k for k in p.kernels if k.kind == "graph"]
    launches = traced.plan.launches
    assert (graph.calls, graph.name) == (4, f"replay of {len(launches)} launches")
    assert graph.bytes == 4 * sum(x.nbytes for x in launches) and graph.seconds > 0
    assert len(work(p)) == len(launches)
    assert "captured graph" in p.table()


def test_a_capture_inside_of_a_profile_has_no_time(gpu: GpuDevice) -> None:
    step, _ = step_of(str(gpu.id))
    x = pf.tensor(np.ones((3, 8), np.float32))
    with pf.profile(graphs=True) as p:
        for _ in range(4):
            step(x)
    assert all(e.seconds is not None and e.seconds > 0 for e in work(p, DEVICE_KINDS))
    (graph,) = [k for k in p.kernels if k.kind == "graph"]
    (traced,) = step.cache[next(iter(step.cache))]
    assert len(work(p)) == (4 - graph.calls) * len(traced.plan.launches)


def test_profiles_inside_of_profiles(where: str) -> None:
    x, w = data()
    counts = []
    with pf.profile() as outer:
        pf.eval(program(x, w))
        for _ in range(2):
            with pf.profile() as inner:
                pf.eval(program(x, w))
            counts.append(len(work(inner)))
        pf.eval(program(x, w))
    assert counts[0] == counts[1] > 0
    assert len(work(outer)) == 4 * counts[0]
    assert inner.seconds < outer.seconds


def test_profiles_that_overlap(where: str) -> None:
    x, w = data()
    first, second = pf.profile(), pf.profile()
    first.__enter__()
    pf.eval(program(x, w))
    second.__enter__()
    pf.eval(program(x, w))
    first.__exit__(None, None, None)
    pf.eval(program(x, w))
    second.__exit__(None, None, None)
    assert len(work(first)) == len(work(second)) > 0
    assert first.events[0].begin < second.events[0].begin
    assert all(e.seconds is not None for p in (first, second) for e in work(p))


def test_an_error_goes_through_and_what_ran_is_kept(where: str) -> None:
    x, w = data()
    p = pf.profile()

    def fail() -> None:
        with p:
            pf.eval(program(x, w))
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert trace.recording is None and work(p) and p.seconds > 0
    with pf.profile() as again:
        pf.eval(program(x, w))
    assert len(work(again)) == len(work(p))


def test_a_bad_index_ends_the_launches(where: str) -> None:
    table, at = pf.ones(4, 2) + 0.0, pf.tensor([0, 9])
    pf.eval(table, at)
    with pytest.raises(pf.IndexError, match="but got 9"), pf.profile() as p:
        pf.embedding(table, at).sum().numpy()
    assert all(e.seconds is not None for e in work(p))


def test_threads_are_seen(where: str) -> None:
    x, w = data()
    with pf.profile() as one:
        pf.eval(program(x, w))

    def run() -> None:
        with pf.device(where), pf.annotate(threading.current_thread().name):
            for _ in range(5):
                pf.eval(program(x, w))

    with pf.profile() as p:
        threads = [threading.Thread(target=run, name=f"worker {n}") for n in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(work(p)) == 15 * len(work(one))
    assert {e.ranges for e in work(p)} == {(f"worker {n}",) for n in range(3)}
    assert len({e.thread for e in work(p)}) == 3
    assert all(e.seconds is not None and e.seconds > 0 for e in work(p))
    names = [r["args"]["name"] for r in p.trace()["traceEvents"] if r["name"] == "thread_name"]
    assert {f"worker {n}" for n in range(3)} <= set(names)


def test_as_a_decorator_it_adds_up(where: str) -> None:
    x, w = data()

    @pf.profile()
    def step(depth: int) -> None:
        """Runs the program."""
        pf.eval(program(x, w))
        if depth:
            step(depth - 1)

    step(0)
    once = len(work(step.profile))  # type: ignore[attr-defined]
    step(2)
    assert len(work(step.profile)) == 4 * once  # type: ignore[attr-defined]
    assert step.__doc__ == "Runs the program."
    assert step.profile.trace()["traceEvents"]  # type: ignore[attr-defined]


def test_without_a_profile_nothing_is_recorded(gpu: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = data()
    step, _ = step_of(str(gpu.id))

    def refuse(*args: Any) -> None:
        raise AssertionError("recorded")

    monkeypatch.setattr(timing.Timings, "around", refuse)
    monkeypatch.setattr(TraceEvent, "__init__", refuse)
    pf.eval(program(x, w))
    for _ in range(4):
        step(x[:3]).numpy()


def test_events_are_used_again_and_many_are_read_on_the_way(gpu: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = data()
    monkeypatch.setattr(timing, "MOST", 4)
    for n in range(3):
        with pf.profile() as p:
            for _ in range(10):
                pf.eval(program(x, w))
        assert all(e.seconds is not None and e.seconds > 0 for e in work(p))
        begins = [e.begin for e in work(p)]
        assert begins == sorted(begins) and all(e.given and e.begin >= e.given[0] for e in work(p))
        if n == 0:
            made = len(gpu.driver.events)  # type: ignore[attr-defined]
    assert len(gpu.driver.events) <= made + 2  # type: ignore[attr-defined]


def test_copies_are_seen(gpu: GpuDevice) -> None:
    array = np.ones((50, 20), np.float32)
    with pf.profile() as p:
        t = pf.tensor(array).to(str(gpu.id))
        (t * 3.0).numpy()
    copies = {k.name: k for k in p.kernels if k.kind == "copy"}
    assert copies[f"host to {gpu.id}"].bytes >= array.nbytes and copies[f"{gpu.id} to host"].bytes == array.nbytes


@pytest.mark.parametrize("failed", [False, True])
def test_a_device_that_breaks(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    device = emulated_device(43 + failed)
    monkeypatch.setitem(devices._open, device.id, device)
    p = pf.profile()

    def broken(event: int) -> None:
        raise DeviceFaultError("[emulated] an illegal address")

    def run() -> None:
        with pf.device(str(device.id)), p:
            pf.eval(pf.ones(5) + 1.0)
            monkeypatch.setattr(device.driver, "event_synchronize", broken)
            if failed:
                raise KeyError("the user's own")

    with pytest.raises(KeyError if failed else DeviceFaultError, match="own" if failed else "illegal address"):
        run()
    assert trace.recording is None
    (kernel,) = (k for k in p.kernels if k.kind == "kernel")
    assert (kernel.calls, kernel.untimed) == (1, 1)
    assert "times are missing" in p.table() and "?" in p.table()


def test_without_a_compiler_references_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.cpu(), "_compiler", None)
    with pf.device("cpu"), pf.profile() as p:
        pf.eval((pf.ones(9) + 1.0).exp())
    (kernel,) = p.kernels
    assert kernel.name == "NumPy references" and "exp" in kernel.ops and kernel.gb_per_second is None


def test_the_null_device_runs_nothing() -> None:
    with pf.device("null:gfx942"), pf.profile() as p:
        pf.eval(pf.ones(9) + 1.0)
    assert not p.kernels and "nothing was launched" in p.table()


def test_it_is_read_when_it_has_ended() -> None:
    p = pf.profile()
    with pytest.raises(
        ArgumentError, match=r"\[profile\] expected a profile that has ended but this one has not begun"
    ):
        p.table()
    assert str(p) == "profile(graphs=False)"
    with p, pytest.raises(ArgumentError, match="is still running; read it behind its with block"):
        p.events
