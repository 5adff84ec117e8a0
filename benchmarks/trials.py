"""The first call of a model whose products have variants to try out, on an emulated GPU: kernels are compiled for real,
by this machine's compiler, and run on its CPU.

A new cache for each round. "one by one" is how trials compiled before: each candidate when its turn came.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import pyflame as pf
from benchmarks.timing import Result, clock_and_summary
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.engine.evaluate import clear_plans
from pyflame.engine.libraries import decide, tuner
from pyflame.kernels import matmul_gpu
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.kernels import KernelTable

ROUNDS = 3
FUNCTIONS: tuple[Callable[[pf.Tensor], pf.Tensor], ...] = (pf.relu, pf.gelu, pf.tanh, pf.silu, pf.sigmoid, pf.exp)


def model(x: pf.Tensor, weights: Sequence[pf.Tensor]) -> pf.Tensor:
    for w, function in zip(weights, FUNCTIONS, strict=True):
        x = function(x @ w)
    return pf.softmax(x, -1)


def first_call(together: bool, folder: str) -> tuple[float, int]:
    """Seconds of the call, and how often compilers were started and waited for."""
    from tests.emulated import EmulatedDriver, emulated_device

    name, waves = DeviceId("rocm", 47), 0
    compile_missing = KernelTable._compile_missing

    def counted(table: Any, missing: Any) -> None:
        nonlocal waves
        waves += bool(missing)
        compile_missing(table, missing)

    clear_plans()
    device = devices._open[name] = emulated_device(name.index, "gfx942")
    device.kernels.cache = DiskCache(Path(folder))
    with ExitStack() as stack, pf.device(str(name)):
        for target, attribute, value in (
            (KernelTable, "_compile_missing", counted), (matmul_gpu, "TIMED", 0),
            (tuner, "_shared", [tuner.Tuner(None)]),
        ):  # fmt: skip
            stack.enter_context(patch.object(target, attribute, value))
        stack.enter_context(patch.dict(decide.OPENERS, {EmulatedDriver: {"matmul": {}}}))
        stack.enter_context(patch.object(decide.Libraries, "real", True))
        if not together:
            stack.enter_context(patch.object(decide, "compile_ahead", lambda *given, **soon: None))
        weights = [pf.tensor(np.ones((32, 32), np.float32)) for _ in FUNCTIONS]
        began = time.perf_counter()
        model(pf.tensor(np.ones((32, 32), np.float32)), weights).numpy()
        return time.perf_counter() - began, waves


def run() -> list[Result]:
    _, summary = clock_and_summary()
    found: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for together, times in found.items():
            with tempfile.TemporaryDirectory() as folder:
                times.append(first_call(together, folder))
    seconds = {together: summary([s for s, _ in times]) for together, times in found.items()}
    waves = {together: times[0][1] for together, times in found.items()}
    work = f"first call, {len(FUNCTIONS)} products tried out: {waves[True]} compiling waves, {waves[False]} one by one"
    return [Result(work, 1, "s", {"pyflame": seconds[True], "one by one": seconds[False]})]
