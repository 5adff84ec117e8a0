"""Whole training steps of models as people train them: bfloat16 autocast, AdamW, the step jitted, torch channels-last.

Beside torch and torch.compile, "pyflame own" is the same step without vendor libraries. Peak memory is what model,
state, gradients and activations add to what was there before. The first step traces, plans, compiles and tries
libraries out, or compiles in torch's way; what either has on disk from before helps it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.gpu.training import show_profile
from benchmarks.models import MODELS, SMALL, Model
from pyflame.core import knobs
from pyflame.engine.evaluate import clear_plans

STEPS = 4  # before a peak is read: graphs are captured at the third call


def run(bench: Bench, section: str) -> None:
    """One model's steps, its peak memory and its first step."""
    bench.set_precision("high")
    model = (SMALL if bench.small else MODELS)[section]
    peaks: dict[str, float] = {}
    first: dict[str, float] = {}
    kept: list[Call] = []

    def group(name: str) -> dict[str, Call]:
        held = _allocated(bench, name, reset=True)
        started = time.perf_counter()
        with without_libraries(name == "pyflame own"):
            call = ours(model) if name.startswith("pyflame") else theirs(bench, model, name == "torch.compile")
            bench.wait(name, call())
            first[name] = time.perf_counter() - started
            for _ in range(STEPS):
                result = call()
        bench.wait(name, result)
        peaks[name] = _allocated(bench, name) - held
        if name == "pyflame":
            kept.append(call)
        return {name: call}

    names = ["pyflame", "pyflame own", *(n for n in ("torch", "torch.compile") if bench.takes(n))]
    groups: dict[str, Group] = {name: functools.partial(group, name) for name in names}
    seconds, failed = bench.measure(groups)
    bench.add(section, Line(f"{model.name}, bf16", 1, model.unit, seconds, failed=failed))
    bench.add(section, Line("peak memory", 0, "MB", peaks))
    bench.add(section, Line("first step", 0, "s", first))
    if bench.profile and kept and "pyflame" not in failed:
        show_profile(bench, kept[0])
    kept.clear()


def ours(model: Model, lr: float = 1e-3) -> Call:
    """Our training step."""
    module = model.make(pf)
    optimizer = pf.optim.AdamW(module.parameters(), lr)
    x, y = (pf.tensor(v) for v in model.batch())

    @pf.jit
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        with pf.autocast(pf.bfloat16):
            loss = model.loss(pf, module(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return lambda: step(x, y)


def theirs(bench: Bench, model: Model, compiled: bool) -> Call:
    """torch's, with images and weights channels-last."""
    import torch

    device = bench.torch_device
    module = model.make(torch).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    x, y = (torch.tensor(v, device=device) for v in model.batch())
    if x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    forward = torch.compile(module) if compiled else module

    def step() -> Any:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = model.loss(torch, forward(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@contextmanager
def without_libraries(wanted: bool) -> Iterator[None]:
    """Plan without vendor libraries. Plans are forgotten before and after: they know nothing of that variable."""
    clear_plans()
    try:
        with setting(knobs.LIBRARIES, "none") if wanted else nullcontext():
            yield
    finally:
        clear_plans()


@contextmanager
def setting(knob: knobs.Knob, value: str) -> Iterator[None]:
    """Set an environment variable of ours, and set it back."""
    before = os.environ.get(knob.name)
    os.environ[knob.name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[knob.name]
        else:
            os.environ[knob.name] = before


def _allocated(bench: Bench, name: str, reset: bool = False) -> float:
    """Bytes that a framework holds now, after `reset`, or held at most since then."""
    if name.startswith("pyflame"):
        if reset:
            pf.reset_peak_memory_stats(bench.device)
            return pf.memory_allocated(bench.device)
        return pf.max_memory_allocated(bench.device)
    if not bench.gpu:
        return 0.0
    import torch

    if reset:
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    return torch.cuda.max_memory_allocated()
