"""Whole training steps with Adam: an MLP in float32 at two precisions of its products, GPT-2 in bfloat16 autocast.

A round enqueues its steps and waits once, behind the last; nobody reads a loss before. torch's Adam is its fused one,
jax donates its buffers. Peak memory is what parameters, state, gradients and activations add to what was there before.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pyflame as pf
from benchmarks import jax_models, torch_models
from benchmarks import training as models
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.peers import have

GPT2 = dict(vocab=50304, context=1024, layers=12, heads=12, width=768)
TINY = dict(vocab=65, context=16, layers=2, heads=2, width=16)
LAYERS = (784, 1024, 1024, 10)
ENQUEUED = 200
PROFILED = 5


def mlp(bench: Bench, section: str = "mlp") -> None:
    """784-1024-1024-10, batch 256."""
    for precision, name in (("high", "TF32"), ("highest", "f32")):
        bench.set_precision(precision)
        model, jax_model, x, y = models.mlp()
        _, ours = models.jitted_step(model, x, y)
        groups: dict[str, Group] = {"pyflame": lambda ours=ours: {"pyflame": ours}}
        make_torch = functools.partial(torch_models.sequential, "mlp")
        groups |= _peers(bench, make_torch, functools.partial(jax_model, LAYERS), x, y, low=False)
        seconds, failed = bench.measure(groups)
        goals = {"jax.jit": 1.2}
        line = Line(f"MLP 784-1024-1024-10, 256 rows, {name}", 1, "steps/s", seconds, failed=failed, goals=goals)
        bench.add(section, line)
        if bench.profile and "pyflame" not in failed:
            print(f"\n{line.work}: {enqueueing(bench, ours) * 1e6:.1f} us of the host per jitted call", flush=True)
            show_profile(bench, ours, graphs=True)
            show_profile(bench, ours)


def gpt(bench: Bench, section: str = "gpt") -> None:
    """GPT-2 124M, 16 sequences of 1024 tokens."""
    bench.set_precision("high")
    sizes, batch = (TINY, 2) if bench.small else (GPT2, 16)
    before = pf.memory_allocated(bench.device)
    model, x, y = models.gpt(sizes, batch)
    peaks: dict[str, float] = {}
    kept: list[Call] = []

    def ours() -> dict[str, Call]:
        _, call = models.jitted_step(model, x, y, low=True)
        kept.append(call)
        pf.reset_peak_memory_stats(bench.device)
        _some(bench, "pyflame", call)
        peaks["pyflame"] = pf.max_memory_allocated(bench.device) - before
        return {"pyflame": call}

    def torch_with_peak(name: str, make: Group) -> dict[str, Call]:
        if not bench.gpu:
            return dict(make())
        import torch

        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        made = dict(make())
        _some(bench, name, made[name])
        peaks[name] = torch.cuda.max_memory_allocated() - held
        return made

    make_torch = functools.partial(torch_models.gpt, **sizes)
    peers = _peers(bench, make_torch, functools.partial(jax_models.gpt, **sizes, low=True), x, y, low=True)
    groups: dict[str, Group] = {"pyflame": ours}
    if not bench.jax_gpt:
        peers.pop("jax.jit", None)
    for name, make in peers.items():
        groups[name] = functools.partial(torch_with_peak, name, make) if name.startswith("torch") else make
    seconds, failed = bench.measure(groups)
    size = f"GPT {sizes['layers']} layers, width {sizes['width']}, {batch}x{sizes['context']} bf16"
    line = Line(size, x.size, "tokens/s", seconds, failed=failed, goals={"torch": 0.7})
    bench.add(section, line)
    bench.add(section, Line(f"peak memory of a {size} step", 0, "MB", peaks))
    if bench.profile and kept and "pyflame" not in failed:
        show_profile(bench, kept[0])
    kept.clear()


def _peers(
    bench: Bench, make_torch: Callable[[], Any], make_jax: Callable[[], Any], x: Any, y: Any, low: bool
) -> dict[str, Group]:
    def torch_group(name: str) -> dict[str, Call]:
        compiled = name == "torch.compile"
        return {name: models.torch_step(make_torch, x, y, low, bench.torch_device, compiled)}

    def jax_group() -> dict[str, Call]:
        bench.need_jax()
        return {"jax.jit": models.jax_step(make_jax, x, y, blocking=False)}

    found: dict[str, Group] = {name: functools.partial(torch_group, name) for name in ("torch", "torch.compile")}
    found["jax.jit"] = jax_group
    return {name: make for name, make in found.items() if bench.takes(name)}


def _some(bench: Bench, name: str, call: Call, steps: int = 4) -> None:
    for _ in range(steps):
        result = call()
    bench.wait(name, result)


def enqueueing(bench: Bench, call: Call) -> float:
    """The host's seconds per call, before anybody waits."""
    _some(bench, "pyflame", call)
    started = time.perf_counter()
    for _ in range(ENQUEUED):
        call()
    seconds = (time.perf_counter() - started) / ENQUEUED
    bench.wait("pyflame", None)
    return seconds


def show_profile(bench: Bench, call: Call, graphs: bool = False) -> None:
    """What a step launches, kernel by kernel, or with `graphs` as it is replayed."""
    _some(bench, "pyflame", call)
    with pf.profile(graphs=graphs) as p:
        _some(bench, "pyflame", call, PROFILED)
    print(f"\nprofile of {PROFILED} steps{' replayed as graphs' if graphs else ', kernel by kernel'}")
    if have("rich"):
        print(p.table(40, shapes=True), flush=True)
        return
    for k in sorted(p.kernels, key=lambda k: -k.seconds)[:40]:
        rate = f"{k.bytes / k.seconds / 1e9:9.1f} GB/s {k.flops / k.seconds / 1e12:8.2f} TFLOP/s" if k.seconds else ""
        shapes = " ".join(map(str, sorted(k.shapes)))
        print(f"{k.seconds * 1e6:12.1f} us {k.calls:6} calls {rate}  {k.name} {shapes} {'+'.join(k.ops)}", flush=True)
