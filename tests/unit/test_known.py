"""Evaluation of graphs whose plan is known, in C (engine/known.c), against the same in Python."""

from __future__ import annotations

import gc
import itertools
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.trace import Recording
from pyflame.engine import known, views
from pyflame.engine.devices import cpu
from pyflame.engine.evaluate import clear_plans, plan_stats
from pyflame.engine.ownership import reliable
from pyflame.ir import OPS, opdef
from pyflame.tensor import Tensor
from tests.rows import said_of_each


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    if not reliable():
        pytest.skip("without the GIL it stays in Python")
    return said_of_each(monkeypatch)


def _data() -> Tensor:
    x = pf.tensor(np.random.default_rng(0).standard_normal((6, 8), np.float32))
    pf.eval(x)
    return x


def _held() -> list[Tensor]:
    x = _data()
    y = x.exp()
    shown = (y * 2.0).T
    z = shown + 1.0
    return [z.sum(), y, shown, z, z]


def _views() -> list[Tensor]:
    x = _data()
    part = x[2:5]
    return [part, (part + x[1]).sum(0), x.T, x[::2].reshape(3, 8) * 2.0, part.reshape(24), x[:, 1] + 0.5]


def _tape() -> list[Tensor]:
    w = _data().requires_grad_()
    loss = (w.softmax(-1) @ w.T).square().mean()
    loss.backward()
    assert w.grad is not None
    return [w.grad, loss]


def _numbers() -> list[Tensor]:
    x = _data()
    return [x * 0.25 + 3, pf.arange(5) * 7, pf.full((3,), 2**63 - 1, dtype=pf.int64) - 1, (x > 0) & True]


def _indices() -> list[Tensor]:
    x = _data()
    return [x[pf.tensor([1, -1, 3])], x.gather(1, pf.tensor([[0], [7], [2], [3], [4], [5]]))]


def _written() -> list[Tensor]:
    x = _data()
    x[1:3] = 7.0
    x += 1.0
    return [x, x[0] * 2.0]


def _written_before_it_is_there() -> list[Tensor]:
    """Assignments to what is pending, each time at other places."""
    first = next(_places) % 4
    x, y = _data() * 2.0, pf.zeros(6, 8)
    x[first : first + 2] = 7.0
    x[first, 3] = x[first + 1, 2] + 1.0
    shown = y[first]
    y[first : first + 3] = x[3:6] * 0.5
    z = x + 1.0
    z[:, 2:4] = first
    w = _data().requires_grad_()
    (w[first] * w[first + 1]).sum().backward()
    assert w.grad is not None
    return [x, y, shown * 2.0, z.sum(0), w.grad, x.flip(0)]


_places = itertools.count()


def _joined() -> list[Tensor]:
    x = _data()
    return [pf.cat([x[1], x[3]]), pf.stack([x[0] * 2.0, x[4]])]


def _foreign() -> list[Tensor]:
    return [pf.from_numpy(np.arange(12.0, dtype=np.float32).reshape(3, 4)).sum(1), pf.zeros(0, 3) + 1.0]


PROGRAMS = [_held, _views, _tape, _numbers, _indices, _written, _written_before_it_is_there, _joined, _foreign]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("together", [True, False])
def test_it_gives_what_python_gives(
    program: Callable[[], list[Tensor]], together: bool, said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Any]:
        made = program()
        hits = plan_stats.hits
        if together:
            pf.eval(*made)
        else:
            for tensor in made:
                pf.eval(tensor)
        nodes = [(t._node.op.name, t._node.sig, t._node.srcs, t._node.attrs, t._node.data.strides) for t in made]
        return [plan_stats.hits - hits, nodes, *[t.detach().numpy().tobytes() for t in made]]

    for _ in range(4):
        run()
    said.clear()
    found = [run() for _ in range(4)]
    assert known.RAN in said or program in (_written, _joined)
    monkeypatch.setattr(known, "in_c", None)
    assert [run() for _ in range(4)] == found


def test_kinds_of_ops_are_the_objects_that_c_compares_with() -> None:
    kinds = {value for name, value in vars(opdef).items() if name.isupper() and isinstance(value, str)}
    assert {id(op.kind) for op in OPS.values()} <= set(map(id, kinds))


@pytest.mark.slow(16)
def test_it_leaves_no_references_and_no_memory_behind(said: list[int]) -> None:
    x, index = _data(), pf.tensor([1, 2])
    node = x._node

    def step() -> None:
        y = x[1:3].exp()
        (y * 0.5 + x[index]).sum().item()

    def counts() -> list[int]:
        things = [node, node.data, node.data.storage, node.op, node.meta, None, (), False, *known._rows.values()]
        return list(map(sys.getrefcount, things))

    for _ in range(100):
        step()
    gc.collect()
    before, live, said[:] = counts(), cpu().pool.stats.live_blocks, []
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20_000):
        step()
    assert set(said) == {known.RAN}
    said.clear()
    assert all(abs(now - then) < 50 for now, then in zip(counts(), before, strict=True))
    assert cpu().pool.stats.live_blocks == live
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most + 4096


