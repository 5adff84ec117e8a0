"""Building blocks of attention: rotary positions, scaled dot products, gated units."""

from __future__ import annotations

from math import inf, log2, prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, float64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Shape, broadcast_shapes
from pyflame.ir import F, Meta, Node, Sample, cast, common_dtype, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.attention_core import by_rows, folded, mix, weights_reference
from pyflame.ops.attention_spans import limited
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


def _four_axes(x: Node) -> Node:
    """(..., H, T, D) -> (B, H, T, D)"""
    shape = (1,) * (3 - x.ndim) + x.shape
    return F.reshape(x, (prod(shape[:-3]), *shape[-3:]))


def _four_axis_mask(mask: Node, scores: Shape) -> Node:
    """The mask of scores (..., H, T, S) over 4 axes, which may be 1."""
    shape = (1,) * (len(scores) - mask.ndim) + mask.shape
    lead = scores[:-3] if any(n > 1 for n in shape[:-3]) else (1,) * len(scores[:-3])
    return _four_axes(F.expand(F.reshape(mask, shape), (*lead, *shape[len(lead) :])))


Window = int | tuple[int, int] | None


def attention_band(op: str, is_causal: bool, window: Window, offset: int) -> tuple[int | None, int | None]:
    """The least and the greatest key - query that is seen; None where there is no limit."""
    sides = (window, window) if window is None or not isinstance(window, (tuple, list)) else tuple(window)
    if len(sides) != 2:
        raise ArgumentError(f"[{op}] expected window=(left, right) or one number but got {window!r}")
    left, right = (-1 if n is None else want_whole(op, "window", n) for n in sides)
    if min(left, right) < -1:
        raise ArgumentError(f"[{op}] expected a window of at least 0 keys, or -1 for all, but got {window!r}")
    high = 0 if is_causal else None if right == -1 else right
    return (None if left == -1 else offset - left), (None if high is None else offset + high)


def score_factors(op: str, depth: int, scale: float | None, softcap: float | None) -> tuple[float, float]:
    """What scores are multiplied with, and what they are capped at; 0: nothing."""
    usual = 1.0 / depth**0.5 if depth else 1.0
    cap = 0.0 if softcap is None else want_number(op, "softcap", softcap)
    if not 0.0 <= cap < inf:
        raise ArgumentError(f"[{op}] expected a positive softcap, or None, but got {softcap!r}")
    return usual if scale is None else want_number(op, "scale", scale), cap


def _numpy_seen(
    query: Any, key: Any, mask: Any, is_causal: bool, window: Window, offset: Any, lengths: Any
) -> Any:  # fmt: skip
    """A mask that says what offsets and lengths say."""
    low, high = attention_band("reference", is_causal, window, 0)
    ahead = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None] - np.reshape(offset, (-1, 1, 1, 1))
    seen = (ahead >= (-np.inf if low is None else low)) & (ahead <= (np.inf if high is None else high))
    if lengths is not None:
        seen = seen & (np.arange(key.shape[-2]) < np.reshape(lengths, (-1, 1, 1, 1)))
    return seen if mask is None else seen & mask if mask.dtype == bool else np.where(seen, mask, -np.inf)


def numpy_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, window: Window = None, softcap: float | None = None,
    query_offset: Any = 0, lengths: Any = None,
) -> Any:  # fmt: skip
    if lengths is not None or not isinstance(query_offset, int):
        attn_mask = _numpy_seen(query, key, attn_mask, is_causal, window, query_offset, lengths)
        is_causal, window, query_offset = False, None, 0
    if query.ndim > 2 and value.shape[-3] < query.shape[-3]:
        value = np.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    masks = () if attn_mask is None else (attn_mask,)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    band = attention_band("reference", is_causal, window, query_offset)
    return weights_reference(query, key, *masks, *band, factor, softcap) @ value


_K = np.cos(np.arange(2 * 4 * 5 * 8.0) * 0.7).reshape(2, 4, 5, 8)
_V = np.cos(np.arange(2 * 4 * 5 * 6.0) * 1.1).reshape(2, 4, 5, 6)
_MASK = np.sin(np.arange(15.0)).reshape(3, 5)


