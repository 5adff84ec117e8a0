"""Building blocks of attention: rotary positions, scaled dot products, gated units."""

from __future__ import annotations

from math import log2, prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, float64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Region, Shape, broadcast_shapes
from pyflame.ir import F, Meta, Node, Sample, cast, common_dtype, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import want_number, want_tensors, want_whole


def _same(x: Meta, *rest: Any) -> tuple[Shape, DType]:
    return x.shape, x.dtype


# --- rotary positions -----------------------------------------------------------------------------------------------


def _rotation_layout(size: int, interleaved: bool) -> tuple[Shape, int]:
    """How the last axis holds its pairs, and which axis of (size) -> (2, size/2) or (size/2, 2) tells them apart."""
    return ((size // 2, 2), -1) if interleaved else ((2, size // 2), -2)


def _rope(*args: Any) -> Node:
    x, positions, *rest, base, interleaved, size = args
    if size < x.shape[-1]:
        head = F.slice(x, (*((0, 1, n) for n in x.shape[:-1]), (0, 1, size)))
        turned = F.rope(head, positions, base, interleaved, None, *rest)
        return F.assign(F.contiguous(x), turned, (*((0, 1, n) for n in x.shape[:-1]), (0, 1, size)))
    # frequencies in double, then rounded: the float32 angle is as good as float32 can be
    kind = x.dtype.compute
    own = F.exp2(cast(F.iota((size // 2,)), float64) * (-2.0 * log2(base) / size))
    angle = F.reshape(cast(positions, kind), (*positions.shape, 1)) * cast(rest[0] if rest else own, kind)
    pairs, axis = _rotation_layout(size, interleaved)
    around = (1,) if axis == -2 else ()
    middle = (*angle.shape[:-1], 1, size // 2) if axis == -2 else (*angle.shape, 1)
    cos, sin = F.reshape(F.cos(angle), middle), F.reshape(F.sin(angle), middle)
    # (a, b) -> (a cos - b sin, b cos + a sin): each element needs its partner, which is the pair read backwards
    wide = cast(F.reshape(x, (*x.shape[:-1], *pairs)), kind)
    backwards = tuple((1, -1, 2) if a == wide.ndim + axis else (0, 1, n) for a, n in enumerate(wide.shape))
    sign = cast(F.reshape(F.iota((2,)), (2, *around)), kind) * 2.0 - 1.0
    out = wide * cos + F.slice(wide, backwards) * (sin * sign)
    return F.reshape(cast(out, x.dtype), x.shape)


def _rope_grad(g: Node, srcs: tuple[Node, ...], base: float, interleaved: bool, size: int) -> tuple[Any, ...]:
    # a rotation's transpose turns back
    _, positions, *rest = srcs
    return (F.rope(g, -cast(positions, float64), base, interleaved, size, *rest), *[None for _ in srcs[1:]])


def _rope_reference(*args: Any) -> Any:
    x, positions, *rest, base, interleaved, size = args
    frequency = rest[0] if rest else base ** (-2.0 * np.arange(size // 2) / size)
    angle = positions[..., None].astype(x.dtype) * np.asarray(frequency, x.dtype)
    head, tail = x[..., :size], x[..., size:]
    a, b = (head[..., ::2], head[..., 1::2]) if interleaved else (head[..., : size // 2], head[..., size // 2 :])
    turned = (a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle))
    head = np.stack(turned, -1).reshape(head.shape) if interleaved else np.concatenate(turned, -1)
    return np.concatenate((head, tail), -1)


_Q = np.sin(np.arange(2 * 4 * 3 * 8.0) * 1.3).reshape(2, 4, 3, 8)


@primitive(
    COMPOSITE,
    infer=_same,
    attrs=("base", "interleaved", "size"),
    srcs=("x", "positions", "frequencies"),
    reference=_rope_reference,
    decompose=_rope,
    grad=_rope_grad,
    cost=8,
    method=False,
    samples=lambda: [
        Sample((_Q, np.arange(3))),
        Sample((_Q, np.array([[0, 5, 9], [2, 3, 100]]), 500.0, True)),
        Sample((_Q[0, 0], np.array([7, 1, 0]), 10000.0, False, 4)),
        Sample((_Q[:, :, :1], np.array([4]), 10000.0, True, 6)),
        Sample((_Q, np.arange(3), 1.0, False, None, np.array([1.0, 0.5, 0.25, 0.125])), grad=False),
        Sample((np.zeros((2, 0, 4)), np.zeros(0, np.int64))),
    ],
)
def rope(
    x: Node,
    positions: Node,
    base: float = 10000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    frequencies: Node | None = None,
) -> Any:
    """Rotary position embedding of x (..., T, D): pairs of elements turn by position * base^(-2i/D).

    Pairs are (i, i + D/2), as in Llama and GPT-NeoX, or neighbours when interleaved. `positions` is (T) or (B, T), a
    tensor, so that decoding at another position uses the same plan. `rotary_dim`: only the first so many of D turn.
    `frequencies` (rotary_dim/2) replace base^(-2i/D); positions and frequencies get no gradient.

    >>> pf.rope(pf.ones(1, 2, 3, 4), pf.arange(3)).shape
    (1, 2, 3, 4)
    """
    if x.ndim < 1 or not x.dtype.is_float:
        raise DTypeError(
            f"[rope] expected a floating-point tensor (..., T, D) but got {x.dtype.name} of shape {x.shape}"
        )
    size = x.shape[-1] if rotary_dim is None else want_whole("rope", "rotary_dim", rotary_dim)
    if size % 2 or not 0 < size <= x.shape[-1]:
        raise ShapeError(f"[rope] expected an even rotary size of at most {x.shape[-1]} but got {size}")
    if positions.ndim == 2 and x.ndim > 3:  # (B, T) -> (B, 1, .., T): the same for every head
        positions = F.reshape(positions, (positions.shape[0], *[1] * (x.ndim - 3), positions.shape[1]))
    if broadcast_shapes("rope", positions.shape, x.shape[:-1]) != x.shape[:-1]:
        raise ShapeError(f"[rope] expected positions that broadcast to {x.shape[:-1]} but got shape {positions.shape}")
    rest = () if frequencies is None else (frequencies,)
    want_tensors("rope", **({"frequencies": frequencies} if rest else {}))
    if rest and rest[0].shape != (size // 2,):
        raise ShapeError(f"[rope] expected frequencies of shape {(size // 2,)} but got {rest[0].shape}")
    return (x, positions, *rest), (want_number("rope", "base", base), bool(interleaved), size)


# --- scaled dot products --------------------------------------------------------------------------------------------


def _grouped(x: Node, heads: int) -> Node:
    """(..., heads * G, T, D) -> (..., heads, G * T, D): query heads that share a key run as rows of one product."""
    return (
        F.reshape(x, (*x.shape[:-3], heads, -1, x.shape[-1])) if x.ndim > 2 and x.shape[-3] != heads and x.size else x
    )


def _decomposed_weights(*args: Any) -> Node:
    query, key, *rest, is_causal, scale = args
    mask = rest[0] if rest else None
    rows, columns = query.shape[-2], key.shape[-2]
    heads = key.shape[-3] if key.ndim > 2 else 1
    flipped = F.permute(key, (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2))
    # exp makes an error of the scores one of the weights, so they are not rounded to 16 bits
    scores = F.reshape(F.matmul_wide(_grouped(query, heads), flipped), (*query.shape[:-1], columns)) * scale
    if is_causal:
        keep = F.reshape(F.iota((rows,)), (rows, 1)) >= F.iota((columns,))
        scores = F.where(keep, scores, float("-inf"))
    if mask is not None:
        scores = F.where(mask, scores, float("-inf")) if mask.dtype is bool_ else scores + cast(mask, scores.dtype)
    last = scores.ndim - 1
    top = F.reshape(F.reduce_max(scores, (last,)), (*scores.shape[:-1], 1))
    raised = F.exp(scores - F.where(F.eq(top, float("-inf")), 0.0, top))
    total = F.reshape(F.reduce_sum(raised, (last,)), (*scores.shape[:-1], 1))
    return cast(raised * F.reciprocal(F.where(F.eq(total, 0.0), 1.0, total)), query.dtype)


def _weights_reference(*args: Any) -> Any:
    query, key, *rest, is_causal, scale = args
    if query.ndim > 2 and key.shape[-3] < query.shape[-3]:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    if rest:
        scores = np.where(rest[0], scores, -np.inf) if rest[0].dtype == bool else scores + rest[0]
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    raised = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = raised.sum(axis=-1, keepdims=True)
    return raised / np.where(total == 0, 1, total)


@primitive(
    COMPOSITE,
    infer=lambda query, key, *rest: ((*query.shape[:-1], key.shape[-2]), query.dtype),
    attrs=("is_causal", "scale"),
    srcs=("query", "key", "mask"),
    reference=_weights_reference,
    decompose=_decomposed_weights,
    public=False,
)
def attention_weights(query: Node, key: Node, mask: Node | None, is_causal: bool, scale: float) -> Any:
    """softmax(query key^T * scale + mask), and 0 in rows where everything is masked.

    An op of its own so that forward and backward pass, in one plan, compute it once.
    """
    return (query, key, *[m for m in (mask,) if m is not None]), (is_causal, scale)


def _mix(weights: Node, value: Node) -> Node:
    """weights @ value, where several heads of weights may share one of value."""
    out = F.matmul(_grouped(weights, value.shape[-3] if value.ndim > 2 else 1), value)
    return F.reshape(out, (*weights.shape[:-1], value.shape[-1]))


def _by_rows(x: Node) -> Node:
    """(B, H, T, D) <-> (B, T, H, D)"""
    return F.permute(x, (0, 2, 1, 3))


def _flipped(x: Node) -> Node:
    return F.permute(x, (0, 1, 3, 2))


def _attention(*args: Any) -> Node:
    query, key, value, *rest, is_causal, scale = args
    return _by_rows(_mix(F.attention_weights(query, key, rest[0] if rest else None, is_causal, scale), value))


def _attention_reference(*args: Any) -> Any:
    query, key, value, *rest = args
    if value.shape[-3] != query.shape[-3]:
        value = np.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    return np.swapaxes(_weights_reference(query, key, *rest) @ value, -2, -3)


def _attention_infer(query: Meta, key: Meta, value: Meta, *rest: Any) -> tuple[Shape, DType]:
    batch, heads, rows, _ = query.shape
    return (batch, rows, heads, value.shape[-1]), query.dtype


def _attention_grad(g: Node, srcs: tuple[Node, ...], out: Node, is_causal: bool, scale: float) -> tuple[Any, ...]:
    query, key, value, *rest = srcs
    mask = rest[0] if rest else None
    turned = _by_rows(g)
    packed = F.attention_backward(turned, query, key, value, _by_rows(out), mask, is_causal, scale)
    found: list[Node | None] = []
    for source, region in zip((query, key, value), _packing(query.meta, key.meta, value.meta)[1], strict=True):
        batch, heads, rows, size = source.shape
        found.append(_by_rows(F.reshape(F.slice(packed, region), (batch, rows, heads, size))))
    if mask is not None:
        slopes = None if mask.dtype is bool_ else _slopes(turned, query, key, value, mask, is_causal, scale)[1]
        found.append(slopes)
    return tuple(found)


@primitive(
    COMPOSITE,
    infer=_attention_infer,
    attrs=("is_causal", "scale"),
    srcs=("query", "key", "value", "mask"),
    reference=_attention_reference,
    decompose=_attention,
    grad=_attention_grad,
    public=False,
)
def attention(query: Node, key: Node, value: Node, mask: Node | None, is_causal: bool, scale: float) -> Any:
    """softmax(query key^T * scale + mask) value of (B, H, T, D), (B, G, S, D), (B, G, S, E), as (B, T, H, E).

    Heads lie inside of rows, as the projection that follows wants them. The mask is bool or of the type that scores are
    computed in, and has 4 axes.
    """
    return (query, key, value, *[m for m in (mask,) if m is not None]), (is_causal, scale)


def _slopes(
    g: Node, query: Node, key: Node, value: Node, mask: Node | None, is_causal: bool, scale: float
) -> tuple[Node, Node]:
    """P, and what a change of the scores costs: dS = P (dP - sum(P dP)), dP = dO V^T.

    The sum is that of dO O. Made of dP as it was rounded it cancels: where a query sees one key dS is 0.
    """
    weights = F.attention_weights(query, key, mask, is_causal, scale)
    slopes = _mix(g, _flipped(value))
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
    g, query, key, value, _, *rest, is_causal, scale = args
    heads = key.shape[1]
    weights, slopes = _slopes(g, query, key, value, rest[0] if rest else None, is_causal, scale)
    scaled = cast(slopes * scale, query.dtype)
    d_query = _mix(scaled, key)
    d_key = F.matmul(_flipped(_grouped(scaled, heads)), _grouped(query, heads))
    d_value = F.matmul(_flipped(_grouped(weights, heads)), _grouped(g, heads))
    shape, regions = _packing(query.meta, key.meta, value.meta)
    packed = F.uninitialized(shape, query.dtype)
    for part, region in zip((d_query, d_key, d_value), regions, strict=True):
        packed = F.assign(packed, F.reshape(_by_rows(part), tuple(count for _, _, count in region)), region)
    return packed


def _backward_reference(*args: Any) -> Any:
    g, query, key, value, out, *rest, is_causal, scale = args
    weights = _weights_reference(query, key, *rest, is_causal, scale)
    shared = query.shape[1] // key.shape[1]
    wide_key, wide_value = (np.repeat(x, shared, axis=1) for x in (key, value))
    slopes = weights * (g @ np.swapaxes(wide_value, -1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    d_key, d_value = np.swapaxes(slopes, -1, -2) @ query, np.swapaxes(weights, -1, -2) @ g
    d_key, d_value = (x.reshape(*key.shape[:2], shared, *x.shape[2:]).sum(2) for x in (d_key, d_value))
    shape, _ = _packing(query, key, value)
    parts = [np.swapaxes(x, 1, 2).reshape(*shape[:-1], -1) for x in (slopes @ wide_key, d_key, d_value)]
    return np.concatenate(parts, -1)


@primitive(
    COMPOSITE,
    infer=lambda g, query, key, value, *rest: (_packing(query, key, value)[0], query.dtype),
    attrs=("is_causal", "scale"),
    srcs=("g", "query", "key", "value", "out", "mask"),
    reference=_backward_reference,
    decompose=_backward,
    public=False,
)
def attention_backward(
    g: Node, query: Node, key: Node, value: Node, out: Node, mask: Node | None, is_causal: bool, scale: float
) -> Any:
    """The gradients of `attention` in one tensor (see `_packing`); g and out are (B, H, T, E).

    One op, since a kernel that has the scores of a block adds to all three.
    """
    return (g, query, key, value, out, *[m for m in (mask,) if m is not None]), (is_causal, scale)


def _four_axes(x: Node) -> Node:
    """(..., H, T, D) -> (B, H, T, D)"""
    shape = (1,) * (3 - x.ndim) + x.shape
    return F.reshape(x, (prod(shape[:-3]), *shape[-3:]))


def _four_axis_mask(mask: Node, scores: Shape) -> Node:
    """The mask of scores (..., H, T, S) over 4 axes, which may be 1."""
    shape = (1,) * (len(scores) - mask.ndim) + mask.shape
    lead = scores[:-3] if any(n > 1 for n in shape[:-3]) else (1,) * len(scores[:-3])
    return _four_axes(F.expand(F.reshape(mask, shape), (*lead, *shape[len(lead) :])))


def _numpy_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if query.ndim > 2 and value.shape[-3] < query.shape[-3]:
        value = np.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    masks = () if attn_mask is None else (attn_mask,)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return _weights_reference(query, key, *masks, is_causal, factor) @ value


_K = np.cos(np.arange(2 * 4 * 5 * 8.0) * 0.7).reshape(2, 4, 5, 8)
_V = np.cos(np.arange(2 * 4 * 5 * 6.0) * 1.1).reshape(2, 4, 5, 6)
_MASK = np.sin(np.arange(15.0)).reshape(3, 5)


def _broadcast_batch(op: str, query: Node, key: Node, value: Node) -> tuple[Node, Node, Node]:
    """All with the same axes before the last two, but that heads of key and value may serve several of query."""
    if query.ndim == key.ndim == value.ndim == 2:
        return query, key, value
    shapes = [(1,) * (3 - x.ndim) + x.shape for x in (query, key, value)]
    batch = broadcast_shapes(op, *(s[:-3] for s in shapes))
    (shared,) = broadcast_shapes(op, *(s[-3:-2] for s in shapes[1:]))
    heads = shared if shapes[0][-3] == 1 else shapes[0][-3]
    if shared == 0 or heads % shared:
        raise ShapeError(
            f"[{op}] expected the heads of query to be a multiple of those of key but got query {query.shape}, "
            f"key {key.shape}, value {value.shape}"
        )
    wanted = [(*batch, n, *s[-2:]) for n, s in zip((heads, shared, shared), shapes, strict=True)]
    spread = [x if x.shape == w else F.expand(x, w) for x, w in zip((query, key, value), wanted, strict=True)]
    return spread[0], spread[1], spread[2]


def _torch_attention(torch: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    grouped = min(query.ndim, key.ndim) > 2 and query.shape[-3] > key.shape[-3]
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, *rest, **named, enable_gqa=grouped)


@composite(
    reference=_numpy_attention,
    torch=_torch_attention,
    method=False,
    autocast="low",
    samples=lambda: [
        Sample((_Q, _K, _V)),
        Sample((_Q, _K, _V), {"is_causal": True}),
        Sample((_Q, _K, _V, _MASK), {"scale": 0.3}),
        Sample((_Q, _K, _V, np.arange(15).reshape(3, 5) % 4 > 0)),
        Sample((_Q, _K, _V, np.array([[True] * 5, [False] * 5, [True, False, True, False, True]]))),
        Sample((_Q, _K[:, :2], _V[:, :2]), {"is_causal": True}),
        Sample((_Q, _K[:, :1], _V[:, :1], np.broadcast_to(_MASK, (2, 1, 3, 5)).copy())),
        Sample((_Q[0, 0], _K[0, 0], _V[0, 0])),
        Sample((_Q[0, :, :1], _K[0], _V[0])),
        Sample((_Q[:1, :1], _K, _V[0])),
        Sample((_Q[0, 0], _K[:, :1], _V[:1])),
    ],
)
def scaled_dot_product_attention(
    query: Node, key: Node, value: Node, attn_mask: Node | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Node:  # fmt: skip
    """softmax(query key^T * scale + mask) value, over (..., heads, T, D); scale is 1/sqrt(D) unless given.

    A boolean mask says who is seen, any other is added. Causal: query i sees keys 0..i. Fewer heads in key and value
    than in query are shared by groups of query heads. A query that sees nothing gets 0.

    >>> q, k = pf.randn(1, 8, 16, 64), pf.randn(1, 2, 16, 64)
    >>> pf.scaled_dot_product_attention(q, k, k, is_causal=True).shape
    (1, 8, 16, 64)
    """
    op = "scaled_dot_product_attention"
    dtype = common_dtype(op, (query, key, value))
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not dtype.is_float:
        raise DTypeError(f"[{op}] expected floating-point tensors but got {dtype.name}; cast with .to(pf.float32)")
    if (
        min(query.ndim, key.ndim, value.ndim) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        raise ShapeError(f"[{op}] expected query (.., T, D), key (.., S, D) and value (.., S, E) but got {shapes}")
    query, key, value = _broadcast_batch(op, query, key, value)
    query, key, value = cast(query, dtype), cast(key, dtype), cast(value, dtype)
    masks = () if attn_mask is None else (attn_mask,)
    scores = (*query.shape[:-1], key.shape[-2])
    want_tensors(op, **({"attn_mask": attn_mask} if masks else {}))
    if masks and broadcast_shapes(op, masks[0].shape, scores) != scores:
        raise ShapeError(f"[{op}] expected a mask that broadcasts to {scores} but got shape {masks[0].shape}")
    if masks and is_causal:
        raise ArgumentError(
            f"[{op}] expected either attn_mask or is_causal=True but got both; put the causal part into the mask"
        )
    factor = (
        (1.0 / query.shape[-1] ** 0.5 if query.shape[-1] else 1.0) if scale is None else want_number(op, "scale", scale)
    )
    if want_number(op, "dropout_p", dropout_p) > 0.0:
        weights = F.attention_weights(query, key, attn_mask, bool(is_causal), factor)
        return _mix(F.dropout(weights, dropout_p), value)
    mask = None
    if masks:
        mask = _four_axis_mask(masks[0] if masks[0].dtype is bool_ else cast(masks[0], dtype.compute), scores)
    four = [_four_axes(x) for x in (query, key, value)]
    out = _by_rows(F.attention(*four, mask, bool(is_causal), factor))
    return F.reshape(out, (*query.shape[:-1], value.shape[-1]))


# --- gated units ----------------------------------------------------------------------------------------------------


def _numpy_swiglu(x: Any, gate: Any = None) -> Any:
    if gate is None:
        x, gate = np.split(x, 2, axis=-1)
    return x * gate / (1 + np.exp(-gate))


def _torch_swiglu(torch: Any, x: Any, gate: Any = None) -> Any:
    if gate is None:
        x, gate = x.chunk(2, -1)
    return x * torch.nn.functional.silu(gate)


@composite(
    reference=_numpy_swiglu,
    torch=_torch_swiglu,
    samples=lambda: [
        Sample((_Q,)),
        Sample((_Q[0], _K[0, :, :3])),
        Sample((np.zeros((3, 0)),)),
        Sample((_Q.T[::2], _Q.T[1::2])),
    ],
)
def swiglu(x: Node, gate: Node | None = None) -> Node:
    """x * silu(gate); with one argument its last axis holds x and then the gate, as in `glu`.

    >>> pf.swiglu(pf.tensor([[2.0, 0.0]]))
    tensor([[0.]])
    """
    if gate is None:
        if x.ndim == 0 or x.shape[-1] % 2:
            raise ShapeError(f"[swiglu] expected an even last axis to split but got shape {x.shape}; or pass the gate")
        half = x.shape[-1] // 2
        outer = tuple((0, 1, n) for n in x.shape[:-1])
        x, gate = (F.slice(x, (*outer, (start, 1, half))) for start in (0, half))
    return x * F.silu(gate)
