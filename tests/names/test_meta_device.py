"""device="meta": tensors with a shape and a dtype and no values, as models are built before their weights come."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import pyflame as pf
from pyflame.engine.evaluate import plan_stats
from tests.needs import needs_torch, torch

BOTH = pytest.mark.parametrize("library", [pf, pytest.param(torch, marks=needs_torch)], ids=["pyflame", "torch"])


@BOTH
def test_tensors_of_meta_know_shapes_and_dtypes(library: Any) -> None:
    x = library.empty(2, 3, device="meta")
    assert x.is_meta and x.device == library.device("meta") and x.device.type == "meta" and x.device.index is None
    assert tuple((x @ library.randn(3, 4, device="meta")).shape) == (2, 4)
    assert x.to(library.float16).dtype is library.float16 and library.ones(2).to("meta").is_meta
    assert tuple(x.t().softmax(-1)[1:].shape) == (2, 2) and x.uniform_().add_(1).is_meta
    assert "device='meta'" in repr(x) and str(library.device("meta")) == "meta"


@BOTH
def test_a_model_is_built_on_meta_and_gets_memory_later(library: Any) -> None:
    with library.device("meta"):
        model = library.nn.Sequential(library.nn.Linear(3, 4), library.nn.BatchNorm1d(4), library.nn.Linear(4, 1))
    assert all(p.is_meta for p in model.parameters()) and copy.deepcopy(model)[0].weight.is_meta
    assert sum(p.numel() for p in model.parameters()) == 29
    model.to_empty(device="cpu")
    for layer in model:
        layer.reset_parameters()
    assert model(library.ones(2, 3)).tolist() and model[0].weight.device.type == "cpu"


@BOTH
def test_weights_are_assigned_to_a_model_on_meta(library: Any) -> None:
    source, model = library.nn.Linear(3, 4), library.nn.Linear(3, 4, device="meta")
    model.load_state_dict(source.state_dict(), assign=True)
    assert isinstance(model.weight, library.nn.Parameter) and model.weight.requires_grad
    x = library.ones(2, 3)
    assert model(x).tolist() == source(x).tolist()


@BOTH
@pytest.mark.parametrize("read", ["item", "cpu", "tolist", "numpy", "__bool__"])
def test_there_are_no_values_to_read(library: Any, read: str) -> None:
    with pytest.raises(pf.DeviceError if library is pf else (RuntimeError, NotImplementedError, TypeError)):
        getattr(library.empty(1, device="meta") * 2, read)()


def test_the_error_names_the_way_out() -> None:
    with pytest.raises(pf.DeviceError, match=r"expected a tensor with values but got one of the meta device.*to_empty"):
        pf.zeros(2, device="meta").cpu()
    with pf.device("meta"):
        layer = pf.nn.Linear(2, 2)
    with pytest.raises(pf.DeviceError, match="meta device"):
        layer(pf.ones(1, 2)).numpy()


def test_nothing_is_planned_for_meta() -> None:
    before = plan_stats.misses
    x = pf.randn(4, 4, device="meta", requires_grad=True)
    loss = (x @ x).relu().sum()
    loss.backward()
    pf.eval(loss, x.grad)
    assert plan_stats.misses == before and x.grad is not None and x.grad.shape == (4, 4)


@BOTH
@pytest.mark.parametrize("move", [lambda x: x.to("cpu"), lambda x: x.cpu(), lambda x: x.tolist()])
def test_copies_out_of_meta_are_not_implemented(library: Any, move: Any) -> None:
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        move(library.empty(2, device="meta"))


@BOTH
def test_what_is_made_of_meta_stays_there(library: Any) -> None:
    with library.device("meta"):
        layer = library.nn.Linear(3, 4)
        loss = (layer(library.zeros(2, 3)).softmax(-1) / library.ones(4)).sum()
    loss = loss * 2
    loss.backward()
    assert loss.is_meta and layer.weight.grad.is_meta and (layer.weight + 1).is_meta
    assert layer.weight.data_ptr() == 0


@BOTH
def test_loading_without_assign_says_that_nothing_is_loaded(library: Any) -> None:
    layer = library.nn.Linear(3, 4, device="meta")
    with pytest.warns(UserWarning, match="meta"):
        layer.load_state_dict(library.nn.Linear(3, 4).state_dict())
    assert layer.weight.is_meta
