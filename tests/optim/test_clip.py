"""Gradient clipping against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import optim
from pyflame.core.errors import ArgumentError, GradientError, TraceError
from tests.optim.problem import arrays


def both(scale: float = 1.0) -> tuple[list[Any], list[Any]]:
    """The same parameters with gradients in both libraries; the last has none."""
    ours = [pf.tensor(a, requires_grad=True) for a in arrays()]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays()]
    for p, q, g in zip(ours[:-1], theirs[:-1], arrays(5), strict=False):
        p.grad, q.grad = pf.tensor(g * np.float32(scale)), torch.tensor(g * np.float32(scale))
    return ours, theirs


def assert_gradients(ours: list[Any], theirs: list[Any]) -> None:
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=2e-6)


@pytest.mark.parametrize("order", [2.0, 1.0, math.inf, 3.5])
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_norm(order: float, limit: float) -> None:
    ours, theirs = both()
    got = optim.clip_grad_norm_(ours, limit, order)
    want = torch.nn.utils.clip_grad_norm_(theirs, limit, order)
    np.testing.assert_allclose(got.item(), want.item(), rtol=2e-6)
    assert_gradients(ours, theirs)
    np.testing.assert_allclose(
        optim.get_total_norm([p.grad for p in ours[:-1]], order).item(),
        torch.nn.utils.get_total_norm([q.grad for q in theirs[:-1]], order).item(),
        rtol=2e-6,
    )


@pytest.mark.parametrize("scale", [0.0, 1e-6])
def test_tiny_gradients(scale: float) -> None:
    ours, theirs = both(scale)
    optim.clip_grad_norm_(ours, 1e-6)
    torch.nn.utils.clip_grad_norm_(theirs, 1e-6)
    assert_gradients(ours, theirs)


def test_value() -> None:
    ours, theirs = both()
    held = ours[0].grad
    optim.clip_grad_value_(ours, 0.4)
    torch.nn.utils.clip_grad_value_(theirs, 0.4)
    assert_gradients(ours, theirs)
    assert ours[0].grad is held  # in place, for those who hold it


def test_one_tensor_and_none() -> None:
    ours, theirs = both()
    got = optim.clip_grad_norm_(ours[0], 0.1)
    np.testing.assert_allclose(got.item(), torch.nn.utils.clip_grad_norm_(theirs[0], 0.1).item(), rtol=2e-6)
    assert_gradients(ours, theirs)
    assert optim.clip_grad_norm_([ours[-1]], 0.1).item() == 0.0
    assert optim.get_total_norm([]).item() == 0.0


def test_gradients_from_outside_of_a_jitted_function() -> None:
    ours, theirs = both()

    @pf.jit
    def clip() -> pf.Tensor:
        norm = optim.clip_grad_norm_(ours, 1.5)
        optim.clip_grad_value_(ours, 0.3)
        return norm

    for _ in range(2):
        got, want = clip(), torch.nn.utils.clip_grad_norm_(theirs, 1.5)
        torch.nn.utils.clip_grad_value_(theirs, 0.3)
        np.testing.assert_allclose(got.item(), want.item(), rtol=2e-6)
        assert_gradients(ours, theirs)
    assert clip.traces == 1


def test_low_precision_is_summed_in_float32() -> None:
    p = pf.zeros(5000, dtype=pf.bfloat16, requires_grad=True)
    p.grad = pf.ones(5000, dtype=pf.bfloat16)
    norm = optim.clip_grad_norm_([p], 1.0)
    assert norm.dtype is pf.float32
    np.testing.assert_allclose(norm.item(), math.sqrt(5000), rtol=1e-6)
    assert p.grad.dtype is pf.bfloat16
    np.testing.assert_allclose(p.grad.to(pf.float32).numpy(), 1 / math.sqrt(5000), rtol=4e-3)


def test_gradients_that_are_not_finite() -> None:
    ours, theirs = both(math.inf)
    with pytest.raises(GradientError, match="expected finite gradients"):
        optim.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    optim.clip_grad_norm_(ours, 1.0)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    assert_gradients(ours, theirs)
    with pytest.raises(TraceError, match="skip such steps"):
        pf.jit(lambda: optim.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True))()


def test_a_negative_limit() -> None:
    with pytest.raises(ArgumentError, match="at least 0 but got -1"):
        optim.clip_grad_value_(both()[0], -1)
