"""An RMS norm that linear layers over few rows take along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.tensor.tensor import Tensor
from tests.plans import plan_of

WIDTH = 512


def numbers(*shape: int, dtype: Any = pf.bfloat16) -> Tensor:
    made = pf.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32), dtype=dtype)
    pf.eval(made)
    return made


def unit(rows: int = 1, dtype: Any = pf.bfloat16, scale: Tensor | None = None) -> Tensor:
    weight = numbers(WIDTH, dtype=dtype) if scale is None else scale
    return pf.rms_norm(numbers(rows, 1, WIDTH, dtype=dtype), (WIDTH,), weight, 1e-5)


def anchors(*outputs: Tensor, target: str = "gfx1100") -> list[str]:
    return [x.kernel.anchor.op.name if x.kernel.anchor else "" for x in plan_of(*outputs, target=target).launches]


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100", "sm_90"])
@pytest.mark.parametrize("rows", [1, 2])
def test_one_launch_does_both(target: str, rows: int) -> None:
    weight, bias = numbers(300, WIDTH), numbers(300)
    assert anchors(pf.silu(pf.linear(unit(rows), weight, bias)) * 2, target=target) == ["norm_linear"]


def test_every_reader_takes_it_along() -> None:
    weights = [numbers(n, WIDTH) for n in (300, 200, 200)]
    norm = unit()
    assert anchors(*[pf.linear(norm, w) for w in weights]) == ["norm_linear"] * 3


def test_attention_with_several_heads_takes_it_along() -> None:
    """It is one Node until the graph is planned, and begins with a linear layer."""
    attention = pf.nn.MultiheadAttention(WIDTH, 8, batch_first=True).to(pf.bfloat16)
    with pf.no_grad():
        norm = unit()
        assert "norm_linear" in anchors(attention(norm, norm, norm, need_weights=False)[0])


def test_encoded_weights_too() -> None:
    weight = pf.quantize(numbers(40, WIDTH, dtype=pf.float32), "q4_0")
    kind = {"encoding": "q4_0", "width": WIDTH}
    assert anchors(pf.encoded_linear(unit(4), weight.data, **kind)) == ["norm_linear"]
    assert anchors(pf.encoded_linear(unit(5), weight.data, **kind))[-1] == "encoded_linear"
    plain = pf.encoded_linear(unit(4, pf.float32), weight.data, activation_bits=32, **kind)
    assert anchors(plain)[-1] == "encoded_linear"


@pytest.mark.parametrize(
    "build",
    [
        lambda w: [pf.linear(unit(3), w)],  # more rows go to matrix cores
        lambda w: [pf.linear(norm := unit(), w), norm],  # somebody wants the norm itself
        lambda w: [pf.linear(norm := unit(), w) + norm.sum()],
        lambda w: [pf.linear(unit(1, pf.float64), w.to(pf.float64))],
        lambda w: [pf.linear(pf.rms_norm(numbers(1, 1, WIDTH), (1, WIDTH)), w)],
        lambda w: [pf.linear(pf.layer_norm(numbers(1, 1, WIDTH), (WIDTH,)), w)],
    ],
)
def test_what_stays_as_it_is(build: Any) -> None:
    assert "norm_linear" not in anchors(*build(numbers(300, WIDTH)))


def test_not_where_no_kernel_does_both() -> None:
    assert "norm_linear" not in anchors(pf.linear(unit(), numbers(300, WIDTH)), target="cpu")


def test_gradients_are_those_of_both() -> None:
    """A layer that is trained has a norm that the gradient reads."""
    x, scale, weight = (numbers(*shape, dtype=pf.float32) for shape in ((1, WIDTH), (WIDTH,), (300, WIDTH)))
    scale.requires_grad_()
    y = pf.linear(pf.rms_norm(x, (WIDTH,), scale, 1e-5), weight)
    y.sum().backward()
    wide = x.numpy().astype(np.float64)
    want = weight.numpy().astype(np.float64).sum(0) * wide[0] / np.sqrt((wide * wide).mean() + 1e-5)
    np.testing.assert_allclose(scale.grad.numpy(), want, rtol=1e-4, atol=1e-4)
