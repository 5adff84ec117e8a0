"""torch.autograd.forward_ad against torch."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

X, V = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[1.0, -2.0], [0.5, 3.0]])


def forward_ad(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.autograd.forward_ad")


def tangent(lib: Any, fn: Callable[..., Any], *more: Any) -> Any:
    ad = forward_ad(lib)
    with ad.dual_level():
        duals = [ad.make_dual(lib.tensor(x), lib.tensor(v)) for x, v in ((X, V), *more)]
        return ad.unpack_dual(fn(*duals))


CASES: dict[str, Callable[[Any], Any]] = {
    "sin": lambda lib: tangent(lib, lib.sin),
    "matmul": lambda lib: tangent(lib, lambda x: x @ x.T),
    "softmax": lambda lib: tangent(lib, lambda x: x.softmax(-1)),
    "two": lambda lib: tangent(lib, lambda x, y: x * y.exp(), (V, X)),
    "one of two": lambda lib: tangent(lib, lambda x, y: y * 2, (V, X)),
    "indexing": lambda lib: tangent(lib, lambda x: x[0] * 2),
    "itself": lambda lib: tangent(lib, lambda x: x),
    "linear": lambda lib: tangent(lib, lambda x: x.sum()),
    "a piecewise constant": lambda lib: tangent(lib, lambda x: x.sign() * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_tangents(name: str) -> None:
    ours, theirs = CASES[name](pf), CASES[name](torch)
    np.testing.assert_allclose(ours.primal.detach().numpy(), theirs.primal.numpy(), rtol=1e-12)
    np.testing.assert_allclose(ours.tangent.detach().numpy(), theirs.tangent.numpy(), rtol=1e-12)


@pytest.mark.parametrize("lib", [pf, torch], ids=["pyflame", "torch"])
def test_what_has_no_tangent(lib: Any) -> None:
    ad = forward_ad(lib)
    x = lib.ones(2)
    assert ad.unpack_dual(x) == (x, None)
    with pytest.raises(RuntimeError):
        ad.make_dual(x, x)
    with ad.dual_level():
        dual = ad.make_dual(x, x)
        assert ad.unpack_dual(lib.zeros(2)).tangent is None and ad.unpack_dual(x * 2).tangent is None
        with pytest.raises(RuntimeError):
            ad.enter_dual_level()
        assert ad.unpack_dual(dual * 2).tangent.tolist() == [2.0, 2.0]
    assert ad.unpack_dual(dual).tangent is None
    with pytest.raises(RuntimeError):
        ad.exit_dual_level()


@pytest.mark.parametrize("lib", [pf, torch], ids=["pyflame", "torch"])
def test_a_module_and_a_hessian_vector_product(lib: Any) -> None:
    """As PyTorch's tutorial does it: parameters replaced by dual tensors; a gradient of a dual."""
    ad = forward_ad(lib)
    model = lib.nn.Linear(2, 2, bias=False)
    weight = lib.eye(2)
    with ad.dual_level():
        del model.weight
        model.weight = ad.make_dual(weight, lib.ones(2, 2))
        assert ad.unpack_dual(model(lib.tensor([[1.0, 2.0]]))).tangent.tolist() == [[3.0, 3.0]]
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    with ad.dual_level():
        dual = ad.make_dual(x, lib.tensor([1.0, 0.0]))
        (g,) = lib.autograd.grad((dual**3).sum(), dual, create_graph=True)
        assert ad.unpack_dual(g).tangent.tolist() == [6.0, 0.0]


def test_wrong_tangents() -> None:
    ad = forward_ad(pf)
    with ad.dual_level():
        for x, t, error in (
            (pf.ones(2), pf.ones(3), pf.ShapeError),
            (pf.ones(2), pf.ones(2, dtype=pf.float64), pf.DTypeError),
            (pf.arange(2), pf.arange(2), pf.DTypeError),
            (pf.ones(2), 1.0, pf.PyFlameError),
        ):
            with pytest.raises(error, match=r"\[make_dual\] expected"):
                ad.make_dual(x, t)


def test_threads_have_levels_of_their_own() -> None:
    ad = forward_ad(pf)
    both = threading.Barrier(2, timeout=60)

    def run(slope: float) -> Any:
        with ad.dual_level():
            both.wait()  # both levels are open
            x = ad.make_dual(pf.tensor([1.0, 2.0]), pf.full((2,), slope))
            both.wait()
            found = ad.unpack_dual(x * x).tangent.tolist()
            both.wait()
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (1.0, 10.0))) == [[2.0, 4.0], [20.0, 40.0]]
