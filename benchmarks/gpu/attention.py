"""Attention on a GPU beside torch's: forward, the gradients of query, key and value by themselves, and decoding."""

from __future__ import annotations

import functools
from typing import Any

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.gpu.ops import normal
from benchmarks.peers import torch_tensor

# batch, heads, heads of keys, tokens, size of a head, causal
CASES = (
    (4, 32, 32, 4096, 128, True),
    (4, 32, 32, 4096, 128, False),
    (16, 12, 12, 1024, 64, True),
    (4, 32, 8, 4096, 128, True),
)
# batch, heads, heads of keys, queries, keys, size of a head: what a decoding step reads is keys and values
DECODED = (
    (1, 32, 8, 1, 131072, 128),
    (64, 32, 8, 1, 8192, 128),
    (64, 32, 32, 1, 2048, 128),
    (32, 16, 8, 4, 8192, 256),
)
FAR = 0.05  # of the largest number, in bfloat16


def attention(bench: Bench, section: str = "attention") -> None:
    """flops: two products forward, five backward; half of them where causal."""
    for batch, heads, shared, tokens, size, causal in CASES:
        batch, tokens, unit = (1, 16, "GFLOP/s") if bench.small else (batch, tokens, "TFLOP/s")
        arrays = [normal(batch, n, tokens, size, dtype="bfloat16") for n in (heads, shared, shared, heads)]
        flops = 4 * batch * heads * tokens * tokens * size // (2 if causal else 1)
        for gradients in (False, True):
            made: dict[str, Group] = {"pyflame": functools.partial(_ours, bench, arrays, causal, gradients)}
            if bench.takes("torch"):
                made["torch"] = functools.partial(_torch, bench, arrays, causal, gradients)
            seconds, failed = bench.measure(made, FAR)
            name = f"attention {batch}x{heads}/{shared}x{tokens}x{size} bf16" + (" causal" if causal else "")
            name += ", forward and backward" if gradients else ""
            work = flops * 7 // 2 if gradients else flops
            goals = {"torch": 0.65 if gradients else 0.75}
            bench.add(section, Line(name, work, unit, seconds, failed=failed, goals=goals))


def decode(bench: Bench, section: str = "decode") -> None:
    """bytes: keys and values, each once."""
    for batch, heads, shared, queries, keys, size in DECODED:
        batch, keys = (1, 512) if bench.small else (batch, keys)
        shapes = ((heads, queries), (shared, keys), (shared, keys), (heads, queries))
        arrays = [normal(batch, n, rows, size, dtype="bfloat16") for n, rows in shapes]
        made: dict[str, Group] = {"pyflame": functools.partial(_ours, bench, arrays, False, False)}
        if bench.takes("torch"):
            made["torch"] = functools.partial(_torch, bench, arrays, False, False)
        seconds, failed = bench.measure(made, FAR)
        name = f"decode {batch}x{heads}/{shared}x{queries} of {keys}x{size} bf16"
        nbytes = 2 * arrays[1].nbytes
        bench.add(section, Line(name, nbytes, "GB/s", seconds, failed=failed, goals={"copy": 0.80, "torch": 1.0}))


def _step(attend: Any, arrays: list[Any], causal: bool, gradients: bool) -> Any:
    options = {"is_causal": causal, "enable_gqa": arrays[0].shape[1] != arrays[1].shape[1]}

    def step(q: Any, k: Any, v: Any, g: Any) -> Any:
        if not gradients:
            return attend(q, k, v, **options)
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        out = attend(q, k, v, **options)
        out.backward(g)
        return q.grad, k.grad, v.grad

    return step


def _ours(bench: Bench, arrays: list[Any], causal: bool, gradients: bool) -> dict[str, Call]:
    given = [pf.tensor(a, device=bench.device) for a in arrays]
    step = pf.jit(_step(pf.scaled_dot_product_attention, arrays, causal, gradients))

    def run() -> Any:
        result = step(*given)
        pf.eval(result)
        return result

    return {"pyflame": run}


def _torch(bench: Bench, arrays: list[Any], causal: bool, gradients: bool) -> dict[str, Call]:
    import torch

    given = [torch_tensor(a, bench.torch_device) for a in arrays]
    step = _step(torch.nn.functional.scaled_dot_product_attention, arrays, causal, gradients)
    return {"torch": functools.partial(step, *given)}
