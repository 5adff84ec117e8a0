"""Tensors of torch and of PyFlame in one call: a plain error that names the way out, or the right result."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

THEIRS = {
    "function": lambda t, p: torch.sin(p),
    "function of both": lambda t, p: torch.add(t, p),
    "list": lambda t, p: torch.cat([t, p]),
    "method": lambda t, p: t.add(p),
    "in place": lambda t, p: t.copy_(p),
    "in Python": lambda t, p: torch.einsum("i,i", t, p),
    "of nn.functional": lambda t, p: torch.nn.functional.mse_loss(t, p),
    "of linalg": lambda t, p: torch.linalg.norm(p),
    "parameter": lambda t, p: torch.relu(pf.nn.Parameter(p)),
    "layer": lambda t, p: torch.nn.Linear(3, 2)(p),
    "index": lambda t, p: t[p.long()],
}
OURS = {
    "operator": lambda t, p: t + p,
    "operator of ours": lambda t, p: p * t,
    "function": lambda t, p: pf.sin(t),
    "function of both": lambda t, p: pf.add(p, t),
    "reduction": lambda t, p: pf.sum(t),
    "layer": lambda t, p: pf.nn.Linear(3, 2)(t),
    "loss": lambda t, p: pf.nn.functional.mse_loss(p, t),
    "where": lambda t, p: pf.where(p > 0, t, p),
}


@pytest.mark.parametrize("name", THEIRS)
def test_functions_of_torch_refuse_our_tensors(name: str) -> None:
    with pytest.raises(pf.ArgumentTypeError, match=r"expected torch's tensors but .*to_torch\(\)"):
        THEIRS[name](torch.ones(3), pf.ones(3))


@pytest.mark.parametrize("name", OURS)
def test_functions_of_ours_refuse_tensors_of_torch(name: str) -> None:
    with pytest.raises(pf.DTypeError, match=r"but got torch\.Tensor.*pf\.tensor\(\.\.\.\)"):
        OURS[name](torch.ones(3), pf.ones(3))


def test_what_is_no_tensor_of_ours_is_called_by_its_librarys_name() -> None:
    with pytest.raises(pf.PyFlameError, match=r"got torch\.Parameter"):
        pf.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    with pytest.raises(pf.PyFlameError, match=r"got torch\.Linear"):
        pf.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(pf.PyFlameError, match=r"got torch\.Tensor"):
        pf.nn.Module().register_buffer("x", torch.ones(2))


@pytest.mark.parametrize("index", [[1], [[2, 0]], [True, False, True], 1], ids=str)
def test_tensors_of_torch_choose(index: Any) -> None:
    x = pf.arange(3.0)
    got = x[torch.tensor(index)]
    assert got.tolist() == torch.arange(3.0)[torch.tensor(index)].tolist()


def test_functions_of_others_still_take_our_tensors() -> None:
    class Named(pf.Tensor):
        pass

    def doubled(x: Any) -> Any:
        if pf.overrides.has_torch_function((x,)):
            return pf.overrides.handle_torch_function(doubled, (x,), x)
        return x * 2

    assert type(doubled(Named([1.0]))) is Named


def test_torch_in_torch_is_torch() -> None:
    assert pf.torch is pf
    assert torch.torch is torch
