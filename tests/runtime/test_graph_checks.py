"""Graphs that a driver replays wrongly: they are found before their results are used, and no graph is used then."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.engine import devices
from pyflame.engine.binding import Written
from pyflame.engine.graph_check import PIECE, _differing, compare
from pyflame.engine.pieces import pieces
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.runtime.rocm.troubles import GRAPHS, Trouble
from tests.emulated import EmulatedDriver, emulated_device
from tests.sim.machines import fake_hip

NAME = DeviceId("rocm", 48)
REPLAY = EmulatedDriver.graph_launch


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    if NAME not in devices._open:
        devices._open[NAME] = emulated_device(NAME.index)
    with pf.device(str(NAME)):
        yield devices._open[NAME]


def stepped() -> tuple[Callable[[pf.Tensor], pf.Tensor], pf.Tensor]:
    """A function that sums its arguments in a tensor, and that tensor."""
    total = pf.zeros(8) + 0.0
    pf.eval(total)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        total.add_(x)
        return total * 2.0

    return step, total


def wrong_from(monkeypatch: pytest.MonkeyPatch, first: int) -> list[int]:
    """Replays from a number on do nothing; gives a list that grows with each."""
    given: list[int] = []

    def replay(self: EmulatedDriver, *args: Any) -> None:
        given.append(len(given))
        if len(given) <= first:
            REPLAY(self, *args)

    monkeypatch.setattr(EmulatedDriver, "graph_launch", replay)
    return given


def run(step: Callable[[pf.Tensor], pf.Tensor], calls: int, before: int = 0) -> None:
    for n in range(before + 1, before + calls + 1):
        x = pf.ones(8) + 0.0
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2.0 * n))


def test_right_graphs_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = wrong_from(monkeypatch, 1000)
    step, total = stepped()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(step, 12)
    assert len(given) >= 8
    assert total.tolist() == [12.0] * 8


def test_a_graph_that_is_wrong_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = wrong_from(monkeypatch, 0)
    step, total = stepped()
    with pytest.warns(RuntimeWarning, match=r"gave other results than these one by one in 2 of 2 buffers"):
        run(step, 4)
    run(step, 4, before=4)
    assert len(given) == 1 and total.tolist() == [8.0] * 8
    assert "gave other results" in pf.explain(step, pf.ones(8)).replay


def test_a_graph_that_becomes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_GRAPH_CHECKS", "1")  # each second replay
    given = wrong_from(monkeypatch, 9)
    step, _ = stepped()

    def many() -> None:
        for _ in range(20):
            step(pf.ones(8))

    with pytest.warns(RuntimeWarning, match="gave other results"):
        many()
    assert 9 < len(given) <= 9 + 2 * 4  # of one of some graphs, which take turns


def test_what_is_trusted_and_what_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted")
    given = wrong_from(monkeypatch, 0)
    step, total = stepped()
    for _ in range(6):
        step(pf.ones(8))
    assert given and total.tolist() != [6.0] * 8  # nobody looked
    monkeypatch.setenv("PYFLAME_GRAPHS", "off")
    given.clear()
    step, _ = stepped()
    run(step, 6)
    assert not given and "PYFLAME_GRAPHS=off" in pf.explain(step, pf.ones(8)).replay
    monkeypatch.setenv("PYFLAME_GRAPHS", "sometimes")
    with pytest.raises(ArgumentError, match="expected checked or trusted or off but got 'sometimes'"):
        run(stepped()[0], 2)


def test_no_memory_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: Any) -> None:
        return None

    monkeypatch.setattr("pyflame.engine.trust.compare", no_room)
    given = wrong_from(monkeypatch, 1000)
    step, _ = stepped()
    run(step, 6)
    assert given


# --- known troubles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "target", "found"),
    [
        ("7.2.26015", "gfx942", ["clr/issues/279"]),
        ("7.13.0", "gfx942", []),
        ("7.1.0", "gfx942", ["kokkos/issues/8359"]),
        ("6.3.1", "gfx90a", []),
        ("7.2.4", "gfx950", ["hip/issues/3902"]),
        ("7.13.0", "gfx1201", ["hip/issues/3887"]),
        ("7.2.3", "gfx1100", []),  # rocm-systems#10021 is about updates, which there are none of
        ("7.1.0", "gfx1100", ["kokkos/issues/8359"]),
    ],
)
def test_troubles_by_version_and_target(
    version: str, target: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = HipDriver(fake_hip(target="gfx942" if target == "gfx90a" else target), "rocm")
    monkeypatch.setattr(driver, "version", lambda: version)
    assert [t.source.split("/", 4)[-1] for t in driver.graph_troubles(0)] == found
    driver.kind = f"sim:{target}"
    assert driver.graph_troubles(0) == []


def test_known_troubles_switch_graphs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Trouble("long graphs err", "https://example.com/1", "", launches=100, off=True)
    monkeypatch.setattr(EmulatedDriver, "graph_troubles", lambda self, index: [long])
    given = wrong_from(monkeypatch, 1000)
    run(stepped()[0], 6)
    assert given  # of two launches
    given.clear()
    monkeypatch.setattr(EmulatedDriver, "graph_troubles", lambda self, index: GRAPHS[:1])
    step, _ = stepped()
    run(step, 6)
    assert not given and "clr/issues/279" in pf.explain(step, pf.ones(8)).replay
    monkeypatch.setenv("PYFLAME_GRAPHS", "checked")
    run(stepped()[0], 6)
    assert given


# --- the comparison ---------------------------------------------------------------------------------------------------


class Memory:
    """A buffer on the emulated device, whose memory is the host's."""

    def __init__(self, device: Any, values: np.ndarray[Any, Any], state: bool = False) -> None:
        self.block = device.allocate(values.nbytes)
        size = values.nbytes
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.block.address))
        self.array = raw.view(values.dtype)
        self.array[:] = values
        self.written = Written(self.block.address, values.nbytes, pf.float32, state)


