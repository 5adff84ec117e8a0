"""Initialisation: the distributions of torch, not its numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn

init = nn.init


def moments(values: np.ndarray) -> tuple[float, float, float, float]:
    return float(values.mean()), float(values.std()), float(values.min()), float(values.max())


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("uniform_", (-0.5, 2.0), {}),
        ("normal_", (1.0, 0.3), {}),
        ("trunc_normal_", (), {}),
        ("trunc_normal_", (0.5, 0.2, 0.3, 1.5), {}),
        ("xavier_uniform_", (1.7,), {}),
        ("xavier_normal_", (), {"gain": 0.5}),
        ("kaiming_uniform_", (), {"a": math.sqrt(5)}),
        ("kaiming_uniform_", (), {"mode": "fan_out", "nonlinearity": "relu"}),
        ("kaiming_normal_", (), {"nonlinearity": "tanh"}),
    ],
)
def test_distribution(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    generator = pf.Generator(4)
    ours = getattr(init, name)(pf.empty(200, 50, 10), *args, **kwargs, generator=generator).numpy()
    torch.manual_seed(0)
    theirs = getattr(torch.nn.init, name)(torch.empty(200, 50, 10), *args, **kwargs).numpy()
    spread = theirs.std()
    got, want = moments(ours), moments(theirs)
    np.testing.assert_allclose(got[:2], want[:2], atol=0.02 * spread)
    np.testing.assert_allclose(got[2:], want[2:], atol=(0.01 if "uniform" in name else 0.9) * spread)
    # the whole shape, not only mean and spread
    shares = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(ours, shares), np.quantile(theirs, shares), atol=0.03 * spread)


def test_far_tail_of_trunc_normal() -> None:
    values = init.trunc_normal_(pf.empty(1000), 0.0, 1.0, 4.0, 5.0).numpy()
    assert values.min() >= 4.0 and values.max() <= 5.0 and len(np.unique(values)) > 900


def test_the_generator_decides() -> None:
    a, b, c = (init.normal_(pf.empty(5), generator=pf.Generator(seed)).tolist() for seed in (1, 1, 2))
    assert a == b != c
    pf.manual_seed(7)
    first = nn.Linear(3, 3).weight.tolist()
    pf.manual_seed(7)
    assert nn.Linear(3, 3).weight.tolist() == first


def test_constants_and_identities() -> None:
    assert init.ones_(pf.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(pf.empty(2)).tolist() == [0.0, 0.0]
    assert init.constant_(pf.empty(2), 0.5).tolist() == [0.5, 0.5]
    for shape in ((3, 3), (2, 4)):
        np.testing.assert_array_equal(
            init.eye_(pf.empty(shape)).numpy(), torch.nn.init.eye_(torch.empty(shape)).numpy()
        )
    for shape, groups in (((4, 2, 3), 1), ((4, 2, 3, 3), 2), ((6, 3, 1, 2, 3), 3)):
        want = torch.nn.init.dirac_(torch.empty(shape), groups).numpy()
        np.testing.assert_array_equal(init.dirac_(pf.empty(shape), groups).numpy(), want)


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    w = init.orthogonal_(pf.empty(shape), gain=2.0).numpy().reshape(shape[0], -1).astype(np.float64)
    product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(product, 4.0 * np.eye(len(product)), atol=1e-5)


def test_sparse() -> None:
    w = init.sparse_(pf.empty(10, 7), 0.25, std=0.5).numpy()
    assert (w == 0.0).sum(0).tolist() == [3] * 7
    assert 0.2 < w[w != 0.0].std() < 1.0


@pytest.mark.parametrize(
    "name", ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
)
def test_gains(name: str) -> None:
    assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


def test_it_fills_a_parameter_in_its_cell() -> None:
    p = nn.Parameter(pf.zeros(3, 4))
    assert init.kaiming_normal_(p) is p
    assert p.is_leaf and p.requires_grad and p.numpy().any()
    half = init.normal_(pf.empty(4, dtype=pf.float16))
    assert half.dtype is pf.float16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: init.eye_(pf.empty(2)), "expected a tensor with 2 axes"),
        (lambda: init.dirac_(pf.empty(2, 2)), "expected a tensor with 3 to 5 axes"),
        (lambda: init.dirac_(pf.empty(3, 2, 1), 2), "expected groups that divide"),
        (lambda: init.xavier_normal_(pf.empty(2)), "expected a tensor with 2 or more axes"),
        (lambda: init.kaiming_normal_(pf.empty(2, 2), mode="fan"), "expected mode 'fan_in' or 'fan_out'"),
        (lambda: init.calculate_gain("relu7"), "did you mean 'relu'"),
        (lambda: init.trunc_normal_(pf.empty(2), a=1.0, b=0.0), "expected std > 0 and a < b"),
    ],
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(pf.PyFlameError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Linear", (50, 400)),
        ("Bilinear", (20, 30, 40)),
        ("Conv1d", (30, 60, 5)),
        ("Conv2d", (30, 60, 3)),
        ("ConvTranspose2d", (60, 30, 3)),
        ("Embedding", (300, 50, 3)),
        ("EmbeddingBag", (300, 50)),
    ],
)
def test_layers_start_as_in_torch(name: str, args: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    pf.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args)
    for key, value in getattr(nn, name)(*args).state_dict().items():
        got, want = value.numpy(), theirs.state_dict()[key].numpy()
        mean, std, low, high = moments(want)
        uniform = name not in ("Embedding", "EmbeddingBag")
        np.testing.assert_allclose(got.mean(), mean, atol=0.3 * std if got.size < 1000 else 0.03 * std)
        np.testing.assert_allclose(got.std(), std, rtol=0.3 if got.size < 1000 else 0.03)
        if uniform:
            np.testing.assert_allclose((got.min(), got.max()), (low, high), rtol=0.15 if got.size < 1000 else 0.01)


def test_the_padding_row_starts_at_0() -> None:
    assert not nn.Embedding(4, 3, padding_idx=-2).weight.numpy()[2].any()
