"""Simulated AMD GPUs: wave-instructions per second on one core, with our own kernels. At least a million is wanted.

    python -m benchmarks sim
    perf record -g python -m benchmarks sim; perf report --no-children   # where the time goes, by handler

A wave-instruction is one instruction for the 64 lanes of gfx942 or the 32 of gfx1100; a dual instruction counts as one.
Bounds, races in LDS and reads of what nothing has written are checked, as always. Only the time within launches counts:
compiling, decoding and copies happen outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.timing import Result
from pyflame.runtime.sim.machine import Machine

TARGETS = ("gfx942", "gfx1100")
ROUNDS = 5


class Meter:
    """Seconds and instructions of all launches while it is on."""

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0

    def __enter__(self) -> Meter:
        self._launch = Machine.launch
        meter, launch = self, Machine.launch

        def timed(machine: Machine, *arguments: Any) -> None:
            before, started = machine.steps, time.perf_counter()
            launch(machine, *arguments)
            meter.seconds += time.perf_counter() - started
            meter.steps += machine.steps - before

        Machine.launch = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Machine.launch = self._launch  # type: ignore[method-assign]


def normal(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    return pf.tensor(np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype.numpy))


WORK: dict[str, Callable[[], Any]] = {
    "gelu(x*a+b) 1M f32": lambda: pf.gelu(normal(1 << 20) * normal(1) + normal(1)),
    "softmax 512x1024 f32": lambda: pf.softmax(normal(512, 1024), axis=-1),
    "layer_norm 512x1024 bf16": lambda: pf.layer_norm(normal(512, 1024, dtype=pf.bfloat16), (1024,)),
    "sum over columns 1024x512 f32": lambda: normal(1024, 512).sum(axis=0),
    "matmul 256x256x256 f32": lambda: normal(256, 256) @ normal(256, 256),
    "matmul 256x256x256 f16": lambda: normal(256, 256, dtype=pf.float16) @ normal(256, 256, dtype=pf.float16),
    "sort 64x1024 f32": lambda: pf.sort(normal(64, 1024), axis=-1)[0],
    "cumsum 64x4096 f32": lambda: pf.cumsum(normal(64, 4096), axis=-1),
}


def run() -> list[Result]:
    results = []
    for target in TARGETS:
        for name, work in WORK.items():
            rates = []
            for n in range(ROUNDS + 1):
                with pf.device(f"sim:{target}"), Meter() as meter:
                    pf.eval(work())
                    pf.synchronize(f"sim:{target}")
                if n:  # the first round decodes
                    rates.append((meter.steps / meter.seconds, meter.steps))
            rate, steps = sorted(rates)[len(rates) // 2]
            results.append(Result(f"{target} {name}", steps, "wave-instructions/s", {"pyflame": steps / rate}))
    return results
