"""nn.parallel's scatter, gather, replicate and parallel_apply, over two CPU devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.device import DeviceId
from pyflame.nn.parallel import gather, parallel_apply, replicate, scatter
from tests.second_cpu import SECOND, second_cpu

PLACES = [DeviceId("cpu", 0), SECOND]


class Pair(NamedTuple):
    x: Any
    y: Any


def test_a_batch_on_two_devices_is_one_on_one() -> None:
    with second_cpu():
        _on_two_devices()


def _on_two_devices() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4, bias=False)).eval()
    x: Any = pf.tensor(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32), requires_grad=True)
    whole = model(x)
    (whole**2).sum().backward()
    want = [p.grad.numpy().copy() for p in (*model.parameters(), x)]
    model.zero_grad()
    x.grad = None
    parts = scatter((x,), PLACES)
    assert [tuple(p[0].shape) for p in parts] == [(3, 3), (2, 3)]
    assert parts[1][0]._node.meta.device == SECOND
    copies: Any = replicate(model, PLACES)
    assert not list(copies[1].parameters()) and copies[1][0].weight._node.meta.device == SECOND
    out = gather(parallel_apply(copies, parts, devices=PLACES), PLACES[0])
    np.testing.assert_allclose(out.detach().numpy(), whole.detach().numpy(), rtol=1e-5, atol=1e-6)
    (out**2).sum().backward()
    for p, w in zip((*model.parameters(), x), want, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), w, rtol=1e-4, atol=1e-5)
    cut: Any = replicate(model, PLACES, detach=True)[0]
    assert not cut[0].weight.requires_grad


def test_structures() -> None:
    given = {"a": [pf.arange(4), 7], "b": Pair(pf.ones(4, 2), None)}
    parts = scatter(given, ["cpu", "cpu"])
    assert [p["a"][0].tolist() for p in parts] == [[0, 1], [2, 3]] and parts[1]["a"][1] == 7
    assert isinstance(parts[0]["b"], Pair) and parts[0]["b"].x.shape == (2, 2)
    assert [p.shape for p in scatter(pf.ones(2, 4), ["cpu", "cpu"], dim=1)] == [(2, 2), (2, 2)]
    assert len(scatter(pf.ones(1, 2), ["cpu", "cpu"])) == 1
    both = gather([{"x": (pf.ones(1), None)}, {"x": (pf.zeros(2), None)}], "cpu")
    assert both["x"][0].tolist() == [1.0, 0.0, 0.0] and both["x"][1] is None
    with pytest.warns(UserWarning, match="given as a vector"):
        assert gather([pf.tensor(1.0), pf.tensor(2.0)], "cpu").tolist() == [1.0, 2.0]
    shared = nn.Linear(2, 2)
    copy: Any = replicate(nn.Sequential(shared, shared), ["cpu"])[0]
    assert copy[0] is copy[1] and copy[0].weight is not shared.weight


def test_errors() -> None:
    with pytest.raises(pf.ArgumentError, match="the same keys"):
        gather([{"a": pf.ones(1)}, {"b": pf.ones(1)}], "cpu")
    with pytest.raises(pf.ArgumentError, match="but got str"):
        gather(["a", "b"], "cpu")
    with pytest.raises(pf.ArgumentError, match="for 1 modules but got 2"):
        parallel_apply([pf.sin], [1, 2])
    with pytest.raises(ZeroDivisionError):
        parallel_apply([lambda x: 1 / x], [(0,)])
