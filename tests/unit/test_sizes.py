"""Launches that came in many sizes are not tried out any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.state import mode
from pyflame.engine import devices
from pyflame.engine.evaluate import clear_plans, find_plan
from pyflame.engine.pending import PendingGraph
from pyflame.engine.sizes import FEW_SIZES
from pyflame.tensor import Tensor
from tests.emulated import emulated_device

NAME = DeviceId("rocm", 45)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("pyflame.engine.resize.learn", lambda *_: None)  # each is planned
    devices._open[NAME] = emulated_device(NAME.index, "gfx942")
    clear_plans()
    with pf.device(str(NAME)):
        yield
    clear_plans()
    del devices._open[NAME]


def untried(made: Tensor) -> list[bool]:
    """Of each product in the plan of a tensor."""
    with mode(one_by_one=True):
        plan, _ = find_plan(PendingGraph([made._node]), devices._open[NAME])
    return ["nothing was tried out" in x.why for x in plan.launches if x.kernel.anchor is not None]


def test_a_length_that_varies_is_not_tried_in_other_graphs_either() -> None:
    w = pf.zeros(16, 24)
    for n in range(FEW_SIZES):
        assert untried(pf.zeros(n + 40, 16) @ w) == [False]
    assert untried(pf.zeros(70, 16) @ w) == [True]
    assert untried((pf.zeros(71, 16) @ w).exp().sum(0)) == [True]
    assert untried(pf.zeros(72, 16) @ pf.zeros(16, 25)) == [False], "another product"
    assert untried((pf.zeros(73, 16) @ w) @ pf.zeros(24, 8)) == [True, True], "and all else of such a graph"


def test_layers_of_a_network_are_tried() -> None:
    """However many they are, where more than one number tells them apart."""
    for n in range(FEW_SIZES):
        assert untried(pf.zeros(40, 16 + n) @ pf.zeros(16 + n, 80 + 2 * n)) == [False]
    assert untried((pf.zeros(40, 50) @ pf.zeros(50, 90)).exp()) == [False]
