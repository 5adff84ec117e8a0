"""Indexing by tensors, and embeddings."""

from __future__ import annotations

import math
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row


def _key(indices: Any) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


@row("index", "_unsafe_index")
def index(x: Any, indices: Any) -> Any:
    return x[_key(indices)]


@row("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if all(i is not None for i in indices):
        return pf.index_put(x, tuple(indices), values, accumulate)
    out, key = x.clone(), _key(indices)
    if accumulate:
        # the gradient of reading at these places adds to them
        return out + gradients(lambda t: t[key], [pf.zeros_like(x)], values.expand(out[key].shape))[0]
    out[key] = values
    return out


@row("embedding")
def embedding(weight: Any, indices: Any, padding_idx: int = -1, *rest: Any) -> Any:
    return pf.embedding(weight, indices)


@row("embedding_dense_backward")
def embedding_dense_backward(g: Any, indices: Any, count: int, padding_idx: int, by_frequency: bool) -> Any:
    if by_frequency:
        raise pf.NotSupportedError("[embedding_dense_backward] expected scale_grad_by_freq=False but got True")
    padding = padding_idx if padding_idx >= 0 else None
    weight = pf.zeros((count, g.shape[-1]), dtype=g.dtype)
    return gradients(lambda w: pf.embedding(w, indices, padding), [weight], g)[0]


_MODES = ("sum", "mean", "max")


def _bags(weight: Any, indices: Any, offsets: Any, mode: int, weights: Any, last: bool, padding_idx: int) -> Any:
    padding = padding_idx if padding_idx >= 0 else None
    return pf.nn.functional.embedding_bag(
        indices, weight, offsets, mode=_MODES[mode], per_sample_weights=weights, include_last_offset=last,
        padding_idx=padding,
    )  # fmt: skip


def _refuse_others(mode: int, sparse: bool, by_frequency: bool) -> None:
    if _MODES[mode] == "max" or sparse or by_frequency:
        raise pf.NotSupportedError(
            f"[embedding_bag] expected sums or means with a dense, unscaled gradient but got mode={_MODES[mode]!r}, "
            f"sparse={sparse}, scale_grad_by_freq={by_frequency}"
        )


@row("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    weights: Any = None, last: bool = False, padding_idx: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """Also the bag of each index and the size of each bag, for aten's backward op; ours computes them again."""
    _refuse_others(mode, sparse, by_frequency)
    out = _bags(weight, indices, offsets, mode, weights, last, padding_idx)
    bag = pf.searchsorted(offsets[: out.shape[0]], pf.arange(indices.shape[0]), right=True) - 1
    size = pf.zeros(out.shape[:1], dtype=pf.int64).scatter_add(0, bag, pf.ones_like(bag))
    fast = _MODES[mode] == "sum" and weight.dtype is pf.float32 and padding_idx < 0  # torch does not give them then
    return out, bag[:0] if fast else bag, size, size


@row("_embedding_bag_backward", unused=(3, 4, 5))
def embedding_bag_backward(
    g: Any, indices: Any, offsets: Any, bag: Any, size: Any, largest: Any, count: int, by_frequency: bool, mode: int,
    sparse: bool, weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    _refuse_others(mode, sparse, by_frequency)
    last = offsets.shape[0] > g.shape[0]
    table = pf.zeros((count, g.shape[-1]), dtype=g.dtype)
    return gradients(lambda w: _bags(w, indices, offsets, mode, weights, last, padding_idx), [table], g)[0]


@row("_embedding_bag_per_sample_weights_backward", unused=(4,))
def embedding_bag_weights_backward(
    g: Any, weight: Any, indices: Any, offsets: Any, bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    last = offsets.shape[0] > g.shape[0]
    ones = pf.ones(indices.shape, dtype=g.dtype)
    return gradients(lambda w: _bags(weight, indices, offsets, mode, w, last, padding_idx), [ones], g)[0]


@row("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return pf.gather(x, dim, index)


@row("masked_scatter_backward")
def masked_scatter_backward(g: Any, mask: Any, sizes: Any) -> Any:
    """g where the mask is set, in order, and zeros behind: the n-th set place reads the n-th element of the source."""
    count = math.prod(sizes)
    flat = mask.expand(g.shape).reshape(-1)
    place = pf.where(flat, pf.cumsum(flat.to(pf.int64), 0) - 1, count)  # the others go to a place that is cut off
    out = pf.zeros((count + 1,), dtype=g.dtype).scatter_add(0, place, g.reshape(-1))
    return out[:count].reshape(tuple(sizes))
