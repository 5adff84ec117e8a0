"""Building blocks of attention: rotary positions, scaled dot products, gated units."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, float64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Shape, broadcast_shapes
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
    product = F.matmul(_grouped(query, heads), flipped)
    scores = cast(F.reshape(product, (*query.shape[:-1], columns)), query.dtype.compute) * scale
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
    if query.ndim > 2 and key.shape[-3] != query.shape[-3]:
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


def _attention(*args: Any) -> Node:
    query, key, value, *rest, is_causal, scale = args
    return _mix(F.attention_weights(query, key, rest[0] if rest else None, is_causal, scale), value)


def _attention_grad(g: Node, srcs: tuple[Node, ...], out: Node, is_causal: bool, scale: float) -> tuple[Any, ...]:
    # P = softmax(S), O = P V: dV = P^T dO, dP = dO V^T, dS = P (dP - sum(dO O)), dQ = dS K scale, dK = dS^T Q scale.
    # In one plan with the forward pass P is not computed again: it is the same node.
    query, key, value, *rest = srcs
    weights = F.attention_weights(query, key, rest[0] if rest else None, is_causal, scale)

    def flipped(x: Node) -> Node:
        return F.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))

    heads = key.shape[-3] if key.ndim > 2 else 1
    row = F.reshape(F.reduce_sum(cast(g * out, g.dtype.compute), (g.ndim - 1,)), (*g.shape[:-1], 1))
    d_scores = weights * (_mix(g, flipped(value)) - row)
    scaled = cast(d_scores * scale, query.dtype)
    d_query = _mix(scaled, key)
    d_key = F.matmul(flipped(_grouped(scaled, heads)), _grouped(query, heads))
    d_value = F.matmul(flipped(_grouped(weights, heads)), _grouped(g, heads))
    return (d_query, d_key, d_value, *[None if m.dtype is bool_ else d_scores for m in rest])


def _attention_reference(*args: Any) -> Any:
    query, key, value, *rest = args
    if query.ndim > 2 and value.shape[-3] != query.shape[-3]:
        value = np.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    return _weights_reference(query, key, *rest) @ value


def _attention_infer(query: Meta, key: Meta, value: Meta, *rest: Any) -> tuple[Shape, DType]:
    return (*query.shape[:-1], value.shape[-1]), query.dtype


_K = np.cos(np.arange(2 * 4 * 5 * 8.0) * 0.7).reshape(2, 4, 5, 8)
_V = np.cos(np.arange(2 * 4 * 5 * 6.0) * 1.1).reshape(2, 4, 5, 6)
_MASK = np.sin(np.arange(15.0)).reshape(3, 5)


def _torch_attention(torch: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    grouped = query.ndim > 2 and query.shape[-3] != key.shape[-3]
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, *rest, **named, enable_gqa=grouped)


@primitive(
    COMPOSITE,
    infer=_attention_infer,
    attrs=("is_causal", "scale"),
    srcs=("query", "key", "value", "attn_mask"),
    reference=_attention_reference,
    decompose=_attention,
    grad=_attention_grad,
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
    ],
)
def scaled_dot_product_attention(
    query: Node, key: Node, value: Node, attn_mask: Node | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """softmax(query key^T * scale + mask) value, over (..., heads, T, D); scale is 1/sqrt(D) unless given.

    A boolean mask says who is seen, any other is added. Causal: query i sees keys 0..i. Fewer heads in key and value
    than in query are shared by groups of query heads. A query that sees nothing gets 0.

    >>> q = pf.randn(1, 8, 16, 64); k = v = pf.randn(1, 2, 16, 64)
    >>> pf.scaled_dot_product_attention(q, k, v, is_causal=True).shape
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
    if (
        not query.ndim == key.ndim == value.ndim
        or query.shape[:-3] != key.shape[:-3]
        or key.shape[:-2] != value.shape[:-2]
    ):
        raise ShapeError(f"[{op}] expected equal batch axes but got {shapes}; expand them first")
    if query.ndim > 2 and (key.shape[-3] == 0 or query.shape[-3] % key.shape[-3]):
        raise ShapeError(f"[{op}] expected the heads of query to be a multiple of those of key but got {shapes}")
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
    return (query, key, value, *masks), (bool(is_causal), factor)


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
