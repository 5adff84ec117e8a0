"""Products of few rows with encoded weights on a GPU, as a decoding step has them: bound by the bytes of the weights.

Several weights take part in a call, so that they come from memory and not from a cache.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Line
from pyflame.core.encoding import encoding

OUT, WIDTH, WEIGHTS = 14336, 4096, 12
KINDS = ("q4_0", "q4_k", "q6_k", "q8_0", "int4_g128", "bf16")
ROWS = (1, 4, 16)


def encoded(bench: Bench, section: str = "encoded") -> None:
    """bytes: the weights', each once."""
    out, width, count = (32, 256, 2) if bench.small else (OUT, WIDTH, WEIGHTS)
    for name in KINDS:
        data = encoding(name).encode(np.random.default_rng(0).normal(size=(out // 8, width)).astype(np.float32))
        weights = [pf.tensor(np.tile(data, (8, 1)), device=bench.device) for _ in range(count)]
        for rows in ROWS:
            made = {"pyflame": functools.partial(_ours, bench, name, weights, rows, width)}
            seconds, failed = bench.measure(made)
            work = f"{rows} rows x {count} of {out}x{width} {name}"
            nbytes = sum(w.numel() for w in weights)
            bench.add(section, Line(work, nbytes, "GB/s", seconds, failed=failed, goals={"copy": 0.6}))


def _ours(bench: Bench, name: str, weights: list[pf.Tensor], rows: int, width: int) -> dict[str, Call]:
    x = pf.randn(rows, width, device=bench.device).to(pf.bfloat16)

    @pf.jit
    def step(x: pf.Tensor, *weights: pf.Tensor) -> Any:
        return [pf.encoded_linear(x, w, encoding=name, width=width) for w in weights]

    def run() -> Any:
        result = step(x, *weights)
        pf.eval(*result)
        return result

    return {"pyflame": run}
