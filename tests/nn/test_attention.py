"""MultiheadAttention against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from tests.nn.pairs import close, compare, numbers, same_weights

B, T, S, E, H = 2, 3, 4, 8, 2
LATER = np.triu(np.ones((T, T), bool), 1)
# the last key of the first and the first two of the second example are padding
PADDED = np.array([[False, False, False, True], [True, True, False, False]])


def pair(**options: Any) -> tuple[nn.MultiheadAttention, torch.nn.MultiheadAttention]:
    torch.manual_seed(0)
    ours, theirs = nn.MultiheadAttention(E, H, **options), torch.nn.MultiheadAttention(E, H, **options)
    same_weights(ours, theirs)
    return ours, theirs


def sequences(batch_first: bool = True, k: int = E, v: int = E) -> tuple[np.ndarray, ...]:
    out = numbers(B, T, E), numbers(B, S, k, seed=1), numbers(B, S, v, seed=2)
    return out if batch_first else tuple(x.swapaxes(0, 1).copy() for x in out)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_query_key_value(batch_first: bool, need_weights: bool) -> None:
    ours, theirs = pair(batch_first=batch_first)
    compare(ours, theirs, *sequences(batch_first), need_weights=need_weights)


def test_self_attention_projects_once() -> None:
    ours, theirs = pair(batch_first=True)
    x = numbers(B, T, E)
    mine, yours = pf.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    got, want = ours(mine, mine, mine, need_weights=False)[0], theirs(yours, yours, yours, need_weights=False)[0]
    close(got, want, "output")
    got.square().sum().backward()
    want.square().sum().backward()
    close(mine.grad, yours.grad, "gradient of the input")
    close(ours.in_proj_weight.grad, theirs.in_proj_weight.grad, "gradient of in_proj_weight")
    apart = ours(mine, mine.clone(), mine.clone(), need_weights=False)[0]
    close(apart, got, "three projections")


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True},
    "later": {"attn_mask": pf.tensor(LATER)},
    "each head": {"attn_mask": pf.tensor(numbers(B * H, T, T))},
    "padding": {"key_padding_mask": pf.tensor(PADDED[:, :T])},
    "both": {"attn_mask": pf.tensor(numbers(T, T)), "key_padding_mask": pf.tensor(PADDED[:, :T])},
}


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_without_gradients_it_is_one_node_with_the_same_result(mask: str, dtype: Any) -> None:
    layer, _ = pair(batch_first=True)
    layer.to(dtype)
    x, options = pf.tensor(numbers(B, T, E)).to(dtype), {"need_weights": False, **MASKS[mask]}
    for given in ((x, x, x), (x, x.clone(), x.flip(1))):
        want, _ = layer(*given, **options)
        with pf.no_grad():
            got, _ = layer(*given, **options)
        assert got._node.op.name == "multihead"
        assert want._node.op.name == "linear"  # the parts are recorded
        assert got.dtype is want.dtype is dtype
        np.testing.assert_array_equal(got.tolist(), want.tolist())


def test_in_autocast_and_in_jit_it_is_what_its_parts_are() -> None:
    layer, _ = pair()
    x = pf.tensor(numbers(T, B, E))
    with pf.autocast("cpu", dtype=pf.bfloat16):
        want, _ = layer(x, x, x, need_weights=False)
        with pf.no_grad():
            got, _ = layer(x, x, x, need_weights=False)
    assert got.dtype is want.dtype is pf.bfloat16
    np.testing.assert_array_equal(got.tolist(), want.tolist())
    jitted = pf.jit(pf.no_grad()(lambda x: layer(x, x, x, need_weights=False)[0]))
    for _ in range(3):
        close(jitted(x), torch.tensor(layer(x, x, x)[0].tolist()), "jit")


def test_hooks_of_the_projection_see_it_called() -> None:
    layer, _ = pair()
    seen: list[Any] = []
    handle = layer.out_proj.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    x = pf.tensor(numbers(T, B, E))
    with pf.no_grad():
        want, _ = layer(x, x, x, need_weights=False)
        handle.remove()
        got, _ = layer(x, x, x, need_weights=False)
    assert seen == [(T, B, E)]
    np.testing.assert_array_equal(got.tolist(), want.tolist())


def test_weights_of_each_head() -> None:
    ours, theirs = pair()
    compare(ours, theirs, *sequences(False), average_attn_weights=False)


def test_other_sizes_of_key_and_value() -> None:
    ours, theirs = pair(kdim=5, vdim=3, batch_first=True)
    compare(ours, theirs, *sequences(True, 5, 3))


def test_without_bias() -> None:
    ours, theirs = pair(bias=False, batch_first=True)
    compare(ours, theirs, *sequences(), need_weights=False)


@pytest.mark.slow
def test_unbatched() -> None:
    ours, theirs = pair(batch_first=True)
    q, k, v = (x[1].copy() for x in sequences())
    compare(ours, theirs, q, k, v)
    compare(ours, theirs, q, k, v, key_padding_mask=PADDED[1].copy(), average_attn_weights=False)
    compare(ours, theirs, q, k, v, need_weights=False)


@pytest.mark.slow
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks(need_weights: bool) -> None:
    ours, theirs = pair(batch_first=True)
    allowed = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    each = np.stack([np.roll(allowed, n, 0) for n in range(B * H)])
    for attn_mask in (allowed, each, np.where(allowed, -np.inf, 0.5).astype(np.float32), numbers(B * H, T, S)):
        compare(ours, theirs, *sequences(), attn_mask=attn_mask, need_weights=need_weights)
    compare(ours, theirs, *sequences(), key_padding_mask=PADDED, need_weights=need_weights)
    compare(ours, theirs, *sequences(), key_padding_mask=PADDED, attn_mask=allowed, need_weights=need_weights)


def test_masks_of_two_kinds_add_up() -> None:
    ours, _ = pair(batch_first=True)
    q, k, v = map(pf.tensor, sequences())
    mask = numbers(T, S)
    mixed, _ = ours(q, k, v, pf.tensor(PADDED), False, pf.tensor(mask))
    added, _ = ours(q, k, v, pf.tensor(np.where(PADDED, -np.inf, 0).astype(np.float32)), False, pf.tensor(mask))
    close(mixed, added, "a mask of bools and one of numbers")


@pytest.mark.parametrize("need_weights", [True, False])
def test_causal(need_weights: bool) -> None:
    ours, theirs = pair(batch_first=True)
    x = numbers(B, T, E)
    out = compare(ours, theirs, x, x, x, attn_mask=LATER, is_causal=True, need_weights=need_weights)[0]
    alone = ours(*[pf.tensor(x)] * 3, is_causal=True, need_weights=need_weights)[0]
    close(alone, out, "is_causal without a mask")
    padding = np.array([[False] * 3, [False, False, True]])
    compare(ours, theirs, x, x, x, attn_mask=LATER, key_padding_mask=padding, is_causal=True, need_weights=need_weights)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_extra_positions(options: dict[str, bool]) -> None:
    ours, theirs = pair(**options)
    compare(ours, theirs, *sequences(False))
    compare(ours, theirs, *sequences(False), key_padding_mask=PADDED, need_weights=False)


@pytest.mark.slow
def test_dropout_acts_in_training_only() -> None:
    ours, theirs = pair(dropout=0.5, batch_first=True)
    compare(ours.eval(), theirs.eval(), *sequences())
    ours.train()
    for need_weights in (True, False):
        pf.manual_seed(0)
        a, b = (ours(*map(pf.tensor, sequences()), need_weights=need_weights)[0].numpy() for _ in range(2))
        assert np.abs(a - b).max() > 1e-3
    weights = ours(*map(pf.tensor, sequences()), average_attn_weights=False)[1].numpy()
    assert 0 < (weights == 0).sum() < weights.size


def test_initial_weights() -> None:
    layer = nn.MultiheadAttention(64, 4, add_bias_kv=True)
    bound = (6 / (64 + 192)) ** 0.5
    assert bound * 0.98 < np.abs(layer.in_proj_weight.numpy()).max() <= bound
    assert not layer.in_proj_bias.numpy().any() and not layer.out_proj.bias.numpy().any()
    assert layer.bias_k.numpy().std() > 0


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="num_heads divides"):
        nn.MultiheadAttention(8, 3)
    layer = nn.MultiheadAttention(E, H, batch_first=True)
    x = pf.zeros(B, T, E)
    with pytest.raises(ShapeError, match="2 or 3 axes"):
        layer(x[None], x, x)
    with pytest.raises(ShapeError, match="last axes"):
        layer(x, x, pf.zeros(B, T, 3))
    with pytest.raises(ShapeError, match="batch_first is True"):
        layer(x, pf.zeros(1, T, E), pf.zeros(1, T, E))
    with pytest.raises(ShapeError, match="attn_mask"):
        layer(x, x, x, attn_mask=pf.zeros(T, S))
    with pytest.raises(ShapeError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=pf.zeros(B, S))
    with pytest.raises(DTypeError, match="bools or floating"):
        layer(x, x, x, attn_mask=pf.zeros(T, T, dtype=pf.int64))