def test_memory_is_counted_as_in_python(said: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = _data()

    def counted() -> list[int]:
        pool = cpu().pool
        before = pool.stats
        pool.reset_peak()
        kept = [(x * float(n)).softmax(-1).sum(0) for n in range(5)]
        for tensor in kept:
            pf.eval(tensor)
        now = pool.stats
        peak = now.peak_allocated - before.allocated
        return [now.allocated - before.allocated, now.allocations - before.allocations, peak, now.live_blocks]

    counted()
    counted()
    said.clear()
    found = counted()
    assert set(said) == {known.RAN}
    monkeypatch.setattr(known, "in_c", None)
    assert counted() == found


def test_what_is_wrong_is_raised_as_in_python(said: list[int]) -> None:
    x, index = _data(), pf.tensor([1, 2])
    for _ in range(3):
        (x[index] * 2.0).numpy()
    pending = x[index + 9] * 2.0
    pf.eval(index + 9)
    with pytest.raises(pf.IndexError, match=r"test_known\.py"):
        (x[pf.tensor([10, 11])] * 2.0).numpy()
    assert said[-1] == 0
    with pytest.raises(pf.IndexError):
        pending.numpy()


def test_no_memory_left_is_an_error_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pf.ones(50_000)
    kept = []
    for _ in range(3):
        kept.append(x * 3.0)
        pf.eval(kept[-1])
    pool, y = cpu().pool, x * 3.0
    pool.empty_cache()
    with monkeypatch.context() as patched:
        patched.setattr(pool, "limit", pool.stats.allocated)
        with pytest.raises(pf.OutOfMemoryError):
            pf.eval(y)
    assert y.sum().item() == 150_000 and pool.stats.live_blocks > 0


@pytest.mark.slow
def test_ctrl_c_stops_a_long_run(said: list[int]) -> None:
    x = pf.rand(1200, 1200)

    def chain() -> Tensor:
        y = x
        for _ in range(12):
            y = (y @ x) * 1e-3
        return y

    for _ in range(2):
        chain().numpy()
    began = time.perf_counter()
    want = chain().numpy()
    whole = time.perf_counter() - began
    assert said[-1] == known.RAN

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    y, handler = chain(), signal.signal(signal.SIGALRM, interrupt)
    try:
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.2 * whole)
        with pytest.raises(KeyboardInterrupt):
            y.numpy()
        assert time.perf_counter() - began < 0.9 * whole
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    np.testing.assert_array_equal(y.numpy(), want)


