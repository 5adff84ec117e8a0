"""`torch.compile(backend="pyflame")` on the CPU against eager torch and inductor: a call, training steps.

On a GPU: `python -m benchmarks bridge --device cuda` (`benchmarks/bridge_gpu.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers import have
from benchmarks.timing import Result, measure


def _contenders(model: Any, work: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
    """Eager torch, inductor and ours, each with a copy of the model."""
    import pyflame.bridge.torch as bridge
    from benchmarks.bridge_models import compiled

    backends = {"pyflame": bridge.backend, "torch": None, "torch.compile": "inductor"}
    fns = {name: compiled(model, backend) for name, backend in backends.items()}
    return {name: lambda fn=fn: work(fn) for name, fn in fns.items()}


def run() -> list[Result]:
    if not have("torch"):
        return []
    import torch
    from torch import nn
    from torch.nn import functional as F

    from benchmarks.bridge_models import Small
    from tests.bridge.models import GPT, cnn

    torch.manual_seed(0)
    a, b = torch.randn(1000), torch.randn(1000)
    wide = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    x, target = torch.randn(128, 256), torch.randint(10, (128,))
    images, tokens = torch.randn(16, 3, 32, 32), torch.randint(256, (4, 64))
    gpt = GPT(256, 128, 4, 64, layers=2)
    steps: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "MLP": (wide, lambda m: F.cross_entropy(m(x), target).backward()),
        "CNN": (cnn(32), lambda m: (m(images) ** 2).mean().backward()),
        "GPT": (gpt, lambda m: F.cross_entropy(m(tokens).flatten(0, 1), tokens.flatten()).backward()),
    }
    calls = measure(_contenders(Small(), lambda m: m(a, b)), rounds=15)
    more = 1e6 * (calls["pyflame"] - calls["torch.compile"])
    print(f"a call of 5 small ops takes {more:+.1f} us beyond inductor's (asked: up to +20)")
    results = [Result("5 small ops, a call", 0, "us", calls)]
    for name, (model, work) in steps.items():
        times = measure(_contenders(model, work), budget=1.0)
        results.append(Result(f"{name}, forward and backward", 0, "us", times, reach=1.0))
    return results
