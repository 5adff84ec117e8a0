"""Attention over sequences of different lengths that lie packed one behind the other, with PyTorch's name."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.errors import DTypeError, ShapeError
from pyflame.ir import F, Node, Sample, cast, common_dtype, composite
from pyflame.ops.attention import Window, attention_band, numpy_attention, score_factors, torch_scores
from pyflame.ops.attention_spans import packed
from pyflame.ops.base import want_tensors

_ENDS_Q, _ENDS_K = np.array([0, 3, 3, 8]), np.array([0, 4, 5, 11])
_Q = np.sin(np.arange(8 * 4 * 6.0) * 1.3).reshape(8, 4, 6)
_K = np.cos(np.arange(11 * 4 * 6.0) * 0.7).reshape(11, 4, 6)
_V = np.cos(np.arange(11 * 4 * 5.0) * 1.1).reshape(11, 4, 5)


def _each(
    attend: Any, query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, window_size: Window, seqused_k: Any
) -> list[Any]:
    """What `attend` makes of each sequence, heads first."""
    found, turned = [], [x.swapaxes(0, 1) for x in (query, key, value)]
    for n in range(len(cu_seq_q) - 1):
        first, start, end = int(cu_seq_q[n]), int(cu_seq_k[n]), int(cu_seq_k[n + 1])
        end = end if seqused_k is None else start + int(seqused_k[n])
        q, k, v = (
            x[:, a:b] for x, a, b in zip(turned, (first, start, start), (int(cu_seq_q[n + 1]), end, end), strict=True)
        )
        found.append(attend(q, k, v, window=window_size, query_offset=k.shape[1] - q.shape[1]).swapaxes(0, 1))
    return found


def _reference(
    query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: Any = None, max_k: Any = None, *,
    scale: Any = None, window_size: Window = (-1, -1), enable_gqa: bool = False, seqused_k: Any = None,
    softcap: Any = None,
) -> Any:  # fmt: skip
    def attend(q: Any, k: Any, v: Any, **named: Any) -> Any:
        return numpy_attention(q, k, v, scale=scale, softcap=softcap, **named)

    found = _each(attend, query, key, value, cu_seq_q, cu_seq_k, window_size, seqused_k)
    rest = np.zeros((len(query) - int(cu_seq_q[-1]), query.shape[1], value.shape[2]), query.dtype)
    return np.concatenate([*found, rest])


def _torch(
    torch: Any, query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, *, window_size: Window = (-1, -1),
    seqused_k: Any = None, **named: Any,
) -> Any:  # fmt: skip
    """By sequence: torch's own needs a GPU."""

    def attend(q: Any, k: Any, v: Any, **more: Any) -> Any:
        return torch_scores(torch, q, k, v, **more, **named)

    return torch.cat(_each(attend, query, key, value, cu_seq_q, cu_seq_k, window_size, seqused_k))


@composite(
    reference=_reference,
    torch=_torch,
    method=False,
    autocast="low",
    samples=lambda: [
        Sample((_Q, _K, _V, _ENDS_Q, _ENDS_K)),
        Sample((_Q, _K[:, :2], _V[:, :2], _ENDS_Q, _ENDS_K), {"window_size": (-1, 0)}),
        Sample((_Q, _K, _V, _ENDS_Q, _ENDS_K), {"window_size": (1, 2), "scale": 0.7, "softcap": 1.5}),
        Sample((_Q, _K, _V, _ENDS_Q, _ENDS_K), {"seqused_k": np.array([2, 1, 5])}),
    ],
)
def varlen_attn(
    query: Node, key: Node, value: Node, cu_seq_q: Node, cu_seq_k: Node, max_q: int | None = None,
    max_k: int | None = None, *, scale: float | None = None, window_size: Window = (-1, -1), enable_gqa: bool = False,
    seqused_k: Node | None = None, softcap: float | None = None,
) -> Node:  # fmt: skip
    """Attention within packed sequences: query (T, H, D), key (S, G, D), value (S, G, E) give (T, H, E).

    Sequence n has queries cu_seq_q[n] to cu_seq_q[n + 1] and keys cu_seq_k[n] to cu_seq_k[n + 1]; both begin with 0 and
    never fall. Its last query stands at its last key: window_size=(-1, 0) is causal, (left, 0) a window of so many keys
    back. seqused_k: only so many keys of each sequence count. max_q and max_k are not needed. Queries of no sequence,
    and those that see nothing, get 0.

    >>> q, ends = pf.randn(10, 4, 16), pf.tensor([0, 3, 10])
    >>> pf.varlen_attn(q, q, q, ends, ends, window_size=(-1, 0)).shape
    (10, 4, 16)
    """
    op = "varlen_attn"
    want_tensors(op, cu_seq_q=cu_seq_q, cu_seq_k=cu_seq_k, **({} if seqused_k is None else {"seqused_k": seqused_k}))
    dtype = common_dtype(op, (query, key, value))
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not dtype.is_float:
        raise DTypeError(f"[{op}] expected floating-point tensors but got {dtype.name}; cast with .to(pf.float32)")
    if (query.ndim, key.ndim, value.ndim) != (3, 3, 3) or (query.shape[2], key.shape[:2]) != (
        key.shape[2],
        value.shape[:2],
    ):
        raise ShapeError(f"[{op}] expected query (T, H, D), key (S, G, D) and value (S, G, E) but got {shapes}")
    if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        raise ShapeError(f"[{op}] expected the heads of query to be a multiple of those of key but got {shapes}")
    ends = [x for x in (cu_seq_q, cu_seq_k, seqused_k) if x is not None]
    counts = {x.shape[0] - (n < 2) if x.ndim == 1 else -1 for n, x in enumerate(ends)}
    if len(counts) > 1 or min(counts) < 0 or not all(x.dtype.is_int for x in ends):
        given = ", ".join(f"{x.dtype.name} of shape {x.shape}" for x in ends)
        raise ShapeError(f"[{op}] expected whole numbers (N + 1), (N + 1) and for seqused_k (N) but got {given}")
    factors = score_factors(op, query.shape[2], scale, softcap)
    spans = packed(cu_seq_q, cu_seq_k, seqused_k, query.shape[0], key.shape[0])
    heads_first = [
        F.reshape(F.permute(cast(x, dtype), (1, 0, 2)), (1, x.shape[1], x.shape[0], x.shape[2]))
        for x in (query, key, value)
    ]
    out = F.attention(*heads_first, None, spans, *attention_band(op, False, window_size, 0), *factors)
    return F.reshape(out, (query.shape[0], query.shape[1], value.shape[2]))
