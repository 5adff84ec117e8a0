"""What PyTorch's own samples (tests/op_db.py) found wrong here: one test for each cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentError, IndexError, ShapeError

Both = Callable[[Any], Any]


def whole(lib: Any, *shape: int) -> Any:
    return lib.arange(int(np.prod(shape))).reshape(shape) % 5


def complexes(lib: Any, *shape: int) -> Any:
    draw = np.random.default_rng(0)
    return lib.tensor(draw.standard_normal(shape) + 1j * draw.standard_normal(shape))


CASES: dict[str, Both] = {
    "addmm of integers": lambda lib: lib.addmm(whole(lib, 2), whole(lib, 2, 3), whole(lib, 3, 2), beta=1.7, alpha=2.9),
    "baddbmm of integers": lambda lib: lib.baddbmm(
        whole(lib, 2, 3, 2), whole(lib, 2, 3, 2), whole(lib, 2, 2, 2), beta=0.2, alpha=1.6
    ),
    "addr of truth values": lambda lib: lib.addr(
        lib.tensor([[True, False]]), lib.tensor([True, False]), lib.tensor([False, True])
    ),
    "complex factors": lambda lib: lib.addmm(
        complexes(lib, 2, 2), complexes(lib, 2, 3), complexes(lib, 3, 2), beta=1 + 2j, alpha=2j
    ),
    "gradient without spacing": lambda lib: lib.gradient(lib.tensor([1.0, 4.0, 9.0]), spacing=None)[0],
    "gradient of integers": lambda lib: lib.gradient(lib.tensor([1, 4, 9]), spacing=2.0)[0],
    "sum_to_size of a truth value": lambda lib: lib.tensor(True).sum_to_size(()),
    "istft of whole spectra": lambda lib: lib.istft(complexes(lib, 6, 3), 6),
    "istft of whole spectra, said so": lambda lib: lib.istft(complexes(lib, 6, 3), 6, onesided=False),
    "stft of complex numbers as pairs": lambda lib: lib.stft(
        complexes(lib, 20), 8, window=lib.ones(8).double(), return_complex=False
    ),
    "index_put at a mask, added": lambda lib: lib.index_put(
        whole(lib, 3, 2), (lib.tensor([True, False, True]),), lib.tensor([1, 2]), accumulate=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_against_torch(name: str) -> None:
    got, want = CASES[name](pf), CASES[name](torch)
    assert got.dtype is pf.as_dtype(want.dtype)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-9, strict=True)


def test_allclose_is_a_bool() -> None:
    assert pf.allclose(pf.ones(2), pf.ones(2)) is True
    assert pf.ones(2).allclose(pf.zeros(2)) is False


def test_an_index_beyond_its_axis_is_not_added_elsewhere() -> None:
    far = pf.zeros(3, 3).index_put((pf.tensor([0]), pf.tensor([5])), pf.ones(1), accumulate=True)
    with pytest.raises(IndexError, match=r"expected an index in \[-3, 2\] but got 5"):
        far.numpy()


def test_zeroed_values_stay_on_the_tape() -> None:
    x = pf.ones(3, requires_grad=True)
    y = x * 2
    assert y.zero_().requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 2, 3)])
def test_gradients_of_qr_of_wide_matrices(shape: tuple[int, ...], mode: str) -> None:
    a = np.random.default_rng(1).standard_normal(shape)

    def gradient(lib: Any) -> Any:
        x = lib.tensor(a, requires_grad=True)
        q, r = lib.linalg.qr(x, mode=mode)
        (q.cos().sum() + r.sin().sum()).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(pf), gradient(torch), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: pf.gradient(pf.ones(3, 3), dim=(1, 1)), ArgumentError),
        (lambda: pf.empty(3).cauchy_(0, 0), ArgumentError),
        (lambda: pf.empty(3).log_normal_(0, 0), ArgumentError),
        (lambda: pf.nn.functional.max_pool1d(pf.ones(0, 10), 1), ShapeError),
        (lambda: pf.index_put(pf.ones(3, 2), (None, pf.tensor([1])), pf.ones(1)), TypeError),
        (lambda: pf.istft(complexes(pf, 4, 3), 6, return_complex=True), ArgumentError),
    ],
)
def test_refusals(wrong: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^\[\w+\] expected"):
        wrong()


def test_functions_of_ones_own_have_gradients_of_complex_results() -> None:
    def gradient(lib: Any) -> Any:
        class Turned(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * lib.tensor(1j)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return (g * lib.tensor(-1j)).real

        x = lib.tensor([1.0, 2.0], requires_grad=True)
        y = Turned.apply(x)
        (y * y).sum().real.backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(pf), gradient(torch))


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (3, 2, 5)])
def test_singular_values_have_a_gradient_beside_square_factors(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(1).standard_normal(shape)

    def gradient(lib: Any) -> Any:
        x = lib.tensor(a, requires_grad=True)
        u, s, vh = lib.linalg.svd(x)
        assert u.shape[-1] == shape[-2] and vh.shape[-1] == shape[-1]
        k = s.shape[-1]
        (s.sin().sum() + (u[..., :k] * u[..., :k]).cos().sum()).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(pf), gradient(torch), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_gradients_of_eigh_are_symmetric(triangle: str) -> None:
    a = np.random.default_rng(1).standard_normal((2, 4, 4))

    def gradient(lib: Any) -> Any:
        x = lib.tensor(a, requires_grad=True)
        values, vectors = lib.linalg.eigh(x, UPLO=triangle)
        (values.sin().sum() + (vectors.abs() * lib.arange(4.0).double()).cos().sum()).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(pf), gradient(torch), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("order", ["nuc", 2, -2])
def test_gradients_of_norms_at_equal_singular_values(order: Any) -> None:
    def gradient(lib: Any) -> Any:
        x = lib.eye(3).requires_grad_()
        lib.linalg.matrix_norm(x, order).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(pf), gradient(torch), atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"atol": 0.6}, {"rtol": 0.3}, {"atol": 0.3, "rtol": 0.05}, {"hermitian": True}]
)
def test_which_singular_values_count(options: dict[str, Any]) -> None:
    a = np.diag([2.0, 0.5, 1e-20]) + 0.0
    for name in ("pinv", "matrix_rank"):
        got, want = (getattr(lib.linalg, name)(lib.tensor(a), **options).numpy() for lib in (pf, torch))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12, strict=True)


def test_tensordot_over_axes_of_one() -> None:
    a, b = np.arange(6.0).reshape(2, 3, 1), np.arange(4.0).reshape(2, 1, 2)
    got, want = (lib.tensordot(lib.tensor(a), lib.tensor(b), dims=([0, 1], [0, 1])).numpy() for lib in (pf, torch))
    np.testing.assert_allclose(got, want, strict=True)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 4, 4)])
def test_gradients_of_pseudo_inverses_of_singular_matrices(shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(1)
    left, right = draw.standard_normal((*shape[:-1], 2)), draw.standard_normal((*shape[:-2], 2, shape[-1]))

    def gradient(lib: Any) -> list[Any]:
        a, b = (lib.tensor(v, requires_grad=True) for v in (left, right))
        lib.linalg.pinv(a @ b).sin().sum().backward()
        return [a.grad.numpy(), b.grad.numpy()]

    for got, want in zip(gradient(pf), gradient(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)
