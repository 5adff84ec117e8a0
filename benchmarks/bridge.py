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

    from benchmarks import torch_models, training
    from benchmarks.bridge_models import Small
    from tests.bridge.models import GPT, cnn

    torch.manual_seed(0)
    a, b = torch.randn(1000), torch.randn(1000)
    wide = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    tokens = torch.randint(256, (4, 64))
    models: dict[str, tuple[Any, Any, Any]] = {
        "small MLP": (wide, torch.randn(128, 256), torch.randint(10, (128,))),
        "small CNN": (cnn(32), torch.randn(16, 3, 32, 32), torch.randint(5, (16,))),
        "small GPT": (GPT(256, 128, 4, 64, layers=2), tokens, tokens),
    }
    for name, make in (("mlp", training.mlp), ("cnn", training.cnn)):
        x, y = map(torch.tensor, make()[2:])
        models[name.upper()] = torch_models.sequential(name), x, y
    x, y = map(torch.tensor, training.gpt()[1:])
    models["GPT"] = torch_models.gpt(**training.GPT), x, y
    calls = measure(_contenders(Small(), lambda m: m(a, b)), rounds=15)
    more = 1e6 * (calls["pyflame"] - calls["torch.compile"])
    print(f"a call of 5 small ops takes {more:+.1f} us beyond inductor's (asked: up to +20)")
    results = [Result("5 small ops, a call", 0, "us", calls)]
    for name, (model, x, y) in models.items():

        def work(m: Any, x: Any = x, y: Any = y) -> None:
            F.cross_entropy(m(x).flatten(0, -2), y.flatten()).backward()

        times = measure(_contenders(model, work), budget=1.0)
        results.append(Result(f"{name}, forward and backward", 0, "us", times, reach=1.0))
    return results
