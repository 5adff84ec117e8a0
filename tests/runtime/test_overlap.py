"""Captured launches that begin while those before them end: which ones may, and that every kernel waits itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.targets import TARGETS
from pyflame.engine import capture, devices
from pyflame.engine.branches import Step
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_source
from tests.emulated import EmulatedDriver, emulated_device
from tests.plans import plan_of

NAME = DeviceId("rocm", 43)
X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


def three(x: pf.Tensor) -> pf.Tensor:
    """Three launches, of which none can be fused with another."""
    return x.cumsum(1).cumsum(0).cumsum(1)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted")  # or launches are given again, to compare
    device = devices._open.setdefault(NAME, emulated_device(NAME.index))
    assert isinstance(device.driver, EmulatedDriver)
    with pf.device(str(NAME)):
        yield device.driver


def launches_of(driver: EmulatedDriver, step: Callable[[pf.Tensor], pf.Tensor], calls: int) -> list[bool]:
    """Which of the launches of so many calls may begin early."""
    x = pf.tensor(X)
    driver.early.clear()
    for _ in range(calls):
        np.testing.assert_allclose(step(x).numpy(), three(pf.tensor(X, device="cpu")).numpy(), rtol=1e-6)
    return list(driver.early)


@pytest.mark.slow
def test_all_of_a_graph_but_its_first(driver: EmulatedDriver) -> None:
    step = pf.jit(three)
    one_by_one = launches_of(driver, step, 1)
    assert one_by_one == [False] * 3
    captured = launches_of(driver, step, 3)
    assert captured and captured == [False, True, True] * (len(captured) // 3)


def test_none_where_it_is_switched_off(driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_GRAPH_OVERLAP", "0")
    found = launches_of(driver, pf.jit(three), 3)
    assert found and not any(found)


@pytest.mark.parametrize(("after", "early"), [(-1, True), (1, False)])
def test_not_behind_what_another_branch_does(
    driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch, after: int, early: bool
) -> None:
    """Launches 0 and 2 are in one branch, 1 is in the other; 2 waits for it or not."""
    monkeypatch.setattr(capture, "steps", lambda plan: [Step(0, False, -1), Step(1, True, 0), Step(2, False, after)])
    step = pf.jit(three)
    assert len(launches_of(driver, step, 1)) == 3
    found = launches_of(driver, step, 1)
    assert found == [False, False, early]


def programs() -> dict[str, Callable[[], Any]]:
    x = pf.tensor(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    q = x.reshape(1, 4, 16, 64)
    return {
        "generated": lambda: (x * 2).sum(0),
        "product": lambda: x @ x.T,
        "sort": lambda: pf.sort(x, 1)[0],
        "scan": lambda: x.cumsum(0),
        "scatter": lambda: pf.index_add(x, 0, pf.tensor([1, 1]), x[:2]),
        "attention": lambda: pf.nn.functional.scaled_dot_product_attention(q, q, q),
        "convolution": lambda: pf.nn.functional.conv2d(q, q.reshape(4, 4, 8, 32)),
        "pool": lambda: pf.nn.functional.max_pool2d(q, 2),
    }


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("target", ["gfx942", "sm_90"])
def test_every_kernel_waits(target: str, name: str) -> None:
    plan = plan_of(programs()[name](), target=target)
    for launch in plan.launches:
        text = gpu_source(launch, TARGETS[target]).text
        assert text.count("pf_await();") == text.count("PF_GLOBAL") > 0


def few_rows(weight: pf.Tensor) -> pf.Tensor:
    return pf.linear(pf.ones(1, 2048, dtype=pf.bfloat16).contiguous(), weight)


def asks_early(*outputs: pf.Tensor, target: str = "sm_90", given: pf.Tensor | None = None) -> bool:
    """Whether the product asks for its weight before it waits. `given`: an input whose memory the last output takes."""
    graph = PendingGraph([y._node for y in outputs], keep_held=False)
    taken = {} if given is None else {graph.inputs.index(given._node): len(outputs) - 1}
    launches = draft_plan(graph, TARGETS[target], taken).launches
    (text,) = [t for x in launches if "pf_gemm_dots" in (t := gpu_source(x, TARGETS[target]).text)]
    assert ("pf_await();" in text) == ("EARLY = 0" in text)
    return "EARLY = 1" in text


def test_a_weight_is_asked_for_early_where_no_launch_writes_it() -> None:
    weight = pf.tensor(np.ones((64, 2048), np.float32), dtype=pf.bfloat16)
    pf.eval(weight)
    assert asks_early(few_rows(weight))
    assert not asks_early(few_rows(weight), target="gfx942")  # nothing overlaps there
    assert not asks_early(few_rows(weight * 2))  # a launch before it computes it
    assert asks_early(few_rows(weight), weight + 1)
    assert not asks_early(few_rows(weight), weight + 1, given=weight)
    weight[0] = 2.0
    assert not asks_early(few_rows(weight))  # a copy, part of which was assigned
