"""Attention over a cache of keys and values in pages, as when a language model decodes.

A page holds the keys (or values) of some neighbouring positions of one sequence, for all heads; a row of the table
names the pages of a sequence in order. Which pages those are and how many positions count is data, so one plan serves a
cache that grows, and sequences may share pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, int8, int32, int64
from pyflame.core.errors import DTypeError, ShapeError
from pyflame.core.shape import Shape
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.attention import Window, attention_band, score_factors
from pyflame.ops.attention_core import by_rows, mix
from pyflame.ops.attention_spans import limited, seen_by
from pyflame.ops.base import want_tensors

ATTRS = ("low", "scale", "softcap", "scaled", "sunk")


def named_pages(srcs: Sequence[Any], scaled: bool, sunk: bool) -> tuple[Any, Any, Any]:
    """Scales of keys and of values, and sinks, of what follows the lengths; None for what is not there."""
    key_scale, value_scale = srcs[5:7] if scaled else (None, None)
    return key_scale, value_scale, srcs[-1] if sunk else None


# --- reference ------------------------------------------------------------------------------------------------------


def _lined(pages: Any, scale: Any, row: Any, length: int) -> Any:
    """The lines (G, length, D) of one sequence."""
    size = pages.shape[1]
    which, at = row[np.arange(length) // size], np.arange(length) % size
    lines = pages[which, at].astype(np.float64)
    return np.swapaxes(lines if scale is None else lines * scale[which, at][..., None], 0, 1)


def _pages_reference(*args: Any) -> Any:
    *srcs, low, scale, softcap, scaled, sunk = args
    query, key, value, table, lengths = srcs[:5]
    key_scale, value_scale, sinks = named_pages(srcs, scaled, sunk)
    batch, heads, rows, _ = query.shape
    out = np.zeros((batch, rows, heads, value.shape[-1]))
    share = heads // key.shape[2] if key.shape[2] else 1
    for b, length in enumerate(np.clip(lengths, 0, table.shape[1] * key.shape[1])):
        k = np.repeat(_lined(key, key_scale, table[b], length), share, 0)
        v = np.repeat(_lined(value, value_scale, table[b], length), share, 0)
        scores = query[b].astype(np.float64) @ np.swapaxes(k, -1, -2) * scale
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        ahead = np.arange(length) - (np.arange(rows)[:, None] + length - rows)
        seen = (ahead <= 0) & (ahead >= (-np.inf if low is None else low))
        weights = np.exp(np.where(seen, scores, -np.inf))
        sink = 0.0 if sinks is None else np.exp(sinks.astype(np.float64))[:, None, None]
        total = weights.sum(-1, keepdims=True) + sink
        out[b] = np.swapaxes((weights / np.where(total == 0, 1, total)) @ v, 0, 1)
    return out.astype(query.dtype)


# --- decomposition --------------------------------------------------------------------------------------------------


def _gathered(pages: Node, scale: Node | None, table: Node, dtype: DType) -> Node:
    """The lines (B, G, S, D) that the table names."""
    _, size, heads, width = pages.shape
    lines = cast(F.index_select(pages, 0, F.reshape(table, (-1,))), dtype.compute)
    if scale is not None:
        by = F.index_select(scale, 0, F.reshape(table, (-1,)))
        lines = lines * F.reshape(cast(by, dtype.compute), (*by.shape, 1))
    wide = F.reshape(cast(lines, dtype), (table.shape[0], table.shape[1] * size, heads, width))
    return F.permute(wide, (0, 2, 1, 3))


def _with_sinks(query: Node, key: Node, value: Node, spans: Node, sinks: Node, *rule: Any) -> Node:
    """As `attention`, where each head has one more score, whose value is 0."""
    low, scale, softcap = rule
    kind, heads = query.dtype.compute, query.shape[1]
    wide = F.reshape(F.permute(key, (0, 1, 3, 2)), (*key.shape[:2], 1, key.shape[3], key.shape[2]))
    groups = F.reshape(query, (query.shape[0], key.shape[1], heads // key.shape[1], *query.shape[2:]))
    scores = F.reshape(F.matmul_wide(groups, wide), (*query.shape[:3], key.shape[2])) * scale
    scores = F.tanh(scores * (1.0 / softcap)) * softcap if softcap else scores
    scores = F.where(seen_by(spans, scores.shape, low, 0), scores, float("-inf"))
    sink = F.reshape(cast(sinks, kind), (1, heads, 1, 1))
    top = F.maximum(F.reshape(F.reduce_max(scores, (3,)), (*scores.shape[:3], 1)), sink)
    raised = F.exp(scores - top)
    total = F.reshape(F.reduce_sum(raised, (3,)), (*scores.shape[:3], 1)) + F.exp(sink - top)
    return by_rows(mix(cast(raised / total, query.dtype), value))


def _decomposed(*args: Any) -> Node:
    *srcs, low, scale, softcap, scaled, sunk = args
    query, key, value, table, lengths = srcs[:5]
    key_scale, value_scale, sinks = named_pages(srcs, scaled, sunk)
    lines = [_gathered(x, by, table, query.dtype) for x, by in ((key, key_scale), (value, value_scale))]
    rows, keys = query.shape[2], lines[0].shape[2]
    lengths = F.clamp(cast(lengths, int64), 0, keys)
    spans = limited(lengths, lengths - rows, query.shape[0], rows, keys)
    if sinks is not None:
        return _with_sinks(query, *lines, spans, sinks, low, scale, softcap)
    return F.attention(query, *lines, None, spans, low, 0, scale, softcap)


def _infer(query: Meta, key: Meta, value: Meta, *rest: Any) -> tuple[Shape, DType]:
    batch, heads, rows, _ = query.shape
    return (batch, rows, heads, value.shape[-1]), query.dtype


@primitive(
    COMPOSITE,
    infer=_infer,
    attrs=ATTRS,
    srcs=("query", "key", "value", "table", "lengths", "key_scale", "value_scale", "sinks"),
    reference=_pages_reference,
    decompose=_decomposed,
    checked=True,
    public=False,
)
def attend_pages(
    query: Node, key: Node, value: Node, table: Node, lengths: Node, key_scale: Node | None, value_scale: Node | None,
    sinks: Node | None, low: int | None, scale: float, softcap: float,
) -> Any:  # fmt: skip
    """`paged_attention` with checked arguments, as (B, T, H, E); table and lengths are int32."""
    given = [x for x in (key_scale, value_scale, sinks) if x is not None]
    return (query, key, value, table, lengths, *given), (low, scale, softcap, key_scale is not None, sinks is not None)


# --- the public function --------------------------------------------------------------------------------------------

_Q = np.sin(np.arange(2 * 4 * 2 * 6.0) * 1.3).reshape(2, 4, 2, 6)
_K = np.cos(np.arange(7 * 4 * 2 * 6.0) * 0.7).reshape(7, 4, 2, 6)
_V = np.cos(np.arange(7 * 4 * 2 * 5.0) * 1.1).reshape(7, 4, 2, 5)
_TABLE, _LENGTHS = np.array([[5, 2, 0], [1, 3, 6]]), np.array([6, 11])


def _reference(
    query: Any, key: Any, value: Any, table: Any, lengths: Any, *, scale: Any = None, softcap: Any = None,
    window: Any = None, key_scale: Any = None, value_scale: Any = None, sinks: Any = None,
) -> Any:  # fmt: skip
    low, _ = attention_band("reference", True, window, 0)
    factors = score_factors("reference", query.shape[-1], scale, softcap)
    more = [x for x in (key_scale, value_scale, sinks) if x is not None]
    flags = key_scale is not None, sinks is not None
    found = _pages_reference(query, key, value, table, lengths, *more, low, *factors, *flags)
    return np.swapaxes(found, 1, 2)


def _check_more(
    op: str, query: Node, key: Node, key_scale: Node | None, value_scale: Node | None, sinks: Node | None
) -> None:
    if (key_scale is None) != (value_scale is None):
        raise ShapeError(f"[{op}] expected both key_scale and value_scale, or neither")
    pages, heads = key.shape[:3], query.shape[1:2]
    wanted = {"key_scale": (key_scale, pages), "value_scale": (value_scale, pages), "sinks": (sinks, heads)}
    for name, (x, shape) in wanted.items():
        if x is None:
            continue
        want_tensors(op, **{name: x})
        if x.shape != shape or not x.dtype.is_float:
            raise ShapeError(f"[{op}] expected floating-point {name} {shape} but got {x.dtype.name} of shape {x.shape}")


def _check(op: str, query: Node, key: Node, value: Node, table: Node, lengths: Node) -> None:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.dtype.is_float:
        raise DTypeError(
            f"[{op}] expected floating-point queries but got {query.dtype.name}; cast with .to(pf.float32)"
        )
    if any(not (x.dtype.is_float or x.dtype is int8) for x in (key, value)):
        raise DTypeError(
            f"[{op}] expected floating-point or int8 pages but got {key.dtype.name} and {value.dtype.name}"
        )
    if (query.ndim, key.ndim, value.ndim) != (4, 4, 4) or query.shape[3] != key.shape[3]:
        raise ShapeError(
            f"[{op}] expected query (B, H, T, D), key (P, N, G, D) and value (P, N, G, E) but got {shapes}"
        )
    if key.shape[:3] != value.shape[:3] or not key.shape[2] or query.shape[1] % key.shape[2]:
        raise ShapeError(
            f"[{op}] expected key and value of the same pages, whose heads divide those of query, but got {shapes}"
        )
    if not (table.dtype.is_int and lengths.dtype.is_int) or bool_ in (table.dtype, lengths.dtype):
        raise DTypeError(
            f"[{op}] expected whole numbers as table and lengths but got {table.dtype.name} and {lengths.dtype.name}"
        )
    if table.ndim != 2 or (table.shape[0], lengths.shape) != (query.shape[0], (query.shape[0],)):
        raise ShapeError(
            f"[{op}] expected a table (B, pages) and lengths (B) for {query.shape[0]} sequences but got {table.shape} "
            f"and {lengths.shape}"
        )


@composite(
    reference=_reference,
    method=False,
    samples=lambda: [
        Sample((_Q, _K, _V, _TABLE, _LENGTHS)),
        Sample((_Q[:, :, :1], _K, _V, _TABLE, np.array([12, 1])), {"softcap": 1.5, "scale": 0.8}),
        Sample((_Q, _K, _V, _TABLE, np.array([0, 9])), {"window": 3}),
        Sample((_Q, _K, _V, _TABLE, _LENGTHS), {"sinks": np.array([0.3, -1.0, 2.0, 0.0])}),
        Sample(
            (_Q, np.round(_K * 100).astype(np.int8), np.round(_V * 100).astype(np.int8), _TABLE, _LENGTHS),
            {"key_scale": np.abs(_K[..., 0]) / 50, "value_scale": np.abs(_V[..., 0]) / 50},
        ),
    ],
)
def paged_attention(
    query: Node, key: Node, value: Node, table: Node, lengths: Node, *, scale: float | None = None,
    softcap: float | None = None, window: Window = None, key_scale: Node | None = None, value_scale: Node | None = None,
    sinks: Node | None = None,
) -> Node:  # fmt: skip
    """Causal attention of the last T positions of each sequence over its cache: query (B, H, T, D) gives (B, H, T, E).

    key (P, N, G, D) and value (P, N, G, E) are P pages of N positions. Position p of sequence b lies in page
    table[b, p // N], at p % N. lengths[b] positions count, or as many as there is room for; the queries are the last of
    them. Numbers of the table beyond that must name some page. A query that sees nothing gets 0. Pages may be of
    another dtype than the query, int8 and float8 included; key_scale and value_scale (P, N, G) are what their numbers
    are multiplied with. sinks: one more score for each head, whose value is 0. window, softcap and scale are as in
    `scaled_dot_product_attention`. There is no gradient.

    >>> pages, table = pf.randn(8, 16, 2, 64), pf.tensor([[3, 0], [5, 7]])
    >>> pf.paged_attention(pf.randn(2, 4, 1, 64), pages, pages, table, pf.tensor([20, 32])).shape
    (2, 4, 1, 64)
    """
    op = "paged_attention"
    want_tensors(op, key=key, value=value, table=table, lengths=lengths)
    _check(op, query, key, value, table, lengths)
    _check_more(op, query, key, key_scale, value_scale, sinks)
    low, _ = attention_band(op, True, window, 0)
    factors = score_factors(op, query.shape[3], scale, softcap)
    sinks = None if sinks is None else cast(sinks, query.dtype.compute)
    data = cast(table, int32), cast(lengths, int32)
    return by_rows(F.attend_pages(query, key, value, *data, key_scale, value_scale, sinks, low, *factors))
