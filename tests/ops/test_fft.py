"""pf.fft against torch.fft: values, gradients, lengths of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(3)
REAL = RNG.standard_normal((3, 6, 5))
COMPLEX = REAL + 1j * RNG.standard_normal((3, 6, 5))


def agree(got: Any, want: Any) -> None:
    assert got.shape == tuple(want.shape) and got.dtype is pf.as_dtype(want.dtype)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().resolve_conj().numpy(), rtol=1e-9, atol=1e-11)


def check(name: str, array: Any, *args: Any, **options: Any) -> None:
    """The transform, and the gradient of a real number made of it."""
    leaf, want_leaf = pf.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    out, want = getattr(pf.fft, name)(leaf, *args, **options), getattr(torch.fft, name)(want_leaf, *args, **options)
    agree(out, want)
    weight = np.cos(np.arange(out.numel())).reshape(out.shape)
    (out.abs().square() * pf.tensor(weight)).sum().backward()
    (want.abs().square() * torch.tensor(weight)).sum().backward()
    agree(leaf.grad, want_leaf.grad)


@pytest.mark.share(3)
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft", "fft2", "ifftn", "irfft2", "irfftn"])
def test_norms_of_complex_transforms(name: str, norm: str | None) -> None:
    check(name, COMPLEX, norm=norm)


@pytest.mark.share(3)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "rfft2", "rfftn", "irfft"])
def test_norms_of_real_transforms(name: str, norm: str | None) -> None:
    check(name, REAL, norm=norm)


@pytest.mark.parametrize("n", [1, 3, 8, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
def test_points_and_axes(name: str, n: int) -> None:
    check(name, COMPLEX, n, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fftn", "ifftn", "irfftn"])
def test_several_axes(name: str) -> None:
    check(name, COMPLEX, (4, -1), (0, 2))
    check(name, COMPLEX, (4, 7))
    check(name, COMPLEX, dim=(2, 0, 1))
    check("rfftn", REAL, (4, 7), (-1, 0))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_mirrored_numbers_along_several_axes(norm: str | None) -> None:
    check("hfft2", COMPLEX, norm=norm)
    check("ihfft2", REAL, norm=norm)
    check("hfftn", COMPLEX, (4, 7), (0, 2), norm)
    check("ihfftn", REAL, (4, 7), (0, 2), norm)


@pytest.mark.slow
@pytest.mark.parametrize("n", [64, 67, 96, 128, 134, 1000, 1031])
def test_lengths_that_are_taken_apart(n: int) -> None:
    check("fft", RNG.standard_normal((2, n)) + 1j * RNG.standard_normal((2, n)))
    check("irfft", RNG.standard_normal((2, n)) + 1j * RNG.standard_normal((2, n)), n)


def test_float32_integers_and_jit() -> None:
    x = REAL.astype(np.float32)
    out = pf.jit(lambda x: pf.fft.rfft(x, 96).abs().sum())(pf.tensor(x))
    np.testing.assert_allclose(out.item(), torch.fft.rfft(torch.tensor(x), 96).abs().sum().item(), rtol=1e-5)
    whole = pf.fft.fft(pf.tensor([1, 2, 3]))
    np.testing.assert_allclose(whole.numpy(), torch.fft.fft(torch.tensor([1, 2, 3])).numpy(), rtol=1e-6)
    assert whole.dtype is pf.complex64


@pytest.mark.parametrize("t", [torch, pf], ids=["torch", "pyflame"])
def test_frequencies(t: Any) -> None:
    assert t.fft.fftfreq(5, 0.5, dtype=t.float64).tolist() == [0.0, 0.4, 0.8, -0.8, -0.4]
    assert t.fft.fftfreq(4).tolist() == [0.0, 0.25, -0.5, -0.25]
    assert t.fft.rfftfreq(5, 0.5).shape == (3,) and t.fft.rfftfreq(4).tolist() == [0.0, 0.25, 0.5]
    grid = t.arange(12).reshape(3, 4)
    assert t.fft.fftshift(grid).tolist() == [[10, 11, 8, 9], [2, 3, 0, 1], [6, 7, 4, 5]]
    assert t.fft.ifftshift(t.fft.fftshift(grid, 0), (0,)).tolist() == grid.tolist()


def test_errors() -> None:
    with pytest.raises(ArgumentError, match=r"\[fft\] expected norm"):
        pf.fft.fft(pf.ones(3), norm="unitary")
    with pytest.raises(ArgumentError, match="at least 1 point"):
        pf.fft.fft(pf.ones(3), 0)
    with pytest.raises(ArgumentError, match="each axis once"):
        pf.fft.fft2(pf.ones(3, 3), dim=(0, 0))
    with pytest.raises(DTypeError, match=r"\[rfft\] expected real numbers"):
        pf.fft.rfft(pf.ones(3, dtype=pf.complex64))
    with pytest.raises(DTypeError, match="float16"):
        pf.fft.fft(pf.ones(3, dtype=pf.float16))
    with pytest.raises(ShapeError, match="an axis to transform"):
        pf.fft.fft(pf.tensor(1.0))
