"""Attention as the schedule sees it: scores, what is seen of them, and the gradient, each with its decomposition.

The public function over them is in attention.py. Kernels take `attention` and `attention_backward` whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, int32
from pyflame.core.shape import Region, Shape
from pyflame.ir import F, Meta, Node, cast, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.attention_spans import seen_by, seen_by_reference


def _grouped(x: Node, heads: int) -> Node:
    """(..., heads * G, T, D) -> (..., heads, G * T, D): query heads that share a key run as rows of one product."""
    if x.ndim < 3 or x.shape[-3] == heads:
        return x
    *batch, wide, rows, size = x.shape
    return F.reshape(x, (*batch, heads, wide // heads * rows, size))


def _scores(query: Node, key: Node, scale: float, softcap: float) -> tuple[Node, Node | float]:
    """query key^T * scale, capped where there is a cap, and what a change of the product changes that by."""
    heads = key.shape[-3] if key.ndim > 2 else 1
    flipped = F.permute(key, (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2))
    # exp makes an error of the scores one of the weights, so they are not rounded to 16 bits
    product = F.reshape(F.matmul_wide(_grouped(query, heads), flipped), (*query.shape[:-1], key.shape[-2]))
    if not softcap:
        return product * scale, scale
    bent = F.tanh(product * (scale / softcap))
    return bent * softcap, (1.0 - bent * bent) * scale


def _decomposed_weights(*args: Any) -> Node:
    query, key, *rest, low, high, scale, softcap = args
    mask = rest[0] if rest else None
    scores = _scores(query, key, scale, softcap)[0]
    rows, columns = scores.shape[-2:]
    ahead = F.iota((columns,)) - F.reshape(F.iota((rows,)), (rows, 1))
    if low is not None:
        scores = F.where(ahead >= low, scores, float("-inf"))
    if high is not None:
        scores = F.where(ahead <= high, scores, float("-inf"))
    if mask is not None:
        scores = F.where(mask, scores, float("-inf")) if mask.dtype is bool_ else scores + cast(mask, scores.dtype)
    last = scores.ndim - 1
    top = F.reshape(F.reduce_max(scores, (last,)), (*scores.shape[:-1], 1))
    raised = F.exp(scores - F.where(F.eq(top, float("-inf")), 0.0, top))
    total = F.reshape(F.reduce_sum(raised, (last,)), (*scores.shape[:-1], 1))
    return cast(raised * F.reciprocal(F.where(F.eq(total, 0.0), 1.0, total)), query.dtype)


def weights_reference(*args: Any) -> Any:
    query, key, *rest, low, high, scale, softcap = args
    if query.ndim > 2 and key.shape[-3] < query.shape[-3]:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    ahead = np.arange(scores.shape[-1]) - np.arange(scores.shape[-2])[:, None]
    unseen = (ahead < (-np.inf if low is None else low)) | (ahead > (np.inf if high is None else high))
    scores = np.where(unseen, -np.inf, scores)
    if rest:
        scores = np.where(rest[0], scores, -np.inf) if rest[0].dtype == bool else scores + rest[0]
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    raised = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = raised.sum(axis=-1, keepdims=True)
    return raised / np.where(total == 0, 1, total)


@primitive(
    COMPOSITE,
    infer=lambda query, key, *rest: ((*query.shape[:-1], key.shape[-2]), query.dtype),
    attrs=("low", "high", "scale", "softcap"),
    srcs=("query", "key", "mask"),
    reference=weights_reference,
    decompose=_decomposed_weights,
    public=False,
)
def attention_weights(
    query: Node, key: Node, mask: Node | None, low: int | None, high: int | None, scale: float, softcap: float
) -> Any:
    """softmax(query key^T * scale + mask), and 0 in rows where everything is masked.

    Query i sees key j where low <= j - i <= high. softcap c, if it is not 0: c * tanh(score / c) before the mask.
    An op of its own so that forward and backward pass, in one plan, compute it once.
    """
    return (query, key, *[m for m in (mask,) if m is not None]), (low, high, scale, softcap)


def mix(weights: Node, value: Node) -> Node:
    """weights @ value, where several heads of weights may share one of value."""
    out = F.matmul(_grouped(weights, value.shape[-3] if value.ndim > 2 else 1), value)
    return F.reshape(out, (*weights.shape[:-1], value.shape[-1]))


def by_rows(x: Node) -> Node:
    """(B, H, T, D) <-> (B, T, H, D)"""
    return F.permute(x, (0, 2, 1, 3))


def _flipped(x: Node) -> Node:
    return F.permute(x, (0, 1, 3, 2))


def _folded(query: Any, key: Any, rest: Sequence[Any], seen: Callable[..., Any], where: Callable[..., Any]) -> Any:
    *given, low, high, scale, softcap = rest
    spans = next((x for x in given if x.dtype in (int32, np.int32)), None)
    mask = next((x for x in given if x is not spans), None)
    if spans is None:
        return mask, low, high, scale, softcap
    limits = seen(spans, (*query.shape[:3], key.shape[2]), low, high)
    if mask is not None:
        limits = mask & limits if mask.dtype in (bool_, np.bool_) else where(limits, mask, float("-inf"))
    return limits, None, None, scale, softcap


def folded(query: Node, key: Node, rest: Sequence[Any]) -> Any:
    """Mask, low, high, scale and softcap of what follows key and value, with spans made part of the mask."""
    return _folded(query, key, rest, seen_by, F.where)


def _attention(*args: Any) -> Node:
    query, key, value, *rest = args
    return by_rows(mix(F.attention_weights(query, key, *folded(query, key, rest)), value))


def _folded_reference(query: Any, key: Any, rest: Sequence[Any]) -> list[Any]:
    return [x for n, x in enumerate(_folded(query, key, rest, seen_by_reference, np.where)) if n or x is not None]


def _attention_reference(*args: Any) -> Any:
    query, key, value, *rest = args
    rest = _folded_reference(query, key, rest)
    if value.shape[-3] != query.shape[-3]:
        value = np.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    return np.swapaxes(weights_reference(query, key, *rest) @ value, -2, -3)


def _attention_infer(query: Meta, key: Meta, value: Meta, *rest: Any) -> tuple[Shape, DType]:
    batch, heads, rows, _ = query.shape
    return (batch, rows, heads, value.shape[-1]), query.dtype


def _attention_grad(
    g: Node, srcs: tuple[Node, ...], out: Node, low: int | None, high: int | None, scale: float, softcap: float
) -> tuple[Any, ...]:
    query, key, value, *rest = srcs
    spans = next((x for x in rest if x.dtype is int32), None)
    mask, rule = next((x for x in rest if x is not spans), None), (low, high, scale, softcap)
    turned = by_rows(g)
    packed = F.attention_backward(turned, query, key, value, by_rows(out), mask, spans, *rule)
    found: list[Node | None] = []
    for source, region in zip((query, key, value), _packing(query.meta, key.meta, value.meta)[1], strict=True):
        batch, heads, rows, size = source.shape
        found.append(by_rows(F.reshape(F.slice(packed, region), (batch, rows, heads, size))))
    if mask is not None:
        limits = folded(query, key, (*rest, *rule))
        found.append(None if mask.dtype is bool_ else _slopes(turned, query, key, value, *limits)[1])
    if spans is not None:
        found.append(None)
    return tuple(found)


@primitive(
    COMPOSITE,
    infer=_attention_infer,
    attrs=("low", "high", "scale", "softcap"),
    srcs=("query", "key", "value", "mask", "spans"),
    reference=_attention_reference,
    decompose=_attention,
    grad=_attention_grad,
    public=False,
)
def attention(
    query: Node, key: Node, value: Node, mask: Node | None, spans: Node | None, low: int | None, high: int | None,
    scale: float, softcap: float,
) -> Any:  # fmt: skip
    """softmax(query key^T * scale + mask) value of (B, H, T, D), (B, G, S, D), (B, G, S, E), as (B, T, H, E).

    Heads lie inside of rows, as the projection that follows wants them. The mask is bool or of the type that scores are
    computed in, and has 4 axes. Spans (int32): see attention_spans.py. The rest is as for `attention_weights`.
    """
    return (query, key, value, *[x for x in (mask, spans) if x is not None]), (low, high, scale, softcap)


def _slopes(g: Node, query: Node, key: Node, value: Node, mask: Node | None, *rule: Any) -> tuple[Node, Node]:
    """P, and what a change of the scores costs: dS = P (dP - sum(P dP)), dP = dO V^T.

    The sum is that of dO O. Made of dP as it was rounded it cancels: where a query sees one key dS is 0.
    """
    weights = F.attention_weights(query, key, mask, *rule)
    slopes = mix(g, _flipped(value))
    wide = cast(weights, g.dtype.compute) * cast(slopes, g.dtype.compute)
    row = F.reshape(F.reduce_sum(wide, (3,)), (*g.shape[:-1], 1))
    return weights, wide - cast(weights, g.dtype.compute) * row


def _packing(query: Any, key: Any, value: Any) -> tuple[Shape, list[Region]]:
    """The shape that holds the gradients of query, key and value as (B, T, H, D), and the region of each.

    With as many queries as keys they lie behind each other in a row, (B, T, H D + G D + G E), as one projection gives
    all three: then this is its gradient. Otherwise they lie behind each other in memory.
    """
    (batch, _, rows, _), columns = query.shape, key.shape[2]
    widths = [heads * size for _, heads, _, size in (query.shape, key.shape, value.shape)]
    sizes = (
        widths if rows == columns else [batch * n * w for n, w in zip((rows, columns, columns), widths, strict=True)]
    )
    lead = (batch, rows) if rows == columns else ()
    starts = (0, sizes[0], sizes[0] + sizes[1])
    around = tuple((0, 1, n) for n in lead)
    return (*lead, sum(sizes)), [(*around, (at, 1, size)) for at, size in zip(starts, sizes, strict=True)]


def _backward(*args: Any) -> Node:
    # P = softmax(S), O = P V: dV = P^T dO, dQ = dS K scale, dK = dS^T Q scale.
    # In one plan with the forward pass P is not computed again: it is the same node.
    g, query, key, value, _, *rest = args
    heads, limits = key.shape[1], folded(query, key, rest)
    weights, slopes = _slopes(g, query, key, value, *limits)
    scaled = cast(slopes * _scores(query, key, *limits[3:])[1], query.dtype)
    d_query = mix(scaled, key)
    d_key = F.matmul(_flipped(_grouped(scaled, heads)), _grouped(query, heads))
    d_value = F.matmul(_flipped(_grouped(weights, heads)), _grouped(g, heads))
    shape, regions = _packing(query.meta, key.meta, value.meta)
    packed = F.uninitialized(shape, query.dtype)
    for part, region in zip((d_query, d_key, d_value), regions, strict=True):
        packed = F.assign(packed, F.reshape(by_rows(part), tuple(count for _, _, count in region)), region)
    return packed


def _backward_reference(*args: Any) -> Any:
    g, query, key, value, out, *rest = args
    scale, softcap = rest[-2:]
    weights = weights_reference(query, key, *_folded_reference(query, key, rest))
    shared = query.shape[1] // max(key.shape[1], 1)
    wide_key, wide_value = (np.repeat(x, shared, axis=1) for x in (key, value))
    slopes = weights * (g @ np.swapaxes(wide_value, -1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    if softcap:
        slopes = slopes * (1 - np.tanh(query @ np.swapaxes(wide_key, -1, -2) * (scale / softcap)) ** 2)
    d_key, d_value = np.swapaxes(slopes, -1, -2) @ query, np.swapaxes(weights, -1, -2) @ g
    d_key, d_value = (x.reshape(*key.shape[:2], shared, *x.shape[2:]).sum(2) for x in (d_key, d_value))
    shape, _ = _packing(query, key, value)
    parts = [np.swapaxes(x, 1, 2).reshape(*shape[:-1], -1) for x in (slopes @ wide_key, d_key, d_value)]
    return np.concatenate(parts, -1)


@primitive(
    COMPOSITE,
    infer=lambda g, query, key, value, *rest: (_packing(query, key, value)[0], query.dtype),
    attrs=("low", "high", "scale", "softcap"),
    srcs=("g", "query", "key", "value", "out", "mask", "spans"),
    reference=_backward_reference,
    decompose=_backward,
    public=False,
)
def attention_backward(
    g: Node, query: Node, key: Node, value: Node, out: Node, mask: Node | None, spans: Node | None, low: int | None,
    high: int | None, scale: float, softcap: float,
) -> Any:  # fmt: skip
    """The gradients of `attention` in one tensor (see `_packing`); g and out are (B, H, T, E).

    One op, since a kernel that has the scores of a block adds to all three.
    """
    return (g, query, key, value, out, *[x for x in (mask, spans) if x is not None]), (low, high, scale, softcap)
