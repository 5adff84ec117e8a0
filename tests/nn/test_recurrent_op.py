"""All steps of a recurrent layer as one op: what depends on when and how it becomes its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.ir.graph import topological
from tests.nn.pairs import close, numbers, same_weights

KINDS = ("RNN", "GRU", "LSTM")
LENGTHS = np.array([2, 4, 1])


def pair(kind: str, **options: Any) -> tuple[nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    ours, theirs = getattr(nn, kind)(3, 4, **options), getattr(torch.nn, kind)(3, 4, **options)
    same_weights(ours, theirs)
    return ours.double(), theirs.double()


def exact(got: Any, want: Any, what: str) -> None:
    close(got, want, what, rtol=1e-9, atol=1e-11)


def all_grads_agree(ours: nn.Module, theirs: torch.nn.Module) -> None:
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        exact(p.grad, q.grad, name)


@pytest.mark.parametrize("kind", KINDS)
def test_backward_after_the_outputs_were_read(kind: str) -> None:
    """The forward pass has run, so its steps are not in the backward pass's plan."""
    ours, theirs = pair(kind, num_layers=2, bidirectional=True)
    x, want_x = pf.tensor(numbers(5, 2, 3)).double().requires_grad_(), torch.tensor(numbers(5, 2, 3)).double()
    want_x.requires_grad_()
    loss, want = ours(x)[0].square().sum(), theirs(want_x)[0].square().sum()
    exact(loss.detach(), want, "loss")
    loss.backward()
    want.backward()
    exact(x.grad, want_x.grad, "input")
    all_grads_agree(ours, theirs)


@pytest.mark.parametrize("evaluated", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize(
    ("kind", "options"), [("RNN", {}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})], ids=str
)
def test_packed_sequences_both_ways(kind: str, options: dict[str, int], evaluated: bool) -> None:
    ours, theirs = pair(kind, bidirectional=True, **options)
    x, want_x = pf.tensor(numbers(4, 3, 3)).double().requires_grad_(), torch.tensor(numbers(4, 3, 3)).double()
    want_x.requires_grad_()
    out, state = ours(nn.utils.rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
    packed = torch.nn.utils.rnn.pack_padded_sequence(want_x, torch.tensor(LENGTHS), enforce_sorted=False)
    want_out, want_state = theirs(packed)
    ends = state if isinstance(state, tuple) else (state,)
    want_ends = want_state if isinstance(want_state, tuple) else (want_state,)
    if evaluated:
        exact(out.data.detach(), want_out.data, "outputs")
        for end, want_end in zip(ends, want_ends, strict=True):
            exact(end.detach(), want_end, "state")
    total = out.data.square().sum() + sum((end.sin().sum() for end in ends), 0.0)
    (want_out.data.square().sum() + sum(end.sin().sum() for end in want_ends)).backward()
    total.backward()
    exact(x.grad, want_x.grad, "input")
    all_grads_agree(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("evaluated", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str, evaluated: bool) -> None:
    ours, theirs = pair(kind)
    x, want_x = pf.tensor(numbers(3, 2, 3)).double().requires_grad_(), torch.tensor(numbers(3, 2, 3)).double()
    want_x.requires_grad_()
    out, want = ours(x)[0].square().sum(), theirs(want_x)[0].square().sum()
    if evaluated:
        exact(out.detach(), want, "outputs")
    first = pf.autograd.grad(out, [x, ours.weight_hh_l0], create_graph=True)
    want_first = torch.autograd.grad(want, [want_x, theirs.weight_hh_l0], create_graph=True)
    exact(first[1].detach(), want_first[1], "first derivative")
    sum((g.square().sum() for g in first), 0.0).backward()
    sum(g.square().sum() for g in want_first).backward()
    exact(x.grad, want_x.grad, "input")
    all_grads_agree(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_computes_in_sixteen_bits(kind: str) -> None:
    layer = getattr(nn, kind)(3, 4)
    x = pf.tensor(numbers(5, 2, 3))
    exactly = layer(x)[0]
    exactly.sum().backward()
    wanted = [p.grad.numpy() for p in layer.parameters()]
    layer.zero_grad()
    with pf.autocast(pf.bfloat16):
        out, state = layer(x)
    assert out.dtype is pf.bfloat16
    assert all(end.dtype is pf.bfloat16 for end in (state if isinstance(state, tuple) else (state,)))
    out.float().sum().backward()
    close(out.float(), exactly, "outputs", rtol=0.05, atol=0.02)
    for p, want in zip(layer.parameters(), wanted, strict=True):
        assert p.grad.dtype is pf.float32
        close(p.grad, want, "gradient", rtol=0.1, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_few_nodes_and_its_steps_are_computed_once(kind: str) -> None:
    """Of any length; and one plan holds one product with the hidden values for each step and way."""
    layer = getattr(nn, kind)(3, 4)
    counts = []
    for steps in (3, 30):
        layer.zero_grad()
        layer(pf.ones(steps, 2, 3))[0].sum().backward()
        counts.append(len(topological([p.grad._node for p in layer.parameters()])))
    assert counts[0] == counts[1] < 120

    @pf.jit
    def gradients(x: pf.Tensor) -> list[pf.Tensor]:
        layer.zero_grad()
        layer(x)[0].sum().backward()
        return [p.grad for p in layer.parameters()]

    products = [launch for launch in pf.explain(gradients, pf.ones(6, 2, 3)).launches if "matmul" in launch.ops]
    assert len(products) <= 6 + 6 + 3  # steps forward, steps back, and all at once: x W, dW of x and dW of h
