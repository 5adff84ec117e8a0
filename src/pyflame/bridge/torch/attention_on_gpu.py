"""Attention as torch's GPUs dispatch it: flash, memory-efficient and cuDNN's ops, and their backward ops.

What torch's kernels hand to their backward ops (logarithms of sums, states of random numbers) ours do not need; a node
that something else reads them of is left to torch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyflame.bridge.torch.rows.attention import attend
from pyflame.bridge.torch.rows.registry import gradients, row


@row("_scaled_dot_product_flash_attention")
def flash(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    return attend(q, k, v, None, dropout_p, is_causal, scale), *[None] * 8


@row("_scaled_dot_product_flash_attention_backward", unused=(5, 6, 7, 8, 9, 12, 13))
def flash_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, begins_q: Any, begins_k: Any, most_q: Any, most_k: Any,
    dropout_p: float, is_causal: bool, seed: Any, offset: Any, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    same = partial(attend, bias=None, p=dropout_p, causal=is_causal, scale=scale)
    return tuple(gradients(same, [q, k, v], g, known=out))


@row("_scaled_dot_product_efficient_attention")
def efficient(
    q: Any, k: Any, v: Any, bias: Any, keep_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    return attend(q, k, v, bias, dropout_p, is_causal, scale), None, None, None


@row("_scaled_dot_product_efficient_attention_backward", unused=(6, 7, 8))
def efficient_backward(
    g: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, sums: Any, seed: Any, offset: Any, dropout_p: float,
    wanted: list[bool], is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    same = partial(attend, p=dropout_p, causal=is_causal, scale=scale)
    return tuple(gradients(same, [q, k, v, bias], g, wanted, known=out))


@row("_scaled_dot_product_cudnn_attention")
def cudnn(
    q: Any, k: Any, v: Any, bias: Any, keep_sums: bool, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    return attend(q, k, v, bias, dropout_p, is_causal, scale), *[None] * 8


@row("_scaled_dot_product_cudnn_attention_backward", unused=(5, 6, 7, 9, 10, 11, 12))
def cudnn_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, seed: Any, offset: Any, bias: Any, begins_q: Any,
    begins_k: Any, most_q: Any, most_k: Any, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    same = partial(attend, bias=bias, p=dropout_p, causal=is_causal, scale=scale)
    return tuple(gradients(same, [q, k, v], g, known=out))
