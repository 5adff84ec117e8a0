"""Building and planning must be linear in the number of nodes, for graphs of all kinds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np

import pyflame as pf
from benchmarks.timing import Result
from pyflame.ir.graph import topological
from pyflame.ir.opdef import CONST, LEAF


def chain(ops: int) -> list[pf.Tensor]:
    """Elementwise ops, one behind the other."""
    x = y = pf.tensor(np.ones(1000, np.float32))
    for _ in range(ops // 2):
        y = y * 0.5
        y = y + x
    return [y]


def apart(ops: int) -> list[pf.Tensor]:
    """Small tensors that have nothing to do with each other."""
    return [x * 2.0 + x for x in [pf.tensor(np.ones(16, np.float32)) for _ in range(ops // 2)]]


def recurrent(ops: int) -> list[pf.Tensor]:
    """Steps of a recurrent network."""
    steps = ops // 7
    x, h = pf.tensor(np.ones((steps, 4, 16), np.float32)), pf.tensor(np.zeros((4, 16), np.float32))
    w, u, b = (pf.tensor(np.ones(shape, np.float32)) for shape in ((16, 16), (16, 16), (16,)))
    for t in range(steps):
        h = (x[t] @ w + h @ u + b).tanh()
    return [h]


def training(ops: int) -> list[pf.Tensor]:
    """Layers forwards and backwards, and the updates of their weights."""
    layers = [pf.nn.Linear(32, 32) for _ in range(ops // 10)]
    x = pf.tensor(np.ones((8, 32), np.float32))
    for layer in layers:
        x = layer(x).relu()
    loss = (x**2).mean()
    loss.backward()
    with pf.no_grad():
        return [loss, *[p - 0.1 * p.grad for layer in layers for p in layer.parameters()]]


def _measured(graph: Callable[[int], list[pf.Tensor]], ops: int) -> Result:
    gc.collect()
    started = time.process_time()
    out = graph(ops)
    built = time.process_time()
    made = sum(n.op.kind not in (LEAF, CONST) for n in topological([t._node for t in out]))
    begun = time.process_time()
    pf.eval(*out)
    build, plan = built - started, time.process_time() - begun
    per_op = {"pyflame build": build / made, "pyflame plan": plan / made, "pyflame": (build + plan) / made}
    return Result(f"{graph.__name__}, {made:,} ops, per op", 0, "us", per_op)


def run() -> list[Result]:
    kinds = [
        (chain, 1_000),
        (chain, 10_000),
        (chain, 100_000),
        (apart, 10_000),
        (recurrent, 10_000),
        (training, 10_000),
    ]
    with pf.device("null"):
        return [_measured(graph, ops) for graph, ops in kinds]
