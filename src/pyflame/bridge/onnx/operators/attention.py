"""Attention and rotary positions (opset 23 on)."""

from __future__ import annotations

import math
from typing import Any

from pyflame.bridge.onnx.operators.shapes import constant_pad
from pyflame.bridge.onnx.table import Call, operator
from pyflame.bridge.onnx.values import numpy_dtype
from pyflame.core.dtype import as_dtype, bool_, int64
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange

_NEVER = float("-inf")


def _heads(x: Tensor, count: int | None) -> Tensor:
    """(B, T, H*D) -> (B, H, T, D); four axes stay."""
    if x.ndim == 4 or count is None:
        return x
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _bias(call: Call, q: Tensor, keys: int, mask: Tensor | None, past: int, lengths: Tensor | None) -> list[Tensor]:
    """What is added to the scores: masks, the causal limit, windows and the end of each sequence."""
    found: list[Tensor] = []
    if mask is not None:
        short = keys - mask.shape[-1]
        mask = constant_pad(mask, {mask.ndim - 1: (0, short)}, False if mask.dtype is bool_ else _NEVER)
        found.append(F["where"](mask, 0.0, _NEVER) if mask.dtype is bool_ else mask)
    offset: Any = past
    if lengths is not None:
        offset = lengths.to(int64).reshape(-1, 1, 1, 1) - q.shape[2]
    here, there = arange(q.shape[2]).reshape(-1, 1) + offset, arange(keys).reshape(1, -1)
    seen = [there <= here] if call.get("is_causal", 0) else []
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    seen += [here - there <= left] if left >= 0 else []
    seen += [there - here <= right] if right >= 0 else []
    if lengths is not None:
        seen.append(there < lengths.to(int64).reshape(-1, 1, 1, 1))
    return found + [F["where"](s, 0.0, _NEVER) for s in seen]


@operator("Attention")
def attention(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    flat = q.ndim == 3
    query, key, value = (
        _heads(x, call.get(name)) for x, name in ((q, "q_num_heads"), (k, "kv_num_heads"), (v, "kv_num_heads"))
    )
    key = key if past_key is None else F["cat"]([past_key, key], 2)
    value = value if past_value is None else F["cat"]([past_value, value], 2)
    present = (key, value)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = F["repeat_interleave"](key, groups, 1), F["repeat_interleave"](value, groups, 1)
    scale = call.get("scale")
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    stages = [F["matmul"](query * root, (key * root).transpose(-1, -2))]
    cap = call.get("softcap", 0.0)
    stages.append(F["tanh"](stages[-1] / cap) * cap if cap else stages[-1])
    biased = stages[-1]
    past = 0 if past_key is None else past_key.shape[2]
    for part in _bias(call, query, key.shape[2], mask, past, lengths):
        biased = biased + part.to(biased.dtype)
    stages.append(biased)
    stages.append(_softmax(call, biased))
    out = F["matmul"](stages[-1], value)
    if flat:
        out = out.transpose(1, 2).reshape(q.shape[0], q.shape[1], -1)
    return out, *present, stages[call.get("qk_matmul_output_mode", 0)]


def _softmax(call: Call, scores: Tensor) -> Tensor:
    """A row that sees nothing gets zeros."""
    precision = call.get("softmax_precision")
    wide = scores if precision is None else scores.to(as_dtype(numpy_dtype(precision)))
    found = F["softmax"](wide, -1).to(scores.dtype)
    return F["where"](F["amax"](scores, -1, True) == _NEVER, 0.0, found)


@operator("RotaryEmbedding")
def rotary_embedding(call: Call, x: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None = None) -> Tensor:
    shape = x.shape
    count = call.get("num_heads", 0)
    # (B, H, T, D) -> (B, T, H, D)
    rows = x.transpose(1, 2) if x.ndim == 4 else x.reshape(shape[0], shape[1], count, -1)
    turned = call.get("rotary_embedding_dim", 0) or rows.shape[-1]
    if at is not None:
        cos, sin = (F["embedding"](part, at.to(int64)) for part in (cos, sin))
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    part, rest = rows[..., :turned], rows[..., turned:]
    if call.get("interleaved", 0):
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : turned // 2], part[..., turned // 2 :]
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if call.get("interleaved", 0):
        new = F["stack"]([real, imaginary], -1).reshape(part.shape)
    else:
        new = F["cat"]([real, imaginary], -1)
    out = F["cat"]([new, rest], -1) if rest.shape[-1] else new
    return out.transpose(1, 2) if len(shape) == 4 else out.reshape(shape)
