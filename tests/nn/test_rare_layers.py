"""Layers that few programs use, against torch with the same weights and the same drawn numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.nn.compare import Fixed, case, made, pyflame_run, torch_run
from tests.oracle import assert_close


def both(shape: tuple[int, ...], seed: int = 0) -> tuple[pf.Tensor, torch.Tensor]:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return pf.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_log_softmax(head_bias: bool) -> None:
    args = dict(in_features=8, n_classes=20, cutoffs=[5, 9, 13], div_value=2.0, head_bias=head_bias)
    torch.manual_seed(0)
    theirs, ours = torch.nn.AdaptiveLogSoftmaxWithLoss(**args), nn.AdaptiveLogSoftmaxWithLoss(**args)
    ours.load_state_dict(theirs.state_dict())
    x, y = both((6, 8))
    target = np.array([0, 4, 5, 12, 13, 19])
    got, want = ours(x, pf.tensor(target)), theirs(y, torch.tensor(target))
    assert_close(got.output.detach(), want.output, pf.float32, "output")
    assert_close(got.loss.detach(), want.loss, pf.float32, "loss")
    got.loss.backward(), want.loss.backward()
    assert_close(x.grad, y.grad, pf.float32, "gradient of the input")
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert_close(a.grad, b.grad, pf.float32, name)
    with pf.no_grad():
        assert_close(ours.log_prob(x), theirs.log_prob(y), pf.float32, "log_prob")
        assert ours.predict(x * 9).tolist() == theirs.predict(y * 9).tolist()
        one = ours(x[0], pf.tensor(7))
        assert_close(one.output, theirs(y[0], torch.tensor(7)).output, pf.float32, "without a batch")
        with pytest.raises(pf.IndexError):
            ours(x, pf.tensor([0, 1, 2, 3, 4, 20])).loss.item()
        with pytest.raises(pf.ShapeError, match="expected input"):
            ours(x, pf.tensor([0, 1]))
    with pytest.raises(pf.ArgumentError, match="rising"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 20, [9, 5])


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 3, 11, 9), 2, dict(output_size=(5, 4))),
        ((2, 3, 11, 9), (3, 2), dict(output_ratio=(0.5, 0.7))),
        ((3, 8, 8), 2, dict(output_size=7)),
        ((2, 3, 6, 7, 8), 2, dict(output_size=(3, 4, 5))),
        ((3, 6, 7, 8), (1, 2, 3), dict(output_size=(5, 1, 4))),
    ],
)
def test_fractional_max_pool(shape: tuple[int, ...], kernel: object, options: dict[str, object]) -> None:
    rank = 2 if len(shape) - (shape[0] == 2) == 3 else 3
    x, y = both(shape)
    samples = np.random.default_rng(1).random((shape[0] if shape[0] == 2 else 1, 3, rank), np.float32)
    name = f"FractionalMaxPool{rank}d"
    ours = getattr(nn, name)(kernel, **options, return_indices=True, _random_samples=pf.tensor(samples))
    theirs = getattr(torch.nn, name)(kernel, **options, return_indices=True, _random_samples=torch.tensor(samples))
    (a, i), (b, j) = ours(x), theirs(y)
    assert_close(a.detach(), b, pf.float32, "values")
    assert i.tolist() == j.tolist()
    (a * a).sum().backward(), (b * b).sum().backward()
    assert_close(x.grad, y.grad, pf.float32, "gradient")


def test_fractional_max_pool_draws_and_refuses() -> None:
    x = pf.randn(1, 2, 12, 12)
    pool = nn.functional.fractional_max_pool2d
    drawn = [pool(x, 2, output_size=7) for _ in range(3)]
    assert any((drawn[0] != other).any().item() for other in drawn[1:])
    values, where = pool(x, 2, output_size=7, return_indices=True)
    assert x.flatten(2).gather(2, where.flatten(2)).tolist() == values.flatten(2).tolist()
    with pytest.raises(pf.ArgumentError, match="neither"):
        pool(x, 2)
    with pytest.raises(pf.ShapeError, match="fit"):
        pool(x, 4, output_size=10)
    with pytest.raises(pf.ArgumentError, match="either"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(pf.ArgumentError, match="ratio"):
        pool(x, 2, output_ratio=1.5)


def test_buffers_by_assignment() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(pf.ones(2))
            self.seen = nn.Buffer(pf.zeros(2))
            self.scratch = nn.Buffer(pf.ones(3), persistent=False)

    layer = Counter()
    assert [n for n, _ in layer.named_buffers()] == ["seen", "scratch"]
    assert list(layer.state_dict()) == ["weight", "seen"]
    layer.seen += 1
    layer.double()
    assert layer.seen.tolist() == [1.0, 1.0] and layer.seen.dtype is pf.float64
    twin = copy.deepcopy(layer)
    twin.seen += 1
    assert layer.seen.tolist() == [1.0, 1.0] and twin.seen.tolist() == [2.0, 2.0]
    assert list(twin.state_dict()) == ["weight", "seen"]
    layer.weight = nn.Buffer(pf.zeros(1))
    assert list(layer.parameters()) == [] and "weight" in dict(layer.named_buffers())
    assert isinstance(nn.Buffer(pf.zeros(1)), pf.Tensor) and not nn.Buffer(pf.zeros(1)).requires_grad


def test_factory_kwargs() -> None:
    given = {"dtype": pf.float64, "factory_kwargs": {"device": "cpu"}}
    assert nn.factory_kwargs(given) == {"device": "cpu", "dtype": pf.float64} and "factory_kwargs" in given
    assert nn.factory_kwargs(None) == {}
    with pytest.raises(TypeError, match="'bias'"):
        nn.factory_kwargs({"bias": True})
    with pytest.raises(TypeError, match="twice"):
        nn.factory_kwargs({"dtype": 1, "factory_kwargs": {"dtype": 2}})


def test_nll_loss_by_its_older_name() -> None:
    c = case("NLLLoss2d", inputs=[(2, 3, 4, 4), Fixed(np.arange(32).reshape(2, 4, 4) % 3)])
    _, state, want = torch_run(c)
    got = pyflame_run(c, state)
    assert_close(got.outputs[0].detach(), want.outputs[0], pf.float32, "loss")
    assert isinstance(made(nn, pf.tensor, c), nn.NLLLoss)
