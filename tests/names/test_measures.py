"""pdist, histogram, poisson, data_ptr, resize_: against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

VALUES = np.array([0.0, 1.0, 2.0, 2.5, 4.0, 5.0, 5.0])
HISTOGRAMS: dict[str, Any] = {
    "bins": lambda lib, x: lib.histogram(x, 4),
    "edges": lambda lib, x: lib.histogram(x, lib.tensor([0.0, 2.0, 4.0], dtype=x.dtype)),
    "edges of several widths": lambda lib, x: lib.histogram(
        x.reshape(7, 1), lib.tensor([0.0, 0.5, 4.0, 5.0], dtype=x.dtype), density=True
    ),
    "range": lambda lib, x: lib.histogram(x, 3, range=(1.0, 4.0)),
    "weights": lambda lib, x: lib.histogram(x, 3, weight=x * 0.5),
    "density": lambda lib, x: lib.histogram(x, 3, weight=x, density=True, range=(0.0, 2.0)),
    "one value": lambda lib, x: lib.histogram(x * 0 + 3, 2),
    "nothing": lambda lib, x: lib.histogram(x[:0], 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histogram(name: str, dtype: str) -> None:
    results = [HISTOGRAMS[name](lib, lib.tensor(VALUES, dtype=getattr(lib, dtype))) for lib in (pf, torch)]
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, strict=True)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pf.histogram(pf.arange(3), 2), pf.DTypeError),
        (lambda: pf.histogram(pf.ones(3), 0), pf.ArgumentError),
        (lambda: pf.histogram(pf.tensor([1.0, float("nan")]), 2), pf.ArgumentError),
        (lambda: pf.histogram(pf.ones(3), 2, range=(2.0, 1.0)), pf.ArgumentError),
        (lambda: pf.histogram(pf.ones(3), 2, weight=pf.ones(2)), pf.ShapeError),
        (lambda: pf.histogram(pf.ones(3), pf.ones(2, 2)), pf.ArgumentError),
        (lambda: pf.histogram(pf.ones(3), pf.ones(1)), pf.ArgumentError),
        (lambda: pf.pdist(pf.ones(3)), pf.ShapeError),
        (lambda: pf.pdist(pf.ones(3, 3), -1.0), pf.ArgumentError),
        (lambda: pf.poisson(pf.tensor([1])), pf.DTypeError),
        (lambda: pf.poisson(pf.tensor([-1.0])), pf.ArgumentError),
        (lambda: pf.ones(3).resize_(2, 2), pf.ShapeError),
        (lambda: pf.ones(2, 3).T.resize_(2), pf.ArgumentError),
        (lambda: pf.ones(3)[1:].resize_(1), pf.ArgumentError),
    ],
)
def test_refusals(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("p", [2.0, 1.0, 0.0, 3.5, float("inf")])
@pytest.mark.parametrize("shape", [(5, 4), (2, 1), (1, 3), (0, 3)])
def test_pdist(shape: tuple[int, int], p: float) -> None:
    values = np.random.default_rng(3).standard_normal(shape)
    x, y = pf.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    got, want = pf.pdist(x, p), torch.pdist(y, p)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-10, strict=True)
    if got.numel():
        (got**2).sum().backward(), (want**2).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert pf.nn.functional.pdist(x, p).shape == got.shape


def test_poisson() -> None:
    rates = pf.full((20000,), 4.0)
    drawn = pf.poisson(rates, generator=pf.Generator().manual_seed(1))
    assert drawn.dtype is pf.float32 and abs(drawn.mean().item() - 4) < 0.1 and abs(drawn.var().item() - 4) < 0.2
    again = pf.poisson(rates, generator=pf.Generator().manual_seed(1))
    assert bool((drawn == again).all()) and not bool((drawn == pf.poisson(rates)).all())
    rate = pf.tensor([2.0], requires_grad=True)
    pf.poisson(rate).sum().backward()
    assert rate.grad.item() == 0.0


def test_addresses_and_sizes() -> None:
    x = pf.arange(6.0)
    assert x.data_ptr() == x.numpy().ctypes.data and x[2:].data_ptr() == x.data_ptr() + 8
    assert pf.ones(0).data_ptr() == torch.ones(0).data_ptr() == 0
    y = x.resize_(2, 2)
    assert y is x and x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    x[1, 0] = 7.0
    assert x.resize_((4,)).tolist() == [0.0, 1.0, 7.0, 3.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_follows_infinity(dtype: str) -> None:
    """The largest number of the dtype itself."""
    ends = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0]
    x, y = (array.reshape(-1) for array in np.meshgrid(ends, ends))
    got = pf.nextafter(*(pf.tensor(v).to(getattr(pf, dtype)) for v in (x, y)))
    want = torch.nextafter(*(torch.tensor(v).to(getattr(torch, dtype)) for v in (x, y)))
    np.testing.assert_array_equal(got.to(pf.float64).numpy(), want.double().numpy())
