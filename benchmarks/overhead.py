"""Ten small elementwise ops on 1,000 floats: the price of Python, of building a graph, and of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.peers import torch_contenders
from benchmarks.timing import Result, measure


def ten_ops(a: Any, b: Any) -> Any:
    c = a + b
    c = c * a
    c = c - b
    c = c * 0.5
    c = c + a
    c = c * c
    c = c * b
    c = c + 0.1
    c = c - a
    return c * 2.0


def run() -> list[Result]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(1000, dtype=np.float32), rng.standard_normal(1000, dtype=np.float32)
    ta, tb = pf.tensor(a), pf.tensor(b)
    jitted = pf.jit(ten_ops)
    torch = torch_contenders(lambda torch, x, y: ten_ops(x, y), a, b, compiled=False)
    replay = measure({"pyflame": lambda: jitted(ta, tb), **torch}, rounds=15)
    rebuilt = measure({"pyflame": lambda: pf.eval(ten_ops(ta, tb)), **torch}, rounds=15)
    return [
        Result("10 small ops, jitted replay", 0, "us", replay, 1 / 1.5),
        Result("10 small ops, graph rebuilt", 0, "us", rebuilt, 1 / 4),
    ]
