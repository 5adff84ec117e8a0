"""Products with encoded weights on a GPU: of few rows, as a decoding step has them, and of many, as a prompt has them.

Few rows are bound by the bytes of the weights; several weights take part in a call, so that they come from memory and
not from a cache. Many are bound by multiplying: beside them run products with the decoded weight in bfloat16, ours
("linear") and torch's, which hold up to seven times the bytes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.peers import torch_tensor
from pyflame.core.encoding import encoding

OUT, WIDTH, WEIGHTS = 14336, 4096, 12
KINDS = ("q4_0", "q4_k", "q6_k", "q8_0", "int4_g128", "bf16")
ROWS = (1, 4, 16)
PROMPTS = (64, 512, 4096)


def encoded(bench: Bench, section: str = "encoded") -> None:
    """bytes: the weights', each once."""
    out, width, count = (32, 256, 2) if bench.small else (OUT, WIDTH, WEIGHTS)
    for name in KINDS:
        data = encoding(name).encode(np.random.default_rng(0).normal(size=(out // 8, width)).astype(np.float32))
        weights = [np.tile(data, (8, 1))] * count
        for rows in ROWS:
            x = np.random.default_rng(rows).normal(size=(rows, width)).astype(pf.bfloat16.numpy)
            multiply = functools.partial(pf.encoded_linear, encoding=name, width=width)
            seconds, failed = bench.measure(
                {"pyflame": functools.partial(_ours, bench, "pyflame", multiply, x, weights)}
            )
            work = f"{rows} rows x {count} of {out}x{width} {name}"
            nbytes = sum(w.size for w in weights)
            bench.add(section, Line(work, nbytes, "GB/s", seconds, failed=failed, goals={"copy": 0.6}))
        for rows in (20, 40) if bench.small else PROMPTS:
            _prompt(bench, section, name, rows, data)


def _prompt(bench: Bench, section: str, name: str, rows: int, lines: Any) -> None:
    """Weights of the lines, eight times each."""
    data, width, count = np.tile(lines, (8, 1)), encoding(name).width(lines.shape[1]), 3
    x = np.random.default_rng(rows).normal(size=(rows, width)).astype(pf.bfloat16.numpy)
    weight = encoding(name).decode(data).astype(pf.bfloat16.numpy)
    multiply = functools.partial(pf.encoded_linear, encoding=name, width=width)
    made: dict[str, Group] = {}
    if bench.takes("torch"):
        made["torch"] = functools.partial(_torch, bench, x, [weight] * count)
    made["pyflame"] = functools.partial(_ours, bench, "pyflame", multiply, x, [data] * count)
    made["linear"] = functools.partial(_ours, bench, "linear", pf.linear, x, [weight] * count)
    seconds, failed = bench.measure(made, 2e-2)
    unit, goals = "GFLOP/s" if bench.small else "TFLOP/s", {"torch": 0.7, "linear": 0.8}
    work, flops = f"{rows} rows x {count} of {len(data)}x{width} {name}", 2 * rows * width * len(data) * count
    bench.add(section, Line(work, flops, unit, seconds, failed=failed, goals=goals))


def _torch(bench: Bench, x: Any, weights: list[Any]) -> dict[str, Call]:
    import torch

    given, held = torch_tensor(x, bench.torch_device), [torch_tensor(w, bench.torch_device) for w in weights]
    return {"torch": lambda: [torch.nn.functional.linear(given, w) for w in held]}


def _ours(bench: Bench, name: str, multiply: Any, x: Any, weights: list[Any]) -> dict[str, Call]:
    """A product with each of the weights."""
    given, *held = (pf.tensor(v, device=bench.device) for v in (x, *weights))

    @pf.jit
    def step(x: pf.Tensor, *weights: pf.Tensor) -> Any:
        return [multiply(x, w) for w in weights]

    def run() -> Any:
        result = step(given, *held)
        pf.eval(*result)
        return result

    return {name: run}
