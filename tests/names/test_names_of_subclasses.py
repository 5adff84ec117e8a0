"""A subclass in a program may use any name for its own: also those of our bases that PyTorch's have not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf


def _more(ours: Any, theirs: Any) -> list[str]:
    """Private names of ours that are not marked as such, and public ones."""
    names = sorted(set(dir(ours)) - set(dir(theirs)))
    return [n for n in names if not n.startswith(("__", "_pf_", "_Module__", "_HookMethods__", "_StateDictMethods__"))]


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("the base class called what a subclass has under a name of its own")


def _parameter() -> Any:
    return pf.nn.Parameter(pf.ones(2))


OPTIMIZER = _more(pf.optim.Adam([_parameter()]), torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]))


@pytest.mark.parametrize("kind", ["method", "attribute"])
@pytest.mark.parametrize("name", OPTIMIZER)
def test_names_of_an_optimizer(name: str, kind: str) -> None:
    class Descent(pf.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.25})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            with pf.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["n"] = self.state[p].get("n", 0) + 1
                        p.add_(p.grad, alpha=-group["lr"])

    if kind == "method":
        setattr(Descent, name, _refuse)
    weight = _parameter()
    optimizer = Descent([weight])
    if kind == "attribute":
        setattr(optimizer, name, "its own")
    (weight * weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert weight.tolist() == [0.5, 0.5] and optimizer.state_dict()["state"][0]["n"] == 1
    optimizer.load_state_dict(optimizer.state_dict())
    pf.optim.lr_scheduler.StepLR(optimizer, 1)
    again = copy.deepcopy(optimizer)
    if kind == "attribute":
        assert getattr(again, name) == "its own"
    again.add_param_group({"params": [_parameter()]})


@pytest.mark.parametrize("kind", ["method", "attribute"])
@pytest.mark.parametrize("name", ["_training", "_register", "_named", "_get", "_saved", "_after", "_run_before"])
def test_names_of_a_module(name: str, kind: str) -> None:
    """And those that ours had."""
    assert set(_more(pf.nn.Module(), torch.nn.Module())) == {"rocm", "summary"}

    class Affine(pf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = _parameter()
            self.register_buffer("bias", pf.ones(2))
            if kind == "attribute":
                setattr(self, name, 0)

        def forward(self, x: Any) -> Any:
            return x * self.weight + self.bias

    if kind == "method":
        setattr(Affine, name, _refuse)
    module = Affine()
    module.register_forward_hook(lambda module, args, out: out + 1)
    assert module.training and not module.eval().training and not module.__dict__["training"]
    assert module(pf.ones(2)).tolist() == [3, 3]
    assert [n for n, _ in module.named_parameters()] == ["weight"]
    assert [n for n, _ in module.named_buffers()] == ["bias"]
    assert module.get_buffer("bias") is module.bias
    module.load_state_dict(copy.deepcopy(module).state_dict())
    if kind == "attribute":
        assert getattr(module, name) == 0


def test_a_rule_under_a_step_of_its_own() -> None:
    """What wraps the step of one of ours keeps its rule."""

    class Counted(pf.optim.Adam):
        steps = 0

        def step(self, *args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            return super().step(*args, **kwargs)

    values = []
    for kind in (pf.optim.Adam, Counted):
        weight = _parameter()
        optimizer = kind([weight], lr=0.1)
        for _ in range(2):
            (weight * weight).sum().backward()
            optimizer.step()
        values.append(weight.tolist())
    assert values[0] == values[1] and optimizer.steps == 2 and "exp_avg" in optimizer.state[weight]


def test_assigned_parts_of_complex_numbers() -> None:
    for library in (pf, torch):
        x = library.tensor([1 + 2j, 3 + 4j])
        x.real = library.tensor([5.0, 6.0])
        x.imag = -1.0
        assert x.tolist() == [5 - 1j, 6 - 1j]
        x[:1].real = 7.0
        assert x.tolist() == [7 - 1j, 6 - 1j]
        y = library.ones(2)
        y.real = library.zeros(2)
        assert y.tolist() == [0, 0]
        with pytest.raises(RuntimeError):
            y.imag = 1.0


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_modules_that_are_transforms_and_distributions(library: Any) -> None:
    """As flows of Pyro: the first base's __init__ leads to Module's."""
    d = library.distributions

    class Shift(d.transforms.Transform, library.nn.Module):  # type: ignore[misc,name-defined]
        domain = codomain = d.constraints.real
        bijective = True

        def __init__(self) -> None:
            super().__init__(cache_size=1)
            self.by = library.nn.Parameter(library.ones(2))

        __hash__ = library.nn.Module.__hash__

        def _call(self, x: Any) -> Any:
            assert self._cached_x_y == (None, None)  # flows read it
            return x + self.by

        def _inverse(self, y: Any) -> Any:
            return y - self.by

        def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
            return library.zeros_like(x)

    class Model(d.Normal, library.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__(library.zeros(2), library.ones(2))
            self.weight = library.nn.Parameter(library.ones(2))

    shift, model = Shift(), Model()
    y = shift(library.zeros(2))
    assert shift._cached_x_y[1] is y
    shift._cached_x_y = None, None
    flow = d.TransformedDistribution(d.Normal(library.zeros(2), library.ones(2)), [shift])
    (-flow.log_prob(library.zeros(2)).sum()).backward()
    assert [n for n, _ in shift.named_parameters()] == ["by"] and shift.by.grad.tolist() == [1, 1]
    assert [n for n, _ in model.named_parameters()] == ["weight"]
    assert abs(model.log_prob(model.weight).sum().item() + 2.8378770664) < 1e-6


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_a_wrapper_that_asks_what_it_wraps(library: Any) -> None:
    class Wrapper(library.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, wrapped: Any) -> None:
            super().__init__()
            self._wrapped = wrapped

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self._wrapped, name)

    wrapper = Wrapper(library.nn.Linear(2, 3))
    assert wrapper.out_features == 3 and list(wrapper.state_dict()) == ["_wrapped.weight", "_wrapped.bias"]
    with pytest.raises(AttributeError):
        wrapper.no_such_name


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_a_normal_vector_that_computes_its_factor_late(library: Any) -> None:
    """As GPyTorch's: __init__ of the base's base alone, and a property for the factor."""
    normal = library.distributions.MultivariateNormal

    class Late(normal):  # type: ignore[misc,valid-type]
        def __init__(self, loc: Any, covariance: Any) -> None:
            self.loc, self.covariance = loc, covariance
            super(normal, self).__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

        @property
        def _unbroadcasted_scale_tril(self) -> Any:
            return library.linalg.cholesky(self.covariance)

    loc, covariance = library.zeros(3, 2), library.tensor([[2.0, 0.5], [0.5, 1.0]])
    late, plain = Late(loc, covariance), normal(loc, covariance)
    value = library.tensor([0.3, -1.0])
    np.testing.assert_allclose(late.log_prob(value).numpy(), plain.log_prob(value).numpy(), rtol=1e-6)
    assert late.entropy().shape == plain.entropy().shape == (3,) and late.rsample((4,)).shape == (4, 3, 2)
    assert plain.expand((5, 3)).entropy().shape == (5, 3) == plain.expand((5, 3)).log_prob(value).shape
