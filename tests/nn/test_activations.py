"""Every activation as a module against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.chosen import chosen
from tests.nn.compare import Batches, Case, case, made

X = (3, 4, 5)

NAMES = [
    "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid", "Tanh", "LogSigmoid", "Softsign",
    "Tanhshrink", "LeakyReLU", "ELU", "CELU", "GELU", "Softplus", "Hardtanh", "Hardshrink", "Softshrink", "PReLU",
]  # fmt: skip

ACTIVATIONS = [
    *[case(name, inputs=X) for name in NAMES],
    case("GLU", inputs=(3, 4, 6)),
    case("GLU", 1, inputs=X),
    case("LeakyReLU", 0.3, inputs=X),
    case("ELU", 0.7, inputs=X),
    case("CELU", 0.7, inputs=X),
    case("GELU", approximate="tanh", inputs=X),
    case("Softplus", beta=2, threshold=1.5, inputs=X),
    case("Hardtanh", -0.5, 0.25, inputs=X),
    case("Threshold", 0.1, 20, inputs=X),
    case("Hardshrink", 0.2, inputs=X),
    case("Softshrink", 0.2, inputs=X),
    case("PReLU", 4, init=0.1, inputs=X),
    case("Softmax", 1, inputs=X),
    case("LogSoftmax", dim=-1, inputs=X),
    case("Softmin", 0, inputs=X),
    case("Softmax2d", inputs=(2, 3, 4, 5)),
    case("RReLU", 0.3, 0.3, inputs=X),  # one slope only, so that training is certain
]

# In place of a leaf, which torch refuses: shown only.
IN_PLACE = [
    case("ReLU", True),
    case("LeakyReLU", 0.3, True),
    case("ELU", 0.7, inplace=True),
    case("Threshold", 1, 2, True),
]


@pytest.fixture(scope="module")
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(chosen(request, test_activation, "c"))


@pytest.mark.parametrize("c", ACTIVATIONS, ids=lambda c: c.id)
def test_activation(c: Case, batches: Batches) -> None:
    batches.check(c)


@pytest.mark.parametrize("c", [*ACTIVATIONS, *IN_PLACE], ids=lambda c: c.id)
def test_repr(c: Case) -> None:
    assert repr(made(nn, lambda a: a, c)) == repr(made(torch.nn, torch.from_numpy, c))


@pytest.mark.parametrize("name", ["hardshrink", "softshrink", "tanhshrink", "celu"])
def test_edges(name: str) -> None:
    x = np.array([-np.inf, -0.5, 0.0, 0.5, np.inf, np.nan], np.float32)
    got = getattr(nn.functional, name)(pf.tensor(x))
    want = getattr(torch.nn.functional, name)(torch.from_numpy(x))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-6)


def test_large_arguments_keep_their_gradient() -> None:
    x = pf.tensor([-200.0, 200.0], requires_grad=True)
    nn.CELU()(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.0, 1.0], atol=1e-30)


def test_random_slopes_lie_in_their_interval() -> None:
    layer = nn.RReLU(0.2, 0.4)
    out = layer(pf.full((1000,), -1.0)).numpy()
    assert -0.4 <= out.min() < -0.35 and -0.25 < out.max() <= -0.2
    np.testing.assert_allclose(layer.eval()(pf.full((3,), -1.0)).numpy(), -0.3, rtol=1e-6)


def test_gumbel_softmax_draws_with_the_given_probabilities() -> None:
    pf.manual_seed(3)
    logits = pf.tensor(np.log(np.tile([[0.1, 0.6, 0.3]], (4000, 1))), dtype=pf.float32).requires_grad_()
    hard = nn.functional.gumbel_softmax(logits, hard=True)
    assert set(np.unique(hard.numpy().round(5))) == {0.0, 1.0}
    np.testing.assert_allclose(hard.numpy().mean(0), [0.1, 0.6, 0.3], atol=0.03)
    (hard * pf.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad is not None and float(logits.grad.abs().sum()) > 0.0


def test_normalize() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    want = torch.nn.functional.normalize(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(nn.functional.normalize(pf.tensor(x)).numpy(), want, rtol=1e-6)


def test_functional_takes_inplace_in_every_position() -> None:
    x = pf.tensor([-1.0, 7.0])
    assert nn.functional.hardtanh(x, -2.0, 2.0, True).tolist() == [-1.0, 2.0]
    assert nn.functional.relu(x, True).tolist() == [0.0, 2.0]
    assert nn.functional.hardtanh(x, 0.5, 1.0, inplace=True).tolist() == [0.5, 1.0]
    assert x.tolist() == [0.5, 1.0]
