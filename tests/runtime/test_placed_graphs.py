"""Plans on a caller's memory: places that come back are replayed as graphs, others are launched kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import devices, placed
from pyflame.transform.direct import Direct, direct
from tests.emulated import EmulatedDriver, emulated_device

NAME = DeviceId("rocm", 47)


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    if NAME not in devices._open:
        devices._open[NAME] = emulated_device(NAME.index)
    with pf.device(str(NAME)):
        yield devices._open[NAME]


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each replay."""
    given: list[int] = []
    launch = EmulatedDriver.graph_launch

    def replay(self: EmulatedDriver, graph: int, stream: int) -> None:
        given.append(graph)
        launch(self, graph, stream)

    monkeypatch.setattr(EmulatedDriver, "graph_launch", replay)
    return given


def planned(fn: Callable[..., pf.Tensor], x: np.ndarray) -> Direct:
    replay, _ = pf.jit(fn).find((pf.tensor(x),), {})
    made = direct(replay)
    assert made is not None
    return made


def summed(x: pf.Tensor) -> pf.Tensor:
    return (x * 2.0 + 1.0).sum(1)


def run(plan: Direct, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The emulated GPU reads and writes the host's memory."""
    plan.run([x.ctypes.data], [out.ctypes.data], [x])
    return out


def aligned(*shape: int) -> np.ndarray:
    """Memory as GPUs' allocators give it."""
    room = np.zeros(int(np.prod(shape)) * 4 + 512, np.uint8)
    start = -room.ctypes.data % 256
    return room[start : start + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)


def test_the_second_time_places_are_met_they_get_a_graph(replays: list[int]) -> None:
    x, out = aligned(6, 40), aligned(6)
    plan = planned(summed, x)
    for turn in range(5):
        x[:] = np.random.default_rng(turn).normal(size=x.shape)
        np.testing.assert_allclose(run(plan, x, out), (x * 2 + 1).sum(1), rtol=1e-5)
        assert len(replays) == turn  # the first of them is compared with the launches
    run(plan, x, aligned(6))
    assert len(replays) == 4 and not plan.graphs.why


def test_places_that_take_turns(replays: list[int]) -> None:
    x, outs = aligned(6, 40), [aligned(6) for _ in range(3)]
    plan = planned(summed, x)
    for _ in range(4):
        for out in outs:
            run(plan, x, out)
    assert len(replays) == 9


def test_graphs_that_nobody_comes_back_to_are_given_up(replays: list[int]) -> None:
    x, kept = aligned(6, 40), []
    plan = planned(summed, x)
    for _ in range(placed.MAX_WASTED + placed.MAX_GRAPHS + 1):
        kept.append(aligned(6))  # so that its place is not given away again
        for _ in range(2):
            np.testing.assert_allclose(run(plan, x, kept[-1]), (x * 2 + 1).sum(1), rtol=1e-5)
    assert "elsewhere" in plan.graphs.why
    count = len(replays)
    np.testing.assert_allclose(run(plan, x, kept[-1]), (x * 2 + 1).sum(1), rtol=1e-5)
    assert len(replays) == count


def test_random_numbers_differ_from_replay_to_replay(replays: list[int]) -> None:
    generator = pf.Generator(3)
    x, out = aligned(64), aligned(64)
    plan = planned(lambda x: x + pf.rand(64, generator=generator), x)
    found = [run(plan, x, out).copy() for _ in range(5)]
    assert len(replays) == 4
    assert len({f.tobytes() for f in found}) == 5


def test_a_graph_that_computes_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedDriver, "graph_launch", lambda *_: None)
    x, out = aligned(6, 40), aligned(6)
    x[:] = 3.0
    plan = planned(summed, x)
    run(plan, x, out)
    with pytest.warns(RuntimeWarning, match="gave other results"):
        run(plan, x, out)
    for _ in range(2):
        out[:] = 0
        np.testing.assert_array_equal(run(plan, x, out), np.full(6, 280.0))


def test_graphs_can_be_switched_off(replays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_GRAPHS", "off")
    x, out = aligned(6, 40), aligned(6)
    plan = planned(summed, x)
    for _ in range(4):
        run(plan, x, out)
    assert not replays
