"""RNN, GRU, LSTM and their cells against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError
from tests.nn.pairs import close, compare, numbers, same_weights

KINDS = ("RNN", "GRU", "LSTM")


def pair(kind: str, *args: Any, **options: Any) -> tuple[nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    ours, theirs = getattr(nn, kind)(*args, **options), getattr(torch.nn, kind)(*args, **options)
    same_weights(ours, theirs)
    return ours, theirs


def states(kind: str, *shape: int) -> Any:
    h = numbers(*shape, seed=5)
    return (h, numbers(*shape, seed=6)) if kind == "LSTM" else h


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_both_ways_from_a_state(kind: str) -> None:
    ours, theirs = pair(kind, 3, 4, num_layers=2, bidirectional=True)
    compare(ours, theirs, numbers(5, 2, 3), states(kind, 4, 2, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched(kind: str) -> None:
    ours, theirs = pair(kind, 3, 4)
    compare(ours, theirs, numbers(5, 3))
    compare(ours, theirs, numbers(5, 3), states(kind, 1, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first_without_bias(kind: str) -> None:
    ours, theirs = pair(kind, 3, 4, bias=False, batch_first=True)
    compare(ours, theirs, numbers(2, 5, 3))


def test_relu_and_positional_arguments() -> None:
    ours, theirs = pair("RNN", 3, 4, 1, "relu", True, True)
    compare(ours, theirs, numbers(2, 5, 3))


def test_projection() -> None:
    ours, theirs = pair("LSTM", 3, 4, num_layers=2, bidirectional=True, proj_size=2)
    state = (numbers(4, 2, 2), numbers(4, 2, 4))
    compare(ours, theirs, numbers(5, 2, 3), state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2,), ()], ids=["batched", "unbatched"])
def test_cells(kind: str, shape: tuple[int, ...]) -> None:
    ours, theirs = pair(kind + "Cell", 3, 4)
    compare(ours, theirs, numbers(*shape, 3))
    compare(ours, theirs, numbers(*shape, 3), states(kind, *shape, 4))


def test_cell_options() -> None:
    ours, theirs = pair("RNNCell", 3, 4, bias=False, nonlinearity="relu")
    compare(ours, theirs, numbers(2, 3))


def test_dropout_acts_between_layers_in_training_only() -> None:
    layer = nn.GRU(3, 4, num_layers=2, dropout=1.0)
    alone = nn.GRU(3, 4, num_layers=2)
    alone.load_state_dict(layer.state_dict())
    x = pf.tensor(numbers(5, 2, 3))
    close(layer.eval()(x)[0], alone(x)[0], "evaluation")
    silent, h = layer.train()(x)
    close(h[0], alone(x)[1][0], "the first layer")
    with pf.no_grad():  # all that the second layer sees is 0
        second = nn.GRU(4, 4)
        second.load_state_dict({n.replace("_l1", "_l0"): v for n, v in layer.state_dict().items() if "_l1" in n})
        close(silent, second(pf.zeros(5, 2, 4))[0], "the second layer")


def test_a_jitted_step_traces_once() -> None:
    layer = nn.LSTM(3, 4)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        loss = layer(x)[0].square().sum()
        loss.backward()
        with pf.no_grad():
            for p in layer.parameters():
                p -= 0.02 * p.grad
        layer.zero_grad()
        return loss

    x = pf.tensor(numbers(6, 2, 3))
    losses = [step(x).item() for _ in range(4)]
    assert step.traces == 1
    assert losses[-1] < losses[0]


def test_initial_weights_lie_within_the_bound() -> None:
    weight = nn.LSTM(8, 64).weight_hh_l0.numpy()
    assert np.abs(weight).max() <= 1 / 8 and np.abs(weight).max() > 0.12 and abs(weight.mean()) < 2e-3


def test_errors() -> None:
    layer = nn.LSTM(3, 4)
    with pytest.raises(ShapeError, match=r"\[LSTM\] expected an input"):
        layer(pf.zeros(5, 2, 4))
    with pytest.raises(ShapeError, match="state of shape"):
        layer(pf.zeros(5, 2, 3), (pf.zeros(1, 2, 4), pf.zeros(1, 3, 4)))
    with pytest.raises(ArgumentError, match="pair"):
        layer(pf.zeros(5, 2, 3), pf.zeros(1, 2, 4))
    with pytest.raises(ArgumentTypeError, match=r"\[GRU\] expected a tensor as state but got tuple"):
        nn.GRU(3, 4)(pf.zeros(5, 2, 3), (pf.zeros(1, 2, 4),))
    with pytest.raises(ShapeError, match="at least one step"):
        layer(pf.zeros(0, 2, 3))
    with pytest.raises(ArgumentError, match="nonlinearity"):
        nn.RNN(3, 4, nonlinearity="sigmoid")
    with pytest.raises(ArgumentError, match="proj_size"):
        nn.LSTM(3, 4, proj_size=4)
    with pytest.raises(ArgumentError, match="dropout"):
        nn.GRU(3, 4, dropout=2.0)
    with pytest.raises(ArgumentError, match="at least 1"):
        nn.GRU(3, 4, num_layers=0)
    with pytest.raises(ShapeError, match=r"\[GRUCell\]"):
        nn.GRUCell(3, 4)(pf.zeros(2, 3), pf.zeros(3, 4))
