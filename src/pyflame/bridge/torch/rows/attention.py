"""Attention as torch's CPU dispatches it. Its backward op reads the logarithm of sums, which ours does not need."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row


def _attention(q: Any, k: Any, v: Any, causal: bool, mask: Any, scale: float | None) -> Any:
    return pf.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)


def _refuse_dropout(p: float) -> None:
    if p:
        raise pf.NotSupportedError(f"[attention] expected dropout_p=0 but got {p}")


@row("_scaled_dot_product_flash_attention_for_cpu")
def flash_for_cpu(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    _refuse_dropout(dropout_p)
    scores = (q @ k.transpose(-1, -2)).to(pf.float32) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~pf.ones(scores.shape[-2:], dtype=pf.bool_).tril(), float("-inf"))
    if attn_mask is not None:
        scores = scores + attn_mask
    return _attention(q, k, v, is_causal, attn_mask, scale), pf.logsumexp(scores, -1)


@row("_scaled_dot_product_flash_attention_for_cpu_backward", unused=(5,))
def flash_for_cpu_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout_p: float, is_causal: bool, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    _refuse_dropout(dropout_p)
    attend = partial(_attention, causal=is_causal, mask=attn_mask, scale=scale)
    return tuple(gradients(attend, [q, k, v], g, known=out))
