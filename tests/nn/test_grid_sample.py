"""Reading images between their pixels by cubic kernels, against PyTorch, with gradients for pixels and places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

_DRAW = np.random.RandomState(3)
PIXELS = _DRAW.standard_normal((2, 2, 4, 5)).astype(np.float32)
PLACES = (_DRAW.standard_normal((2, 3, 4, 2)) * 1.2).astype(np.float32)  # some beyond the image


def _run(m: Any, padding: str, aligned: bool) -> list[Any]:
    x, grid = (m.tensor(v, requires_grad=True) for v in (PIXELS, PLACES))
    out = m.nn.functional.grid_sample(x, grid, "bicubic", padding, aligned)
    (out * m.arange(float(out.numel())).reshape(out.shape)).sum().backward()
    return [v.detach().numpy() for v in (out, x.grad, grid.grad)]


@pytest.mark.slow
@pytest.mark.parametrize(("padding", "aligned"), [("zeros", True), ("border", False), ("reflection", False)])
def test_bicubic(padding: str, aligned: bool) -> None:
    for got, want in zip(_run(pf, padding, aligned), _run(torch, padding, aligned), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3 * np.abs(want).max())


def test_not_in_three_dimensions() -> None:
    with pytest.raises(pf.ArgumentError, match="expected a mode"):
        pf.nn.functional.grid_sample(pf.ones(1, 1, 2, 2, 2), pf.zeros(1, 1, 1, 1, 3), "bicubic")
