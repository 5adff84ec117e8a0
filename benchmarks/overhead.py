"""What the host costs: ten small elementwise ops on 1,000 floats, and calls on a GPU whose driver does nothing."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.peers import torch_contenders
from benchmarks.timing import Result, measure
from pyflame.core.device import DeviceId
from pyflame.engine import devices


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
        *calls_on_a_gpu(),
    ]


def calls_on_a_gpu() -> list[Result]:
    """Calls of jitted functions whose graphs and launches cost the GPU no time. They are made for real on the emulated
    GPU first."""
    from tests.emulated import EmulatedDriver, emulated_device
    from tests.training import usual_step

    name = DeviceId("rocm", 46)
    devices._open[name] = emulated_device(name.index)
    given = EmulatedDriver.graph_launch, EmulatedDriver.launch
    with pf.device(str(name)):
        a, b = pf.ones(64, 64) + 0, pf.ones(64, 64) + 0
        pf.eval(a, b)
        product = pf.jit(lambda x, y: x @ y)
        model = pf.nn.Linear(64, 64)
        optimizer = pf.optim.AdamW(model.parameters(), lr=1e-3)
        step = usual_step(model, optimizer, lambda y: (y**2).mean())
        elsewhere = cycle([pf.ones(64, 64) + float(n) for n in range(16)])
        moving = pf.jit(lambda x, y: x @ y)
        work = {
            "a product, replayed": lambda: product(a, b),
            "a training step of one layer, replayed": lambda: step(a),
            "a product whose argument moves, launched": lambda: moving(next(elsewhere), b),
        }
        for call in work.values():
            for _ in range(32):
                call()
        EmulatedDriver.graph_launch = EmulatedDriver.launch = lambda *_: None
        try:
            found = {what: measure({"pyflame": call}, rounds=15) for what, call in work.items()}
        finally:
            EmulatedDriver.graph_launch, EmulatedDriver.launch = given
    return [Result(f"{what} by a driver that does nothing", 0, "us", t) for what, t in found.items()]
