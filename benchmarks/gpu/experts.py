"""Products of tokens with experts of their own on a GPU: decoding steps, bound by bytes, and prompts, bound by flops.

Several stacks take part in a decoding step, so that they come from memory and not from a cache.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Line
from pyflame.core.encoding import encoding

COUNT, USED, OUT, WIDTH, STACKS = 128, 8, 768, 2048, 4
KINDS = ("q4_0", "q4_k", "bf16")
TOKENS = (1, 8, 512, 4096)


def experts(bench: Bench, section: str = "experts") -> None:
    """GB/s: of the matrices that tokens name, each once. TFLOP/s: of their products."""
    count, out, width, stacks = (8, 32, 256, 2) if bench.small else (COUNT, OUT, WIDTH, STACKS)
    for name in KINDS:
        rows = encoding(name).encode(np.random.default_rng(0).normal(size=(out, width)).astype(np.float32))
        data = [pf.tensor(np.tile(rows, (count, 1, 1)), device=bench.device) for _ in range(stacks)]
        for tokens in TOKENS[:3] if bench.small else TOKENS:
            ids = np.stack([np.random.default_rng(t).permutation(count)[:USED] for t in range(tokens)])
            seconds, failed = bench.measure({"pyflame": functools.partial(_ours, bench, name, data, ids, width)})
            work = f"{tokens} tokens x {stacks} of {USED} of {count} of {out}x{width} {name}"
            if tokens * USED <= count:
                amount, unit = stacks * len(np.unique(ids)) * rows.nbytes, "GB/s"
            else:
                amount, unit = 2 * stacks * ids.size * out * width, "TFLOP/s"
            goals = {"copy": 0.5} if unit == "GB/s" else {}
            bench.add(section, Line(work, amount, unit, seconds, failed=failed, goals=goals))


def _ours(bench: Bench, name: str, data: list[pf.Tensor], ids: Any, width: int) -> dict[str, Call]:
    x, at = pf.randn(len(ids), width, device=bench.device).to(pf.bfloat16), pf.tensor(ids, device=bench.device)

    @pf.jit
    def step(x: pf.Tensor, at: pf.Tensor, *stacks: pf.Tensor) -> Any:
        return [pf.expert_linear(x, stack, at, encoding=name) for stack in stacks]

    def run() -> Any:
        result = step(x, at, *data)
        pf.eval(*result)
        return result

    return {"pyflame": run}
