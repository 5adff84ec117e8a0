"""What public PyTorch programs, run with only their imports changed, found wrong here: one test for each cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide"])
@pytest.mark.parametrize("numbers", [(5, 3), (5, 3.0), (5.5, 3), (1j, 2), (2, 1j)])
def test_arithmetic_of_numbers_alone(name: str, numbers: tuple[Any, Any]) -> None:
    """Where PyTorch takes them: torch.mul(5, 5)."""
    try:
        theirs = getattr(torch, name)(*numbers)
    except RuntimeError:
        with pytest.raises(pf.PyFlameError):
            getattr(pf, name)(*numbers)
        return
    ours = getattr(pf, name)(*numbers)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int64", "bfloat16", "float32", "float64", "complex64"])
def test_questions_to_dtypes(name: str) -> None:
    ours, theirs = getattr(pf, name), getattr(torch, name)
    for question in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(ours, question) == getattr(theirs, question)
    assert ours.to_real() is getattr(pf, str(theirs.to_real()).split(".")[-1])
    if theirs.is_floating_point or theirs.is_complex:
        assert ours.to_complex() is getattr(pf, str(theirs.to_complex()).split(".")[-1])


def test_assert_async() -> None:
    pf._assert_async(pf.tensor(True))
    with pytest.raises(RuntimeError, match="too small"):
        pf._assert_async(pf.tensor(1) > 2, "too small")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_random_complex_numbers(dtype: str) -> None:
    kind = getattr(pf, dtype)
    generator = pf.Generator().manual_seed(0)
    normal = pf.randn(20000, dtype=kind, generator=generator)
    uniform = pf.rand_like(normal, generator=generator).numpy()
    assert normal.dtype is kind
    np.testing.assert_allclose([normal.numpy().real.var(), normal.numpy().imag.var()], 0.5, atol=0.02)
    for part in (uniform.real, uniform.imag):
        assert part.min() >= 0.0 and part.max() < 1.0
        np.testing.assert_allclose([part.mean(), part.var()], [0.5, 1 / 12], atol=0.01)
    assert abs(np.corrcoef(uniform.real, uniform.imag)[0, 1]) < 0.03
