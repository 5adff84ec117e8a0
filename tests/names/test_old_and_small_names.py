"""Names that older programs use, and small modules of torch by their paths."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor

LIBRARIES = [pytest.param(torch, id="torch"), pytest.param(pf, id="pyflame")]


@pytest.mark.parametrize("args", [(1, 4), (0, 1, 0.25), (5, 1, -2), (2.5, 2.5)])
@pytest.mark.filterwarnings("ignore")
def test_range(args: Any) -> None:
    ours, theirs = pf.range(*args), torch.range(*args)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), strict=True)
    assert pf.range(*args, dtype=pf.float64).dtype is pf.float64


def test_range_that_leads_nowhere() -> None:
    with pytest.raises(pf.PyFlameError, match=r"\[range\] expected a step"):
        pf.range(1, 4, -1)


def test_types_of_tensors() -> None:
    x = pf.ones(2)
    assert x.type("torch.DoubleTensor").dtype is pf.float64 and x.type(pf.LongTensor).dtype is pf.int64
    assert not isinstance(x, pf.cuda.FloatTensor) and pf.cuda.FloatTensor.dtype is pf.float32
    with pytest.raises(AttributeError):
        pf.cuda.WrongTensor
    with machine(cuda=vendor("cuda", FakeDriver(kind="cuda"))):
        assert pf.cuda.LongTensor(2, 3).device == "cuda:0"
        there = pf.empty(2, device="cuda")
        assert isinstance(there, pf.cuda.FloatTensor) and not isinstance(there, pf.cuda.LongTensor)
        assert pf.ones(2, device="cpu").type_as(there).device == "cuda:0"
        assert pf.ones(2, device="cpu").type("torch.cuda.FloatTensor").device == "cuda:0"


@pytest.mark.parametrize("lib", LIBRARIES)
def test_multi_grad_hook(lib: Any) -> None:
    graph = importlib.import_module(f"{lib.__name__}.autograd.graph")
    log: list[Any] = []
    a, b, c = (lib.ones(1, requires_grad=True) for _ in range(3))
    shown = lambda found: [g if g is None else g.tolist() for g in found]  # noqa: E731
    handle = graph.register_multi_grad_hook([a, b, c], lambda found: log.append(shown(found)))
    first = graph.register_multi_grad_hook([a, b], lambda g: log.append("any"), mode="any")
    (2 * a + 3 * b + 4 * c).sum().backward()
    (5 * a + 6 * c).sum().backward()  # b gets none
    assert sorted(map(str, log)) == ["[[2.0], [3.0], [4.0]]", "[[5.0], None, [6.0]]", "any", "any"]
    handle.remove(), first.remove()
    (a * b * c).sum().backward()
    assert len(log) == 4


def test_hooks_on_saved_tensors_are_not_there() -> None:
    for name in ("saved_tensors_hooks", "save_on_cpu"):
        with pytest.raises(pf.NotSupportedError, match=rf"\[{name}\].*pf\.checkpoint"):
            getattr(pf.autograd.graph, name)()
    with pf.autograd.graph.allow_mutation_on_saved_tensors(), pf.autograd.graph.disable_saved_tensors_hooks("no"):
        pass


def test_ranges_of_profilers() -> None:
    nvtx = importlib.import_module("pyflame.cuda.nvtx")
    with pf.profile() as p:
        assert (nvtx.range_push("outer"), nvtx.range_push("inner")) == (0, 1)
        pf.eval(pf.ones(3).exp())
        assert (nvtx.range_pop(), nvtx.range_pop()) == (1, 0)
        with nvtx.range("step {}", 3):
            nvtx.mark("here")
    assert {r.path for r in p.ranges} >= {("outer",), ("outer", "inner"), ("step 3",), ("step 3", "here")}
    assert nvtx.range_pop() == -2


@pytest.mark.parametrize("lib", LIBRARIES)
def test_consume_prefix(lib: Any) -> None:
    consume = lib.nn.modules.utils.consume_prefix_in_state_dict_if_present
    wrapped = lib.nn.Module()
    wrapped.module = lib.nn.Sequential(lib.nn.Linear(1, 1))
    state = wrapped.state_dict()
    consume(state, "module.")
    assert list(state) == ["0.weight", "0.bias"] and sorted(state._metadata) == ["", "0"]
    lib.nn.Sequential(lib.nn.Linear(1, 1)).load_state_dict(state)


def test_paths() -> None:
    types = importlib.import_module("pyflame.types")
    assert isinstance(1.0, types.Number) and isinstance(pf.ones(1).untyped_storage(), pf.UntypedStorage)
    dlpack = importlib.import_module("pyflame.utils.dlpack")
    assert dlpack.from_dlpack(torch.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(pf.NotSupportedError, match=r"pf\.load"):
        importlib.import_module("pyflame.utils.model_zoo").load_url("https://download.pytorch.org/x.pth")
    assert pf.is_storage(pf.ones(1).storage()) and not pf.is_storage(pf.ones(1))
    with pf.no_grad():
        assert pf.is_inference_mode_enabled()
    assert not pf.is_anomaly_enabled() and not pf.set_flush_denormal(True) and not pf.is_autocast_cache_enabled()
    pf.clear_autocast_cache(), pf.set_autocast_cache_enabled(True)
    assert nn.modules.utils._pair(2) == (2, 2)
