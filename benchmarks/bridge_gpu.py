"""`python -m benchmarks bridge --device cuda [gpt2 bert vit resnet50 overhead]`: the bridge on a GPU against inductor.

Training steps (forward and backward, bfloat16 by autocast) of published models, and what a call of five small ops costs
the host. Prints a line as soon as it is measured, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import pyflame.bridge.torch as bridge
from benchmarks.bridge_models import MODELS, Small, compiled

BACKENDS: dict[str, Any] = {"torch": None, "inductor": "inductor", "pyflame": bridge.backend}
ROUNDS, CALLS, STEPS = 9, 500, 4


def _step(fn: Any, given: Sequence[Any], device: str) -> Callable[[], float]:
    def step() -> float:
        for p in fn.parameters():
            p.grad = None
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            loss = fn(*given)
        loss.backward()
        return loss  # type: ignore[no-any-return]

    return step


def _rounds(contenders: dict[str, Callable[[], Any]], calls: int) -> dict[str, float]:
    """The shortest round of each, in microseconds per call; they take turns."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, fn in contenders.items():
            fn()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                fn()
            host = time.perf_counter() - began
            torch.cuda.synchronize()
            took = host if calls == CALLS else time.perf_counter() - began
            best[name] = min(best[name], took / calls * 1e6)
    return best


def _print(name: str, times: dict[str, float], note: str = "") -> None:
    shown = ", ".join(f"{who} {us:.1f} us" for who, us in times.items())
    print(f"{name}: {shown}; {times['inductor'] / times['pyflame']:.2f}x of inductor{note}", flush=True)


def _overhead(device: str) -> None:
    a, b = torch.randn(1000, device=device), torch.randn(1000, device=device)
    fns = {name: compiled(Small(), backend) for name, backend in BACKENDS.items()}
    times = _rounds({name: lambda fn=fn: fn(a, b) for name, fn in fns.items()}, CALLS)
    more = times["pyflame"] - times["inductor"]
    _print("5 small ops, host time of a call", times, f"; {more:+.1f} us (asked: up to +20)")


def _training(name: str, device: str) -> None:
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model, moved = model.to(device), [t.to(device) for t in given]
    steps: dict[str, Callable[[], Any]] = {}
    for who, backend in BACKENDS.items():
        began = time.perf_counter()
        steps[who] = _step(compiled(model, backend), moved, device)
        losses = [float(steps[who]()) for _ in range(3)]
        took = time.perf_counter() - began
        memory = torch.cuda.max_memory_allocated() >> 20
        print(f"  {name}, {who}: loss {losses[-1]:.4f}, first calls {took:.1f} s, {memory} MiB", flush=True)
        torch.cuda.reset_peak_memory_stats()
    _print(f"{name}, forward and backward", _rounds(steps, STEPS))


def main(names: Sequence[str], device: str) -> int:
    unknown = [n for n in names if n not in (*MODELS, "overhead")]
    if unknown:
        print(f"unknown model {unknown[0]!r}; there are overhead, {', '.join(MODELS)}")
        return 2
    print(torch.cuda.get_device_name(device), torch.__version__, flush=True)
    for name in names or ("overhead", *MODELS):
        torch._dynamo.reset()
        if name == "overhead":
            _overhead(device)
        else:
            _training(name, device)
        torch.cuda.empty_cache()
    return 0
