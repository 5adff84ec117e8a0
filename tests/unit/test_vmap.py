"""pf.vmap and pf.func, against torch.func."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

CASES: dict[str, Any] = {
    "one argument": lambda lib: lib.func.vmap(lambda x: x.sum())(A(lib, 3, 4)),
    "two": lambda lib: lib.vmap(lib.dot)(A(lib, 3, 4), A(lib, 3, 4)),
    "one for all": lambda lib: lib.vmap(lib.mv, in_dims=(None, 0))(A(lib, 2, 4), A(lib, 3, 4)),
    "other axes": lambda lib: lib.vmap(lambda x: x * 2, in_dims=1, out_dims=-1)(A(lib, 3, 4, 2)),
    "keywords": lambda lib: lib.vmap(lambda x, y: x - y)(A(lib, 3), y=A(lib, 3, 2)),
    "structures": lambda lib: lib.vmap(lambda d: d["a"] @ d["b"], in_dims=({"a": 0, "b": None},))(
        {"a": A(lib, 3, 4), "b": A(lib, 4, 2)}
    ),
    "several results": lambda lib: lib.vmap(lambda x: (x, x.sum()), out_dims=(1, 0))(A(lib, 3, 4))[0],
    "nested": lambda lib: lib.vmap(lib.vmap(lib.dot, in_dims=(0, None)), in_dims=(None, 0))(A(lib, 3, 4), A(lib, 2, 4)),
    "gradients of each": lambda lib: lib.func.vmap(lib.func.grad(lambda x: (x**3).sum()))(A(lib, 3, 4)),
    "a number beside": lambda lib: lib.vmap(lambda x, k: x * k, in_dims=(0, None))(A(lib, 3), 2),
}


def A(lib: Any, *shape: int) -> Any:
    return lib.tensor(np.random.default_rng(sum(shape)).standard_normal(shape))


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    np.testing.assert_allclose(CASES[name](pf).numpy(), CASES[name](torch).numpy(), rtol=1e-10, strict=True)


def test_gradients_and_jit() -> None:
    x = A(pf, 3, 4).requires_grad_()
    batched = pf.vmap(lambda row: (row * row).sum())
    batched(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())
    np.testing.assert_allclose(pf.jit(batched)(x).detach().numpy(), batched(x).detach().numpy())


def test_random_numbers() -> None:
    def noisy(x: pf.Tensor) -> pf.Tensor:
        return x + pf.rand(4)

    x = pf.zeros(2, 4)
    with pytest.raises(pf.ArgumentError, match="random"):
        pf.vmap(noisy)(x)
    same, different = (pf.vmap(noisy, randomness=kind)(x).numpy() for kind in ("same", "different"))
    assert (same[0] == same[1]).all() and not (different[0] == different[1]).all()


def test_grad_and_value() -> None:
    gradient, value = pf.func.grad_and_value(lambda x: x**2)(pf.tensor(3.0))
    assert (gradient.item(), value.item()) == (6.0, 9.0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pf.vmap(3), pf.ArgumentError),  # type: ignore[arg-type]
        (lambda: pf.vmap(pf.dot, randomness="some"), pf.ArgumentError),
        (lambda: pf.vmap(pf.dot)(pf.ones(2, 3), pf.ones(3, 3)), pf.ShapeError),
        (lambda: pf.vmap(pf.neg)(pf.tensor(1.0)), pf.PyFlameError),
        (lambda: pf.vmap(pf.neg, in_dims=None)(pf.ones(2)), pf.ShapeError),
        (lambda: pf.vmap(pf.neg, in_dims=(0, 0))(pf.ones(2)), pf.ArgumentError),
        (lambda: pf.vmap(pf.neg, in_dims=4)(pf.ones(2)), pf.PyFlameError),
        (lambda: pf.vmap(lambda x: 3)(pf.ones(2)), pf.ArgumentError),
    ],
)
def test_refusals(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("lib", [pf, torch], ids=["pyflame", "torch"])
def test_examples_go_back_along_one_tape(lib: Any) -> None:
    """torchjd's Jacobians: the tape is freed behind the last example, as behind the one batched walk of PyTorch."""
    x = lib.arange(3.0).requires_grad_()
    y = x**2
    rows = lib.vmap(lambda g: lib.autograd.grad(y, x, g)[0])(lib.eye(3))
    assert rows.tolist() == [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]
    with pytest.raises(RuntimeError):
        lib.autograd.grad(y, x, lib.ones(3))
