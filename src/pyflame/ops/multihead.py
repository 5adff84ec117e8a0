"""Attention with several heads between linear layers, as a layer computes it: one Node until the graph is planned.

    q, k, v = x W_in^T + b_in, cut into heads     (B, T, E) -> (B, H, T, E / H) each
    out     = softmax(q k^T / sqrt(E / H)) v      joined to (B, T, E)
    y       = out W_out^T + b_out

A dozen ops are built and walked for one. Where a gradient is wanted they are what is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.dtype import FLOAT8, bool_
from pyflame.core.state import state
from pyflame.ir import F, Node, cast, primitive
from pyflame.ir.opdef import COMPOSITE

_OPTIONAL = ("in_bias", "out_bias", "mask")


def _projected(query: Node, key: Node, value: Node, weight: Node, bias: Node | None) -> Sequence[Node]:
    """Queries, keys and values in the layout of the inputs: one product where they are of one tensor."""
    chunk: Any = F.chunk
    if query is key is value:
        return chunk(F.linear(query, weight, bias), 3, -1)  # type: ignore[no-any-return]
    biases = (None,) * 3 if bias is None else chunk(bias, 3)
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), chunk(weight, 3), biases, strict=True)]


def _heads(x: Node, heads: int, batch_first: bool) -> Node:
    """(batch, time, embed) in the layout of the inputs -> (batch, heads, time, embed / heads)."""
    split = F.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))
    if x.ndim == 2:
        return F.unsqueeze(F.transpose(split, 0, 1), 0)
    return F.permute(split, (0, 2, 1, 3) if batch_first else (1, 2, 0, 3))


def _joined(x: Node, shape: tuple[int, ...], batch_first: bool) -> Node:
    """The way back, to the shape of the inputs."""
    if len(shape) == 2:
        return F.reshape(F.transpose(F.select(x, 0, 0), 0, 1), shape)
    return F.reshape(F.permute(x, (0, 2, 1, 3) if batch_first else (2, 0, 1, 3)), shape)


def _attended(
    srcs: tuple[Node, ...], given: tuple[bool, ...], heads: int, batch_first: bool, causal: bool, dropout_p: float
) -> Node:
    query, key, value, weight, out_weight, *others = srcs
    rest = iter(others)
    bias, out_bias, mask = (next(rest) if there else None for there in given)
    q, k, v = (_heads(x, heads, batch_first) for x in _projected(query, key, value, weight, bias))
    if mask is not None and mask.dtype is not bool_:
        mask = cast(mask, q.dtype)
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    return F.linear(_joined(out, query.shape, batch_first), out_weight, out_bias)


def _decomposed(*srcs_and_attrs: Any) -> Node:
    *srcs, given, heads, batch_first, causal = srcs_and_attrs
    return _attended(tuple(srcs), given, heads, batch_first, causal, 0.0)


@primitive(
    COMPOSITE,
    infer=lambda query, *rest: (query.shape, query.dtype),
    attrs=("given", "heads", "batch_first", "causal"),
    srcs=("query", "key", "value", "weight", "out_weight", *_OPTIONAL),
    decompose=_decomposed,
    public=False,
)
def multihead(
    query: Node, key: Node, value: Node, weight: Node, out_weight: Node, in_bias: Node | None, out_bias: Node | None,
    mask: Node | None, heads: int, batch_first: bool, causal: bool, dropout_p: float,
) -> Any:  # fmt: skip
    """What nn.MultiheadAttention computes without weights to show. `mask`: True where a key is seen, or to be added."""
    optional = (in_bias, out_bias, mask)
    given = tuple([x is not None for x in optional])
    srcs = (query, key, value, weight, out_weight, *[x for x in optional if x is not None])
    dtype = query.dtype
    alike = all(s.dtype is dtype for s in srcs if s is not mask)
    # a mask of dropout is drawn when it is called for, and autocast is that of the call
    if dropout_p > 0 or state.autocast is not None or not alike or not dtype.is_float or dtype in FLOAT8:
        return _attended(srcs, given, heads, batch_first, causal, dropout_p)
    return srcs, (given, heads, batch_first, causal)
