"""torch.func: Jacobians, their products, and modules as functions, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentError, GradientError, ShapeError

X, Y = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([1.0, 2.0, 3.0])


def args(lib: Any) -> tuple[Any, Any]:
    return lib.tensor(X), lib.tensor(Y)


def two(lib: Any) -> Callable[..., Any]:
    """A function of two tensors with two results, in a structure."""
    return lambda x, y: (lib.sin(x) * y.sum(), {"a": (x * x).sum() + y.prod()})


def one(lib: Any) -> Callable[..., Any]:
    return lambda x: lib.sin(x).prod()


CASES: dict[str, Callable[[Any], Any]] = {
    "jacrev": lambda lib: lib.func.jacrev(two(lib), argnums=(0, 1))(*args(lib)),
    "jacrev of one argument": lambda lib: lib.func.jacrev(two(lib), argnums=1)(*args(lib)),
    "jacrev with aux": lambda lib: lib.func.jacrev(lambda x: (x * 2, x.sum()), has_aux=True)(lib.tensor(Y)),
    "jacrev of a constant": lambda lib: lib.func.jacrev(lambda x: lib.ones(2))(lib.tensor(Y)),
    "jacrev of a dict": lambda lib: lib.func.jacrev(lambda d: d["x"].sum() * d["y"])(
        {"x": lib.tensor(X), "y": lib.tensor(Y)}
    ),
    "jacfwd": lambda lib: lib.func.jacfwd(two(lib), argnums=(0, 1))(*args(lib)),
    "jacfwd of jacrev": lambda lib: lib.func.jacfwd(lib.func.jacrev(one(lib)))(lib.tensor(X)),
    "jacrev of jacfwd": lambda lib: lib.func.jacrev(lib.func.jacfwd(one(lib)))(lib.tensor(X)),
    "jvp": lambda lib: lib.func.jvp(two(lib), args(lib), args(lib)),
    "gradient of jvp": lambda lib: lib.func.grad(lambda x: lib.func.jvp(lib.sin, (x,), (x,))[1].sum())(lib.tensor(Y)),
    "vjp": lambda lib: lib.func.vjp(two(lib), *args(lib))[1](two(lib)(*args(lib))),
    "vjp with aux": lambda lib: lib.func.vjp(lambda x: (x.exp(), x * 2), lib.tensor(Y), has_aux=True)[::2],
    "linearize": lambda lib: lib.func.linearize(two(lib), *args(lib))[1](*args(lib)),
    "hessian": lambda lib: lib.func.hessian(one(lib))(lib.tensor(X)),
    "vmap of jacrev": lambda lib: lib.func.vmap(lib.func.jacrev(lib.sin))(lib.tensor(X)),
    "functionalize": lambda lib: lib.func.functionalize(lambda x: x.clone().add_(1))(lib.tensor(Y)),
    "batch norm without statistics": lambda lib: lib.func.replace_all_batch_norm_modules_(
        lib.nn.Sequential(lib.nn.BatchNorm1d(2, dtype=lib.float64))
    )(lib.tensor(X)),
    "functional_call": lambda lib: lib.func.functional_call(
        lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.Tanh()),
        {"0.weight": lib.ones(2, 3), "0.bias": lib.zeros(2)},
        lib.tensor(Y).float(),
    ),
    "gradient of functional_call": lambda lib: lib.func.grad(
        lambda w: lib.func.functional_call(lib.nn.Linear(3, 2, bias=False), {"weight": w}, (lib.ones(3),)).sum()
    )(lib.ones(2, 3)),
}


def values(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [values(v) for v in result]
    return {k: values(v) for k, v in result.items()} if isinstance(result, dict) else np.asarray(result.detach())


def compare(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        got, want = [got[k] for k in want], list(want.values())
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9, strict=True)


@pytest.mark.parametrize("name", list(CASES))
def test_against_torch(name: str) -> None:
    compare(values(CASES[name](pf)), values(CASES[name](torch)))


def test_results_are_on_no_tape() -> None:
    value, pull = pf.func.vjp(pf.sin, pf.tensor(Y))
    assert not value.requires_grad and not pull(pf.tensor(Y))[0].requires_grad
    assert not pf.func.jacrev(pf.sin)(pf.tensor(Y)).requires_grad


def test_a_module_keeps_its_own_parameters_and_ties_stay_tied() -> None:
    class Tied(pf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = pf.nn.Linear(2, 2, bias=False)
            self.b = pf.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    model = Tied()
    before = model.a.weight
    twice = {"a.weight": 2 * pf.eye(2)}
    assert pf.func.functional_call(model, twice, pf.ones(2)).tolist() == [4, 4]
    untied = pf.func.functional_call(model, twice, (pf.ones(2),), tie_weights=False)
    np.testing.assert_allclose(untied.numpy(), model.b(2 * pf.ones(2)).detach().numpy())
    assert model.a.weight is before and model.b.weight is before
    with pytest.raises(ShapeError):
        pf.func.functional_call(model, twice, pf.ones(3))
    assert model.a.weight is before


def test_running_statistics_go_to_the_buffers_given() -> None:
    layer = pf.nn.BatchNorm1d(2)
    state = {"running_mean": pf.zeros(2), "running_var": pf.ones(2)}
    pf.func.functional_call(layer, state, pf.ones(4, 2) * 10)
    assert layer.running_mean.tolist() == [0, 0]
    np.testing.assert_allclose(state["running_mean"].numpy(), [1.0, 1.0])


def test_an_ensemble() -> None:
    models = [pf.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = pf.func.stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3) and params["weight"].is_leaf and params["weight"].requires_grad
    assert buffers == {}
    x = pf.randn(5, 3)
    together = pf.vmap(lambda p: pf.func.functional_call(models[0], p, (x,)))(params)
    np.testing.assert_allclose(
        together.detach().numpy(), np.stack([m(x).detach().numpy() for m in models]), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: pf.func.jacrev(pf.sin, argnums=2)(pf.ones(2)), ArgumentError, "argnums among the 1 arguments"),
        (lambda: pf.func.jacrev(lambda x: 3)(pf.ones(2)), GradientError, "gives tensors but got int"),
        (lambda: pf.func.jvp(pf.sin, pf.ones(2), pf.ones(2)), ArgumentError, "a tuple of arguments"),
        (lambda: pf.func.jvp(pf.sin, (pf.ones(2),), (pf.ones(3),)), ShapeError, r"\[jvp\] expected tangents"),
        (lambda: pf.func.vjp(pf.sin, pf.ones(2))[1](pf.ones(3)), ShapeError, r"\[vjp\] expected gradients"),
        (lambda: pf.func.jacrev(pf.sin)(pf.ones(2).long()), GradientError, "floating-point"),
        (lambda: pf.func.jacrev(lambda x: x, has_aux=True)(pf.ones(2)), GradientError, "a pair"),
        (
            lambda: pf.func.functional_call(pf.nn.Linear(2, 2), {"wieght": pf.ones(2, 2)}, pf.ones(2)),
            ArgumentError,
            "did you mean 'weight'",
        ),
        (
            lambda: pf.func.functional_call(pf.nn.Linear(2, 2), {"bias": pf.ones(2)}, pf.ones(2), strict=True),
            ArgumentError,
            "'weight'",
        ),
        (lambda: pf.func.stack_module_state([]), ArgumentError, "at least one module"),
    ],
)
def test_refusals(wrong: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        wrong()


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(n: int, mode: str, reverse: bool) -> None:
    """A linear recurrence, as state-space models run it; generic functions see elements without the axis."""
    from pyflame._higher_order_ops.associative_scan import associative_scan

    random = np.random.default_rng(0)
    a, b = (random.normal(size=(3, n, 2)).astype("float32") for _ in range(2))
    ours = {k: pf.tensor(v).requires_grad_() for k, v in {"a": a, "b": b}.items()}
    theirs = {k: torch.tensor(v).requires_grad_() for k, v in {"a": a, "b": b}.items()}

    def combine(x: Any, y: Any) -> Any:
        assert x["a"].ndim == (2 if mode == "generic" else 3)
        return {"a": x["a"] * y["a"], "b": y["a"] * x["b"] + y["b"]}

    out = associative_scan(combine, ours, dim=1, reverse=reverse, combine_mode=mode)["b"]
    state, states = torch.zeros(3, 2), []
    for i in reversed(range(n)) if reverse else range(n):
        state = theirs["a"][:, i] * state + theirs["b"][:, i]
        states.append(state)
    expected = torch.stack(states[::-1] if reverse else states, 1)
    (out**2).sum().backward()
    (expected**2).sum().backward()
    for one, other in [(out, expected), *((ours[k].grad, theirs[k].grad) for k in ("a", "b"))]:
        if other is not None and one is not None:
            np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(pf.ShapeError, match="one size"):
        associative_scan(combine, [pf.ones(2), pf.ones(3)], 0)
