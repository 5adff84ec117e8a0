"""Attention as torch's CPU dispatches it. Its backward op reads the logarithm of sums, which ours does not need."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row


def attend(q: Any, k: Any, v: Any, bias: Any, p: float, causal: bool, scale: float | None) -> Any:
    """What all of torch's ops of attention compute."""
    if p:
        raise pf.NotSupportedError(f"[attention] expected dropout_p=0 but got {p}")
    shared = q.shape[-3] != k.shape[-3]
    return pf.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=scale, enable_gqa=shared)


@row("_scaled_dot_product_flash_attention_for_cpu")
def flash_for_cpu(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    out = attend(q, k, v, attn_mask, dropout_p, is_causal, scale)
    scores = (q @ k.transpose(-1, -2)).to(pf.float32) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~pf.ones(scores.shape[-2:], dtype=pf.bool_).tril(), float("-inf"))
    if attn_mask is not None:
        scores = scores + attn_mask
    return out, pf.logsumexp(scores, -1)


@row("_scaled_dot_product_flash_attention_for_cpu_backward", unused=(5,))
def flash_for_cpu_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout_p: float, is_causal: bool, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    same = partial(attend, bias=attn_mask, p=dropout_p, causal=is_causal, scale=scale)
    return tuple(gradients(same, [q, k, v], g, known=out))
