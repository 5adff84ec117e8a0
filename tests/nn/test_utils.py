"""nn.utils against torch: sequences of different lengths, and weights that are computed from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn, optim

rnn, their_rnn = nn.utils.rnn, torch.nn.utils.rnn


def same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance, strict=True
    )


def sequences(lengths: list[int], rest: tuple[int, ...] = (3,)) -> tuple[list[pf.Tensor], list[torch.Tensor]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, *rest)).astype(np.float32) for n in lengths]
    return [pf.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rest", [(), (3,), (2, 2)])
def test_pad_sequence(batch_first: bool, side: str, rest: tuple[int, ...]) -> None:
    ours, theirs = sequences([4, 1, 6], rest)
    options = dict(batch_first=batch_first, padding_value=-1.5, padding_side=side)
    same(rnn.pad_sequence(ours, **options), their_rnn.pad_sequence(theirs, **options))
    back = rnn.unpad_sequence(rnn.pad_sequence(ours), pf.tensor([4, 1, 6]))
    for a, b in zip(back, ours, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 6, 1], [4]])
@pytest.mark.parametrize("batch_first", [False, True])
def test_packing(lengths: list[int], batch_first: bool) -> None:
    ours, theirs = sequences(lengths)
    enforce = lengths == sorted(lengths, reverse=True)
    padded = rnn.pad_sequence(ours, batch_first), their_rnn.pad_sequence(theirs, batch_first)
    got = rnn.pack_padded_sequence(padded[0], lengths, batch_first, enforce)
    want = their_rnn.pack_padded_sequence(padded[1], lengths, batch_first, enforce)
    same(got.data, want.data)
    same(got.batch_sizes, want.batch_sizes)
    assert (got.sorted_indices is None) == (want.sorted_indices is None)
    for total in (None, 8):
        back, sizes = rnn.pad_packed_sequence(got, batch_first, 2.5, total)
        other, other_sizes = their_rnn.pad_packed_sequence(want, batch_first, 2.5, total)
        same(back, other)
        same(sizes, other_sizes)
    for a, b in zip(rnn.unpack_sequence(rnn.pack_sequence(ours, enforce)), ours, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_packing_refuses_what_does_not_fit() -> None:
    x = pf.ones(4, 2, 3)
    with pytest.raises(pf.ArgumentError, match="decreasing order"):
        rnn.pack_padded_sequence(x, [1, 4])
    with pytest.raises(pf.ShapeError, match="expected 2 lengths of at most 4"):
        rnn.pack_padded_sequence(x, [5, 4])
    with pytest.raises(pf.ArgumentError, match="lengths of at least 1"):
        rnn.pack_padded_sequence(x, [4, 0])
    with pytest.raises(pf.ShapeError, match="expected sequences of"):
        rnn.pad_sequence([pf.ones(2, 3), pf.ones(2, 4)])


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_layers_take_packed_sequences(name: str, bidirectional: bool, given: bool) -> None:
    lengths = [2, 5, 3]
    ours, theirs = sequences(lengths)
    options = dict(num_layers=2, bidirectional=bidirectional)
    layer, other = getattr(nn, name)(3, 4, **options), getattr(torch.nn, name)(3, 4, **options)
    layer.load_state_dict(other.state_dict())
    start = np.random.default_rng(1).standard_normal((4 if bidirectional else 2, 3, 4)).astype(np.float32)
    hx, other_hx = (None, None) if not given else (pf.tensor(start), torch.tensor(start))
    if given and name == "LSTM":
        hx, other_hx = (hx, hx * 2), (other_hx, other_hx * 2)
    out, state = layer(rnn.pack_sequence(ours, False), hx)
    want, want_state = other(their_rnn.pack_sequence(theirs, False), other_hx)
    same(out.data, want.data)
    for a, b in zip(state, want_state, strict=True):
        same(a, b)
    out.data.square().sum().backward(), want.data.square().sum().backward()
    for (label, p), q in zip(layer.named_parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=label)


WEIGHTED = [("Linear", (5, 3)), ("Conv2d", (3, 4, 3)), ("ConvTranspose1d", (3, 4, 3))]


@pytest.mark.parametrize(("name", "sizes"), WEIGHTED)
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("new", [False, True])
def test_weight_norm(name: str, sizes: tuple[int, ...], dim: int | None, new: bool) -> None:
    ours, theirs = getattr(nn, name)(*sizes), getattr(torch.nn, name)(*sizes)
    way, other = (m.parametrizations if new else m for m in (nn.utils, torch.nn.utils))
    ours, theirs = way.weight_norm(ours, dim=dim), other.weight_norm(theirs, dim=dim)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    shape = (2, *((3,) if name != "Linear" else ()), *[5] * {"Linear": 1, "Conv2d": 2, "ConvTranspose1d": 1}[name])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got, want = ours(pf.tensor(x)), theirs(torch.tensor(x))
    same(got, want)
    got.square().sum().backward(), want.square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        same(p.grad, q.grad, 1e-4)
    weight = ours.weight.detach()
    if new:
        nn.utils.parametrize.remove_parametrizations(ours, "weight")
        assert type(ours) is getattr(nn, name)
    else:
        nn.utils.remove_weight_norm(ours)
    np.testing.assert_allclose(ours.weight.detach().numpy(), weight.numpy(), rtol=1e-6)
    assert sorted(ours.state_dict()) == ["bias", "weight"]
    same(ours(pf.tensor(x)), want)


@pytest.mark.parametrize(("name", "sizes"), WEIGHTED)
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_spectral_norm(name: str, sizes: tuple[int, ...], new: bool, seed: int) -> None:
    torch.manual_seed(seed)
    ours, theirs = getattr(nn, name)(*sizes), getattr(torch.nn, name)(*sizes)
    way, other = (m.parametrizations if new else m for m in (nn.utils, torch.nn.utils))
    ours, theirs = way.spectral_norm(ours), other.spectral_norm(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    shape = (2, *((3,) if name != "Linear" else ()), *[5] * {"Linear": 1, "Conv2d": 2, "ConvTranspose1d": 1}[name])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        got, want = ours(pf.tensor(x)), theirs(torch.tensor(x))
        same(got, want, 1e-5)
    got.square().sum().backward(), want.square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        same(p.grad, q.grad, 2e-4)
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        same(a, b, 1e-5)


def test_a_parametrized_weight_trains_and_is_assigned() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    x, losses = pf.ones(4, 3), []
    for _ in range(5):
        loss = (layer(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    layer.weight = pf.arange(6.0).reshape(2, 3) + 1
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.arange(6.0).reshape(2, 3) + 1, rtol=1e-6)


def test_clipping_is_in_nn_utils() -> None:
    layer = nn.Linear(3, 2)
    layer(pf.ones(1, 3)).sum().backward()
    assert nn.utils.clip_grad_norm_(layer.parameters(), 0.1, foreach=True).item() > 0.1
    total = nn.utils.get_total_norm([p.grad for p in layer.parameters()])
    assert total.item() == pytest.approx(0.1, rel=1e-4)
    nn.utils.clip_grads_with_norm_(layer.parameters(), 0.05, total)
    nn.utils.clip_grad_value_(layer.parameters(), 0.01)
    assert max(p.grad.abs().max().item() for p in layer.parameters()) <= 0.01