def _broadcast_batch(op: str, query: Node, key: Node, value: Node, grouped: bool) -> tuple[Node, Node, Node]:
    """All with the same axes before the last two, but that heads of key and value may serve several of query."""
    if query.ndim == key.ndim == value.ndim == 2:
        return query, key, value
    shapes = [(1,) * (3 - x.ndim) + x.shape for x in (query, key, value)]
    batch = broadcast_shapes(op, *(s[:-3] for s in shapes))
    (shared,) = broadcast_shapes(op, *(s[-3:-2] for s in shapes[1:]))
    heads = shared if shapes[0][-3] == 1 else shapes[0][-3]
    if shapes[0][-3] == 0 and shared <= 1:
        shared = 0  # nobody asks
    elif shared == 0 or heads % shared:
        raise ShapeError(
            f"[{op}] expected the heads of query to be a multiple of those of key but got query {query.shape}, "
            f"key {key.shape}, value {value.shape}"
        )
    elif shared not in (1, heads) and not grouped:
        raise ShapeError(
            f"[{op}] expected as many heads in key as in query, or one, but got query {query.shape}, key {key.shape}; "
            "enable_gqa=True shares each of key's among a group of query's"
        )
    wanted = [(*batch, n, *s[-2:]) for n, s in zip((heads, shared, shared), shapes, strict=True)]
    spread = [x if x.shape == w else F.expand(x, w) for x, w in zip((query, key, value), wanted, strict=True)]
    return spread[0], spread[1], spread[2]


def _torch_attention(torch: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    grouped = named.pop("enable_gqa", False) or (min(query.ndim, key.ndim) > 2 and key.shape[-3] == 1)
    if {"window", "softcap", "query_offset", "lengths"} & set(named):
        return torch_scores(torch, query, key, value, *rest, **named)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, *rest, **named, enable_gqa=grouped)


def torch_scores(
    torch: Any, query: Any, key: Any, value: Any, mask: Any = None, *, window: Window = None,
    softcap: float | None = None, query_offset: Any = 0, lengths: Any = None, is_causal: bool = False,
    scale: float | None = None,
) -> Any:  # fmt: skip
    """What torch's function has no words for, of its products and softmax."""
    key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores if mask is None else scores + mask
    low, high = attention_band("torch", is_causal, window, 0)
    position = torch.arange(scores.shape[-1])
    ahead = (
        position
        - torch.arange(scores.shape[-2])[:, None]
        - torch.as_tensor(query_offset).reshape(-1, *[1] * (scores.ndim - 1))
    )
    seen = (ahead >= (-torch.inf if low is None else low)) & (ahead <= (torch.inf if high is None else high))
    seen = seen if lengths is None else seen & (position < lengths.reshape(-1, 1, 1, 1))
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value


def _spans(op: str, lengths: Node | None, offset: int | Node, query: Shape, keys: int) -> Node:
    given = {"lengths": lengths, "query_offset": offset}
    for name, x in given.items():
        if isinstance(x, Node) and (not x.dtype.is_int or x.size not in (1, query[0])):
            raise ShapeError(
                f"[{op}] expected whole numbers as {name}, one or one for each of {query[0]} batch entries, but got "
                f"{x.dtype.name} of shape {x.shape}"
            )
    if lengths is not None:
        want_tensors(op, lengths=lengths)
    return limited(lengths, offset, query[0], query[2], keys)


