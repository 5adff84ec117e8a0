"""Evaluation on a GPU of graphs whose plan is known, in C (engine/gpu_run.c), against the same in Python."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import devices, known, native
from pyflame.engine.evaluate import plan_stats
from pyflame.engine.ownership import reliable
from pyflame.runtime.gpu.driver import address_of
from pyflame.tensor import Tensor
from tests import emulated
from tests.emulated import EmulatedDriver, emulated_device
from tests.rows import said_of_each
from tests.unit.test_known import PROGRAMS, _parts

NAME = DeviceId("rocm", 43)


@pytest.fixture(params=["in C", "in Python"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    """Of the current device: kernels are given to it from C, or by a call into Python."""
    if not reliable():
        pytest.skip("without the GIL it stays in Python")
    native.load()
    if request.param == "in Python":
        monkeypatch.setattr(EmulatedDriver, "native_calls", lambda *_: None)
    devices._open[NAME] = emulated_device(NAME.index)
    monkeypatch.setattr("pyflame.engine.evaluate.misses.count", 0)
    pf.engine.evaluate.clear_plans()
    with pf.device(str(NAME)):
        yield devices._open[NAME].driver  # type: ignore[attr-defined]
    pf.engine.evaluate.clear_plans()
    del devices._open[NAME]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return said_of_each(monkeypatch)


def on_gpu(values: Any) -> Tensor:
    made = pf.tensor(np.asarray(values, np.float32)) + 0.0
    pf.eval(made)
    return made


def taught(call: Callable[[], Tensor], times: int = 3) -> Any:
    """What a call gives; C knows its plan from then on."""
    for _ in range(times):
        found = call().numpy()
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_gives_what_python_gives(
    program: Callable[[], list[Tensor]], driver: EmulatedDriver, said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Any]:
        made = program()
        for tensor in made:
            pf.eval(tensor)
        nodes = [(t._node.op.name, t._node.sig, t._node.srcs, t._node.attrs, t._node.data.strides) for t in made]
        return [nodes, *[t.detach().numpy().tobytes() for t in made]]

    for _ in range(4):
        run()
    said.clear()
    driver.native = 0
    found = [run() for _ in range(4)]
    assert known.RAN in said
    assert (driver.native > 0) == (devices._open[NAME].gpu.native_calls is not None)
    monkeypatch.setattr(known, "in_c", None)
    assert [run() for _ in range(4)] == found


def test_a_bad_index_is_told_with_its_line(driver: EmulatedDriver, said: list[int]) -> None:
    x, good, bad = on_gpu(np.arange(12).reshape(4, 3)), pf.tensor([1, 2]), pf.tensor([1, 9])
    pf.eval(good, bad)
    taught(lambda: x[good] * 2.0)
    y = x[bad] * 2.0
    pf.eval(y)
    assert said[-1] == known.RAN
    with pytest.raises(pf.IndexError, match=r"test_known_on_gpus\.py"):
        y.numpy()
    np.testing.assert_array_equal((x[good] * 2.0).numpy(), 2.0 * x.numpy()[[1, 2]])  # the record is looked at once


def test_memory_that_lies_elsewhere_is_left_to_python(driver: EmulatedDriver) -> None:
    """A kernel that reads vectors, and a view that begins between two of them."""
    x = on_gpu(np.arange(1025))
    taught(lambda: x[:1024] * 2.0)
    np.testing.assert_array_equal((x[1:] * 2.0).numpy(), 2.0 * np.arange(1, 1025, dtype=np.float32))


def test_numbers_that_change_are_sent(driver: EmulatedDriver, said: list[int]) -> None:
    x = on_gpu(np.ones(8))
    taught(lambda: x * 0.5 + 1.0)
    for number in (0.25, 4.0, -1.5, 0.25):
        np.testing.assert_array_equal((x * number + 1.0).numpy(), np.full(8, number + 1.0, np.float32))
    said.clear()
    pf.eval(x * 7.0 + 1.0)
    assert said == [known.RAN]


def test_what_the_driver_refuses_is_given_once_more_by_python(
    driver: EmulatedDriver, said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, refusals = on_gpu(np.arange(8)), [1, 2]
    gpu = devices._open[NAME].gpu
    if gpu.native_calls is None:
        pytest.skip("it is Python that gives the kernels here")
    use = emulated._USE(lambda context: refusals.pop() if refusals else 0)
    gpu.native_calls = gpu.native_calls._replace(use=address_of(use))
    want = taught(lambda: x * 3.0, times=5)
    assert not refusals and said[-5:].count(known.RAN) > 0
    np.testing.assert_array_equal(want, 3.0 * np.arange(8, dtype=np.float32))


def test_kernels_are_named_when_the_device_breaks(driver: EmulatedDriver) -> None:
    x = on_gpu(np.arange(8))
    taught(lambda: x.exp() * 3.0)
    gpu = devices._open[NAME].gpu
    gpu.synchronize()
    pf.eval(x.exp() * 3.0)
    assert [name for name in gpu._recent if "exp" in name]


def test_memory_comes_back(driver: EmulatedDriver, said: list[int]) -> None:
    x = on_gpu(np.arange(64).reshape(8, 8))

    def step() -> None:
        pf.eval((x.softmax(-1) @ x).sum(0))

    for _ in range(4):
        step()
    gc.collect()
    pool = devices._open[NAME].gpu.pool
    before = pool.stats
    said.clear()
    for _ in range(200):
        step()
    gc.collect()
    assert set(said) == {known.RAN}
    after = pool.stats
    assert (after.allocated, after.reserved, after.live_blocks) == (
        before.allocated,
        before.reserved,
        before.live_blocks,
    )


def test_another_stream_goes_through_python(driver: EmulatedDriver, said: list[int]) -> None:
    x = on_gpu(np.arange(8))
    want = taught(lambda: x * 3.0)
    gpu = devices._open[NAME].gpu
    with gpu.using(gpu.make_stream()):
        said.clear()
        np.testing.assert_array_equal((x * 3.0).numpy(), want)
        assert known.RAN not in said


def test_a_value_is_fetched_without_a_plan(driver: EmulatedDriver) -> None:
    x = on_gpu([[1.5, -2.0], [3.0, 4.0]])
    launches = driver.launches
    assert [x[1, 0].item(), x[0, 1].item(), float(x[1, 1])] == [3.0, -2.0, 4.0]
    assert driver.launches == launches
    for dtype in (pf.bfloat16, pf.float16, pf.int8, pf.bool, pf.complex64, pf.float64, pf.int64):
        assert pf.ones(1, dtype=dtype).item() == 1
    assert (x[0] > 0)[0].item() is True


def test_whole_numbers_made_of_one_and_constants_take_no_kernel(driver: EmulatedDriver) -> None:
    x, small = pf.arange(8) * 3, pf.tensor([100, 7], dtype=pf.int8) + 0
    pf.eval(x, small)
    before = driver.launches
    assert [(x[2] + 32).item(), ((x[3] - 1) * 5).item(), x.reshape(2, 4)[1, 1].item(), int(9 - 2 * x[1])] == [
        38,
        40,
        15,
        3,
    ]
    assert (small[0] + 100).item() == -56  # it wraps as a kernel's does
    assert driver.launches == before
    ends = [pf.arange(100)[i : i + 2].tolist() for i in x[:3]]
    assert ends == [[0, 1], [3, 4], [6, 7]]
    assert [(x[2] * x[1]).item(), (x[1] * 0.5).item(), (x[1] / 2).item()] == [18, 1.5, 1.5]


def test_few_bytes_are_sent_and_fetched_side_by_side(driver: EmulatedDriver) -> None:
    """More of them than one piece of pinned memory holds, while earlier ones may be under way."""
    kept = [pf.tensor(np.full(1000, n, np.float32)) for n in range(150)]
    pf.eval(*kept)
    assert [int(t[n].item()) for n, t in enumerate(kept)] == list(range(150))
    gpu = devices._open[NAME].gpu
    gpu.empty_cache()
    assert gpu.pinned.stats.allocated == 0


def test_parts_that_are_put_together_are_evaluated_before(driver: EmulatedDriver, said: list[int]) -> None:
    def run(seed: int) -> list[bytes]:
        made = _parts(seed)
        pf.eval(*made)
        return [t.numpy().tobytes() for t in made]

    for seed in range(30, 60):
        run(seed)
    said.clear()
    misses = plan_stats.misses
    found = [run(seed) for seed in range(60, 70)]
    assert plan_stats.misses == misses and max(said) > known.RAN
    with pf.device("cpu"):
        assert [run(seed) for seed in range(60, 70)] == found
