"""nn.functional.embedding in 16 bits: the dtype stays, the gradient is divided by how often a row is used."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn


@pytest.mark.parametrize("dtype", [pf.float16, pf.bfloat16])
def test_scaled_gradient_keeps_the_dtype(dtype: pf.DType) -> None:
    weight = pf.tensor([[1.0, 2.0], [np.inf, 4.0], [5.0, 6.0]], dtype=dtype, requires_grad=True)
    rows = nn.functional.embedding(pf.tensor([1, 1, 2]), weight, scale_grad_by_freq=True)
    assert rows.dtype is dtype
    assert rows.tolist() == [[np.inf, 4.0], [np.inf, 4.0], [5.0, 6.0]]
    (rows * pf.tensor([[1.0], [3.0], [1.0]], dtype=dtype)).sum().backward()
    assert weight.grad is not None and weight.grad.dtype is dtype
    assert weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]