@composite(
    reference=numpy_attention,
    torch=_torch_attention,
    method=False,
    autocast="low",
    samples=lambda: [
        Sample((_Q, _K, _V)),
        Sample((_Q, _K, _V), {"is_causal": True}),
        Sample((_Q, _K, _V, _MASK), {"scale": 0.3}),
        Sample((_Q, _K, _V, np.arange(15).reshape(3, 5) % 4 > 0)),
        Sample((_Q, _K, _V, np.array([[True] * 5, [False] * 5, [True, False, True, False, True]]))),
        Sample((_Q, _K[:, :2], _V[:, :2]), {"is_causal": True, "enable_gqa": True}),
        Sample((_Q, _K[:, :1], _V[:, :1], np.broadcast_to(_MASK, (2, 1, 3, 5)).copy())),
        Sample((_Q[0, 0], _K[0, 0], _V[0, 0])),
        Sample((_Q[:, :, :0], _K[:, :2], _V[:, :2]), {"enable_gqa": True}),
        Sample((_Q[:, :0], _K[:, :1], _V[:, :1])),
        Sample((_Q[0, :, :1], _K[0], _V[0])),
        Sample((_Q[:1, :1], _K, _V[0])),
        Sample((_Q[0, 0], _K[:, :1], _V[:1])),
        Sample((_Q, _K, _V), {"window": (0, 1)}),
        Sample((_Q, _K[:, :2], _V[:, :2]), {"is_causal": True, "window": 1, "softcap": 0.7, "enable_gqa": True}),
        Sample((_Q, _K, _V, _MASK), {"window": (-1, 2), "softcap": 2.0, "scale": 1.5}),
        Sample((_Q, _K, _V), {"is_causal": True, "query_offset": 2}),
        Sample((_Q, _K, _V), {"lengths": np.array([2, 5]), "softcap": 3.0}),
        Sample((_Q, _K[:, :1], _V[:, :1]), {"is_causal": True, "query_offset": np.array([0, 2]), "window": 2}),
        Sample((_Q, _K, _V, _MASK), {"query_offset": np.array(1), "window": (1, 2), "lengths": np.array([4, 3])}),
        Sample(
            (_Q[:, :, :1], _K[:, :2], _V[:, :2]),
            {"is_causal": True, "query_offset": 3, "window": (1, 5), "enable_gqa": True},
        ),
    ],
)
def scaled_dot_product_attention(
    query: Node, key: Node, value: Node, attn_mask: Node | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, *, window: Window = None, softcap: float | None = None,
    query_offset: int | Node = 0, lengths: Node | None = None,
) -> Node:  # fmt: skip
    """softmax(query key^T * scale + mask) value, over (..., heads, T, D); scale is 1/sqrt(D) unless given.

    A boolean mask says who is seen, any other is added. Causal: query i sees keys 0..i. With enable_gqa fewer heads
    in key and value than in query are shared by groups of query heads; one is in any case. A query that sees nothing
    gets 0.

    Beyond PyTorch: window=(left, right): query i sees keys i - left to i + right, where -1 is no limit; one number is
    both, so a causal model sees so many keys back, besides its own. Its cost is that of the window. softcap=c:
    scores are c * tanh(score / c) before the mask, as in Gemma 2. query_offset: query i stands at key i + query_offset,
    for causal and windows; S - T makes the queries the last ones, as when decoding. lengths: so many keys of each batch
    entry count. Both may be tensors of one number for each batch entry, so that one plan serves a growing cache.

    >>> q, k = pf.randn(1, 8, 16, 64), pf.randn(1, 2, 16, 64)
    >>> pf.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).shape
    (1, 8, 16, 64)
    """
    op = "scaled_dot_product_attention"
    dtype = common_dtype(op, (query, key, value))
    if not dtype.is_float:
        raise DTypeError(f"[{op}] expected floating-point tensors but got {dtype.name}; cast with .to(pf.float32)")
    if (
        min(query.ndim, key.ndim, value.ndim) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        raise ShapeError(
            f"[{op}] expected query (.., T, D), key (.., S, D) and value (.., S, E) but got query {query.shape}, key "
            f"{key.shape}, value {value.shape}"
        )
    query, key, value = _broadcast_batch(op, query, key, value, enable_gqa)
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
    factors = score_factors(op, query.shape[-1], scale, softcap)
    four = [_four_axes(x) for x in (query, key, value)]
    spans = None
    if lengths is not None or isinstance(query_offset, Node):
        spans = _spans(op, lengths, query_offset, four[0].shape, key.shape[-2])
        query_offset = 0
    offset = want_whole(op, "query_offset", query_offset)
    rule = (*attention_band(op, bool(is_causal), window, offset), *factors)
    mask = None
    if masks:
        mask = _four_axis_mask(masks[0] if masks[0].dtype is bool_ else cast(masks[0], dtype.compute), scores)
    if want_number(op, "dropout_p", dropout_p) > 0.0:
        extra = [x for x in (mask, spans) if x is not None]
        weights = F.attention_weights(four[0], four[1], *folded(four[0], four[1], (*extra, *rule)))
        return F.reshape(mix(F.dropout(weights, dropout_p), four[2]), (*query.shape[:-1], value.shape[-1]))
    out = by_rows(F.attention(*four, mask, spans, *rule))
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
