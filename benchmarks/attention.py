"""Attention forward, and forward with backward, at a small GPT's shape and at a long sequence, in float32 and bfloat16.

Queries, keys and values are views of one projection, (B, T, 3, H, D) -> (B, H, T, D), as a transformer has them. torch
runs its flash kernel eagerly. A call is 4 B H T^2 D flops forward and 10 more backward, half of that if causal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.peers import have, torch_has_bf16
from benchmarks.timing import Result, measure

SHAPES = ((8, 6, 256, 64, True), (1, 8, 2048, 64, False))
REACH = {"float32": 1.0, "bfloat16": 0.8}


def _ours(x: np.ndarray, g: np.ndarray, dtype: str, causal: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    kind = getattr(pf, dtype)
    projection, slope = pf.tensor(x, dtype=kind).requires_grad_(), pf.tensor(g, dtype=kind)

    def attend(projection: Any) -> Any:
        q, k, v = (projection[:, :, i].transpose(1, 2) for i in range(3))
        return pf.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    @pf.jit
    def both(projection: Any, slope: Any) -> Any:
        attend(projection).backward(slope)
        grad, projection.grad = projection.grad, None
        return grad

    forward = pf.jit(attend)
    detached = projection.detach()
    return lambda: pf.eval(forward(detached)), lambda: pf.eval(both(projection, slope))


def _torch(x: np.ndarray, g: np.ndarray, dtype: str, causal: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    kind = getattr(torch, dtype)
    projection, slope = torch.tensor(x, dtype=kind, requires_grad=True), torch.tensor(g, dtype=kind)

    def attend() -> Any:
        q, k, v = (projection[:, :, i].transpose(1, 2) for i in range(3))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    def forward() -> Any:
        with torch.no_grad():
            return attend()

    def both() -> Any:
        projection.grad = None
        attend().backward(slope)

    return forward, both


def run() -> list[Result]:
    rng = np.random.default_rng(0)
    results = []
    for batch, heads, time, size, causal in SHAPES:
        x = rng.standard_normal((batch, time, 3, heads, size), dtype=np.float32)
        g = rng.standard_normal((batch, time, heads, size), dtype=np.float32)
        flops = 4 * batch * heads * time**2 * size / (2 if causal else 1)
        for dtype, reach in REACH.items():
            ours = _ours(x, g, dtype, causal)
            peer = have("torch") if dtype == "float32" else torch_has_bf16()
            theirs = _torch(x, g, dtype, causal) if peer else (None, None)
            shape = f"B={batch} H={heads} T={time} D={size}{' causal' if causal else ''} {dtype}"
            for name, amount, fn, other in zip(
                ("attention", "attention fwd+bwd"), (flops, 3.5 * flops), ours, theirs, strict=True
            ):
                contenders = {"pyflame": fn} | ({"torch": other} if other else {})
                seconds = measure(contenders, rounds=15, budget=2.0)
                results.append(Result(f"{name} {shape}", amount, "GFLOP/s", seconds, reach))
    return results