@pytest.mark.parametrize(("noise", "off", "told"), [(0.0, 1.0, True), (0.5, 1.0, False), (1e-3, 1.0, True)])
def test_noise_of_the_launches_themselves(device: Any, noise: float, off: float, told: bool) -> None:
    out, total = Memory(device, np.zeros(1000, np.float32)), Memory(device, np.full(4, 7.0, np.float32), state=True)
    runs = iter([0.0, noise, 0.0])

    def launch() -> None:
        out.array[:] = np.linspace(0, 100, 1000) + next(runs)
        total.array[:] += 1.0

    def replay() -> None:
        out.array[:] = np.linspace(0, 100, 1000) + off
        total.array[:] += 1.0

    found = compare(device, [out.written, total.written], replay, launch)
    assert found == ("1 of 2 buffers, the first of 4,000 bytes" if told else "")
    assert total.array.tolist() == [7.0 if told else 8.0] * 4  # as if nothing had run, or one run had


def test_large_buffers_are_compared_in_pieces() -> None:
    for nbytes in (0, 4, 64, 68, 100, 256, 300, 4096):
        found = pieces(nbytes, 64, 4)
        assert len(found) == min(-(-nbytes // 64), 4) and all(size <= 64 + 8 for _, size in found)
        if found:
            assert found[0][0] == 0 and sum(found[-1]) == nbytes
        if nbytes <= 256:
            assert set(range(nbytes)) == {at for start, size in found for at in range(start, start + size)}
    assert PIECE >= 1 << 20


def test_without_memory_nothing_runs(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Memory(device, np.zeros(8, np.float32))

    def refuse(nbytes: int) -> Any:
        raise OutOfMemoryError("[memory] full")

    monkeypatch.setattr(device, "allocate", refuse)
    assert compare(device, [out.written], pytest.fail, pytest.fail) is None


def check_one_byte_is_seen(device: Any, nbytes: int) -> None:
    """Wherever it lies; also by tests/sim/test_same.py."""
    for start in (0, 1):
        block, other, marks = (device.allocate(nbytes + 4) for _ in range(3))
        written = Written(other.address + start, nbytes, None, False)
        for place in {0, nbytes // 2, nbytes - 1}:
            for address in (block.address, written.address):
                device.fill(address, 7, nbytes)
            assert _differing(device, {written: block}, marks) == []
            device.fill(written.address + place, 8, 1)
            assert _differing(device, {written: block}, marks) == [written]


@pytest.mark.parametrize("nbytes", [1, 7, 8, 263, 70_000])
def test_one_byte_is_seen(device: Any, nbytes: int) -> None:
    check_one_byte_is_seen(device, nbytes)


def test_without_memory_for_another_run_a_graph_that_differs_is_wrong(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, total = Memory(device, np.zeros(8, np.float32)), Memory(device, np.full(4, 7.0, np.float32), state=True)
    allocate, room = device.allocate, 4  # the state's copy, those of what the graph wrote, and marks

    def refuse(nbytes: int) -> Any:
        nonlocal room
        room -= 1
        if room < 0:
            raise OutOfMemoryError("[memory] full")
        return allocate(nbytes)

    def launch() -> None:
        out.array[:] = 1.0
        total.array[:] += 1.0

    def replay() -> None:
        total.array[:] += 1.0

    monkeypatch.setattr(device, "allocate", refuse)
    assert compare(device, [out.written, total.written], replay, launch) == "1 of 2 buffers, the first of 32 bytes"
    assert total.array.tolist() == [7.0] * 4  # as if nothing had run