def test_threads_evaluate_what_they_share() -> None:
    x, wrong = _data(), []
    for _ in range(2):
        want = (x.exp()[1:4] * 2.0).sum(0).numpy()

    def work(shared: list[Tensor]) -> None:
        for tensor in shared:
            if not np.array_equal(tensor.numpy(), want):
                wrong.append(tensor)

    for _ in range(20):
        shared = [(x.exp()[1:4] * 2.0).sum(0) for _ in range(50)]
        threads = [threading.Thread(target=work, args=(shared,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_recording_and_other_modes_go_through_python(said: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = _data()
    for _ in range(3):
        (x * 2.0).numpy()
    assert said[-1] == known.RAN
    said.clear()
    recording = Recording()
    monkeypatch.setattr("pyflame.core.trace.recording", recording)
    (x * 2.0).numpy()
    assert not said and "kernel" in [event.kind for event in recording.events]
    monkeypatch.setattr("pyflame.core.trace.recording", None)
    with pf.core.state.mode(max_fused=1):
        misses = plan_stats.misses
        (x * 2.0).numpy()
        assert plan_stats.misses == misses + 1


def test_rows_are_forgotten_with_their_plans(said: list[int]) -> None:
    x = _data()
    for _ in range(3):
        (x * 2.0).numpy()
    clear_plans()
    assert not known._rows and not views.LAYOUTS
    said.clear()
    for _ in range(3):
        (x * 2.0).numpy()
    assert said == [known.RAN] * 2


def _parts(seed: int) -> list[Tensor]:
    """Parts of two kinds, in another order for each seed, put together and read twice."""
    flips = np.random.default_rng(seed).integers(0, 2, 21).tolist()
    x = pf.tensor(np.arange(240.0, dtype=np.float32).reshape(24, 2, 5))
    pf.eval(x)
    parts = [(x[i].flip(-1) if flip else x[i]) * 0.5 + 1.0 for i, flip in enumerate(flips)]
    one = pf.stack([*parts, parts[3]])
    return [(one.sum(0) * one.mean()).exp(), pf.cat([p.reshape(10) for p in parts]), parts[2]]


def test_parts_that_are_put_together_are_evaluated_before(said: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> list[Any]:
        made, hits = _parts(seed), plan_stats.hits
        pf.eval(*made)
        return [plan_stats.hits - hits, *[(t._node.sig, t.numpy().tobytes()) for t in made]]

    clear_plans()
    for seed in range(20, 60):
        run(seed)
    said.clear()
    found = [run(seed) for seed in range(20)]
    assert [n for n in said if n > known.RAN] == [n for n in said if n], "Python was left to do something"
    monkeypatch.setattr(known, "in_c", None)
    assert [run(seed) for seed in range(20)] == found


def test_parts_of_what_comes_again_and_again_are_planned_as_one(said: list[int]) -> None:
    clear_plans()
    for _ in range(12):
        pf.eval(*_parts(0))
    assert said[-1] == known.RAN
    for seed in range(40):
        pf.eval(*_parts(seed))
    assert said[-1] > known.RAN


def _rows(*rows: int, dtype: pf.DType = pf.float32) -> list[Tensor]:
    made = [pf.arange(3 * n, dtype=dtype).reshape(n, 3).clone() for n in rows]
    pf.eval(*made)
    return made


@pytest.mark.parametrize(
    ("make", "joins"),
    [
        (lambda: pf.cat(_rows(1, 4, 2)), True),
        (lambda: pf.stack([r.reshape(3) for r in _rows(1, 1, 1)]), True),
        (lambda: pf.cat(_rows(2, 0, 3, dtype=pf.int16)), True),
        (lambda: pf.cat(_rows(1, 1), dim=1), True),
        (lambda: pf.cat(_rows(2, 2), dim=1), False),
        (lambda: pf.cat([r.T for r in _rows(2, 2)]), False),
        (lambda: pf.cat([_rows(2)[0], pf.zeros(1, 3)]), False),
        (lambda: pf.cat(_rows(0, 0)), False),
        (lambda: pf.cat(_rows(90_000, 3)), False),
    ],
)
def test_a_cat_of_what_is_in_memory_is_copied(
    make: Callable[[], Tensor], joins: bool, said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = make()
    said.clear()
    pf.eval(out)
    assert (said[0] == 1) is joins
    found = out.numpy().tobytes(), out.shape, out._node.sig, out._node.data.strides
    monkeypatch.setattr(known, "in_c", None)
    again = make()
    assert (again.numpy().tobytes(), again.shape, again._node.sig, again._node.data.strides) == found


def test_parts_leave_no_references_and_no_memory_behind(said: list[int]) -> None:
    for seed in range(60):
        pf.eval(*_parts(seed))
    gc.collect()
    held, live = [None, (), OPS["cat"], OPS["leaf"], pf.float32], cpu().pool.stats.live_blocks
    before = list(map(sys.getrefcount, held))
    said.clear()
    for seed in range(60, 260):
        pf.eval(*_parts(seed))
    assert max(said) > known.RAN and min(said) >= 0
    assert all(abs(now - then) < 50 for now, then in zip(map(sys.getrefcount, held), before, strict=True))
    gc.collect()
    assert cpu().pool.stats.live_blocks == live


def test_interrupts_leave_parts_that_are_evaluated_again(said: list[int]) -> None:
    for seed in range(20):
        pf.eval(*_parts(seed))
    want = {seed: [t.numpy().copy() for t in _parts(seed)] for seed in range(20, 100)}

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    stopped, handler = 0, signal.signal(signal.SIGALRM, stop)
    try:
        for seed, found in want.items():
            made = _parts(seed)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + seed % 40))
                pf.eval(*made)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            for tensor, values in zip(made, found, strict=True):
                np.testing.assert_array_equal(tensor.numpy(), values)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert stopped and not cpu().lock.taken()


def test_threads_evaluate_parts_that_they_share(said: list[int]) -> None:
    wrong: list[int] = []
    want = [[t.numpy().copy() for t in _parts(seed)] for seed in range(30)]

    def work(made: list[Tensor], seed: int, first: int) -> None:
        for at in (first, first + 1, first + 2):
            if not np.array_equal(made[at % 3].numpy(), want[seed][at % 3]):
                wrong.append(seed)

    for seed in range(30):
        made = _parts(seed)
        threads = [threading.Thread(target=work, args=(made, seed, first)) for first in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
