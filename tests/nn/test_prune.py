"""nn.utils.prune and the rest of nn.utils.parametrize against torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune as torch_prune

import pyflame as pf
from pyflame import nn
from pyflame.nn.utils import prune


def pair() -> tuple[Any, Any]:
    """The same convolution and layer in both libraries."""
    rng = np.random.default_rng(0)
    made = []
    values = [rng.standard_normal(s).astype(np.float32) for s in ((4, 3, 2, 2), (4,), (3, 4), (3,))]
    for lib in (pf, torch):
        model = lib.nn.Sequential(lib.nn.Conv2d(3, 4, 2), lib.nn.Linear(4, 3))
        with lib.no_grad():
            for p, value in zip(model.parameters(), values, strict=True):
                p.copy_(lib.tensor(value))
        made.append(model)
    return made[0], made[1]


def both(lib: Any, model: Any) -> list[tuple[Any, str]]:
    return [(model[0], "weight"), (model[1], "weight"), (model[1], "bias")]


def scores(lib: Any) -> Any:
    return lib.tensor(np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32))


Case = Callable[[Any, Any, Any], Any]
CASES: dict[str, Case] = {
    "identity": lambda lib, u, m: u.identity(m[1], "weight"),
    "l1": lambda lib, u, m: u.l1_unstructured(m[1], "weight", amount=0.4),
    "l1 count": lambda lib, u, m: u.l1_unstructured(m[0], "weight", amount=7),
    "l1 nothing": lambda lib, u, m: u.l1_unstructured(m[0], "bias", amount=0),
    "l1 all": lambda lib, u, m: u.l1_unstructured(m[0], "bias", amount=1.0),
    "l1 scores": lambda lib, u, m: u.l1_unstructured(m[1], "weight", 0.5, importance_scores=scores(lib)),
    "l1 twice": lambda lib, u, m: [u.l1_unstructured(m[0], "weight", amount=0.3) for _ in range(3)],
    "l2 slices": lambda lib, u, m: u.ln_structured(m[0], "weight", amount=0.5, n=2, dim=0),
    "l1 slices of the last": lambda lib, u, m: u.ln_structured(m[1], "weight", amount=1, n=1, dim=-1),
    "max norm": lambda lib, u, m: u.ln_structured(m[1], "weight", amount=2, n=float("inf"), dim=1),
    "slices after slices": lambda lib, u, m: [u.ln_structured(m[0], "weight", 1, n=2, dim=d) for d in (0, 1, 0)],
    "slices after elements": lambda lib, u, m: [
        u.l1_unstructured(m[1], "weight", 0.3), u.ln_structured(m[1], "weight", 0.34, n=2, dim=0),
        u.custom_from_mask(m[1], "weight", lib.tensor([[1, 0, 1, 1]] * 3)),
    ],
    "a mask": lambda lib, u, m: u.custom_from_mask(m[1], "bias", lib.tensor([1, 0, 1])),
    "global": lambda lib, u, m: u.global_unstructured(both(lib, m), pruning_method=u.L1Unstructured, amount=0.3),
    "global twice": lambda lib, u, m: [
        u.l1_unstructured(m[1], "weight", 2), u.global_unstructured(both(lib, m), u.L1Unstructured, amount=10),
    ],
    "global scores": lambda lib, u, m: u.global_unstructured(
        both(lib, m), u.L1Unstructured, {(m[1], "weight"): scores(lib)}, amount=0.3
    ),
    "removed": lambda lib, u, m: u.remove(u.l1_unstructured(m[1], "weight", amount=0.4), "weight"),
}  # fmt: skip


def trained(lib: Any, model: Any) -> list[Any]:
    """Gradients and values after steps of training, in which pruned elements stay zero."""
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-3)
    x = lib.tensor(np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32))
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    model(x)
    found = [getattr(m, n).detach().numpy() for m in model for n in ("weight", "bias")]
    return [*found, *(p.grad.numpy() for p in model.parameters())]


@pytest.mark.parametrize("case", CASES)
def test_against_torch(case: str) -> None:
    ours, theirs = pair()
    CASES[case](pf, prune, ours)
    CASES[case](torch, torch_prune, theirs)
    assert prune.is_pruned(ours) is torch_prune.is_pruned(theirs)
    want = theirs.state_dict()
    assert sorted(ours.state_dict()) == sorted(want)
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), want[name].numpy(), err_msg=name)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    for a, b in zip(trained(pf, ours), trained(torch, theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_by_chance() -> None:
    layer = prune.random_unstructured(nn.Linear(5, 4), "weight", 0.25)
    assert float((layer.weight_mask == 0).sum()) == 5
    prune.random_unstructured(layer, "weight", 5)  # of those that are left
    assert float((layer.weight_mask == 0).sum()) == 10
    slices = prune.random_structured(nn.Linear(5, 4), "weight", 0.5, dim=0)
    assert sorted(slices.weight_mask.sum(1).tolist()) == [0.0, 0.0, 5.0, 5.0]


def test_own_methods_and_containers() -> None:
    class Every(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask.reshape(-1)[::2] = 0
            return mask

    layer = nn.Linear(4, 2)
    Every.apply(layer, "bias")
    np.testing.assert_array_equal(layer.bias_mask.numpy(), [0, 1])
    again = prune.l1_unstructured(layer, "bias", 1)
    (hook,) = again._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2 and isinstance(hook[0], Every)
    np.testing.assert_array_equal(layer.bias_mask.numpy(), [0, 0])
    np.testing.assert_array_equal(prune.L1Unstructured(2).prune(pf.tensor([3.0, -1.0, 2.0])).numpy(), [3, 0, 0])
    twin = nn.Linear(4, 2)
    prune.identity(twin, "bias")
    twin.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(twin(pf.ones(1, 4)).detach().numpy(), layer(pf.ones(1, 4)).detach().numpy())


def test_inside_of_jit() -> None:
    layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
    want = layer(pf.ones(1, 4)).detach().numpy()
    np.testing.assert_allclose(pf.jit(layer)(pf.ones(1, 4)).detach().numpy(), want, rtol=1e-6)


ERRORS: dict[str, tuple[Any, str, Any]] = {
    "no amount": (TypeError, "expected a number as amount", lambda u, m: u.l1_unstructured(m, "weight", "x")),
    "below": (ValueError, "at least 0", lambda u, m: u.l1_unstructured(m, "weight", -1)),
    "above": (ValueError, r"in \[0, 1\]", lambda u, m: u.random_unstructured(m, "weight", 1.5)),
    "too many": (ValueError, "at most the 2", lambda u, m: u.l1_unstructured(m, "bias", 3)),
    "a vector": (ValueError, "at least 2 axes", lambda u, m: u.random_structured(m, "bias", 1, 0)),
    "an axis": (IndexError, "dim within 2 axes but got 2", lambda u, m: u.ln_structured(m, "weight", 1, 2, 2)),
    "not pruned": (ValueError, "expected a pruned tensor", lambda u, m: u.remove(m, "weight")),
    "global slices": (TypeError, "unstructured", lambda u, m: u.global_unstructured(
        [(m, "weight")], u.RandomStructured, amount=1)),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    kind, text, call = ERRORS[case]
    layer = nn.Linear(4, 2)
    with pytest.raises(kind):
        call(torch_prune, torch.nn.Linear(4, 2))
    with pytest.raises(kind, match=text):
        call(prune, layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and not prune.is_pruned(layer)


def test_scores_and_masks_of_other_shapes() -> None:
    with pytest.raises(pf.ShapeError, match=r"importance_scores of shape \(2,\)"):
        prune.l1_unstructured(nn.Linear(4, 2), "bias", 1, importance_scores=pf.ones(3))
    with pytest.raises(pf.ShapeError, match=r"a mask of shape \(2,\) but got \(3,\)"):
        prune.custom_from_mask(nn.Linear(4, 2), "bias", pf.ones(3))
    container = prune.PruningContainer()
    with pytest.raises(TypeError, match="a BasePruningMethod"):
        container.add_pruning_method(3)  # type: ignore[arg-type]


# --- parametrize ------------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def test_cached() -> None:
    layer, fn = nn.Linear(2, 2), Counting()
    nn.utils.parametrize.register_parametrization(layer, "weight", fn)
    fn.calls = 0
    with nn.utils.parametrize.cached():
        with nn.utils.parametrize.cached():
            first = layer.weight
        (layer(pf.ones(1, 2)) + layer(pf.ones(1, 2))).sum().backward()
        assert fn.calls == 1 and layer.weight is first
        layer.weight = pf.ones(2, 2)  # type: ignore[assignment]
        assert layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]] and fn.calls == 2
        jitted = pf.jit(layer)(pf.ones(1, 2))
        assert jitted.shape == (1, 2) and layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    calls = fn.calls
    assert layer.weight is not layer.weight and fn.calls == calls + 2
    assert layer.parametrizations.weight.original.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


@pytest.mark.parametrize("name", [None, "weight"])
def test_transfer(name: str | None) -> None:
    for lib in (pf, torch):
        source = lib.nn.utils.parametrizations.weight_norm(lib.nn.Linear(3, 2))
        target = lib.nn.Linear(3, 2)
        same = lib.nn.utils.parametrize.transfer_parametrizations_and_params(source, target, name)
        assert same is target and sorted(target.state_dict()) == sorted(source.state_dict())
        assert target.parametrizations.weight.original0 is source.parametrizations.weight.original0
        np.testing.assert_array_equal(target.weight.detach().numpy(), source.weight.detach().numpy())
        empty = lib.nn.Module()
        lib.nn.utils.parametrize.transfer_parametrizations_and_params(source, empty)
        assert empty.weight.shape == (2, 3)
        plain = lib.nn.Linear(2, 2)
        assert lib.nn.utils.parametrize.transfer_parametrizations_and_params(plain, target) is target
    copied = copy.deepcopy(target)
    assert copied.weight.shape == (2, 3)
