"""Whole training steps with Adam: MLP, CNN and GPT in float32, GPT in bfloat16 autocast; each beside its peers."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks import jax_models, torch_models
from benchmarks.peers import have, torch_has_bf16
from benchmarks.timing import Result, measure
from pyflame import nn, optim

GPT = dict(vocab=8192, context=256, layers=6, heads=6, width=384)
BATCH = 8


def jitted_step(model: Any, x: Any, y: Any, low: bool = False) -> tuple[Any, Callable[[], Any]]:
    """Our training step, and a call of it that waits for the result."""
    optimizer = optim.Adam(model.parameters())

    @pf.jit
    def step(x: Any, y: Any) -> Any:
        with pf.autocast(pf.bfloat16) if low else contextlib.nullcontext():
            out = model(x)
            loss = pf.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    ours = pf.tensor(x), pf.tensor(y)
    return step, lambda: pf.eval(step(*ours))


def mlp() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    x = rng.standard_normal((256, 784), dtype=np.float32)
    return nn.Sequential(*layers), jax_models.mlp, x, rng.integers(0, 10, 256)


def cnn() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1)]
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10)]
    x = rng.standard_normal((64, 3, 32, 32), dtype=np.float32)
    return nn.Sequential(*layers), jax_models.cnn, x, rng.integers(0, 10, 64)


def gpt(sizes: dict[str, int] = GPT, batch: int = BATCH) -> tuple[Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    others = {k: v for k, v in sizes.items() if k != "vocab"}
    model = nn.GPT(nn.GPTConfig(vocab_size=sizes["vocab"], **others))
    x, y = (rng.integers(0, sizes["vocab"], (batch, sizes["context"])) for _ in range(2))
    return model, x, y


def torch_step(make: Callable[[], Any], x: Any, y: Any, low: bool, device: str = "cpu", compiled: bool = False) -> Any:
    import torch

    model = make().to(device)
    given = torch.tensor(x, device=device), torch.tensor(y, device=device)
    return torch_models.step(torch.compile(model) if compiled else model, *given, low)


def jax_step(make: Callable[[], Any], x: Any, y: Any, blocking: bool = True) -> Any:
    import jax.numpy as jnp

    parameters, loss = make()
    return jax_models.adam_step(loss, parameters, jnp.asarray(x), jnp.asarray(y), blocking)


def peers(torch_model: Callable[[], Any], jax_model: Callable[[], Any], x: Any, y: Any, low: bool) -> dict[str, Any]:
    """torch eager and compiled, jax.jit, where they are installed."""
    found: dict[str, Any] = {}
    if torch_has_bf16() if low else have("torch"):
        found["torch"] = torch_step(torch_model, x, y, low)
        found["torch.compile"] = torch_step(torch_model, x, y, low, compiled=True)
    if have("jax"):
        found["jax.jit"] = jax_step(jax_model, x, y)
    return found


def kernel_share(step: Any, x: Any, y: Any, rounds: int = 9) -> float:
    """How much of a jitted step's time its kernels take."""
    traced, leaves = step.find((pf.tensor(x), pf.tensor(y)), {})
    runner = traced.runner
    # not timed as the trace says, but always
    traced.runner = SimpleNamespace(
        run=lambda values, numbers, _, lines, given: runner.run(values, numbers, True, lines, given)
    )
    shares = []
    for _ in range(rounds):
        runner.seconds[:] = 0
        started = time.perf_counter()
        traced.replay(leaves)
        shares.append(float(runner.seconds.sum()) / (time.perf_counter() - started))
    traced.runner = runner
    return statistics.median(shares)


def run() -> list[Result]:
    results = []
    for name, reach, (model, jax_model, x, y) in (("mlp", 1.05, mlp()), ("cnn", 0.8, cnn())):
        step, ours = jitted_step(model, x, y)
        arguments = ((784, 1024, 1024, 10),) if name == "mlp" else ()
        rivals = peers(lambda n=name: torch_models.sequential(n), lambda f=jax_model, a=arguments: f(*a), x, y, False)
        seconds = measure({"pyflame": ours, **rivals}, budget=2.0)
        results.append(Result(f"train {name}, steps", 1, "steps/s", seconds, reach))
        print(f"kernels take {kernel_share(step, x, y):.1%} of a jitted {name} step", file=sys.stderr)
    for low, reach in ((False, 1.1), (True, 0.8)):
        model, x, y = gpt()
        step, ours = jitted_step(model, x, y, low)
        rivals = peers(lambda: torch_models.gpt(**GPT), lambda low=low: jax_models.gpt(**GPT, low=low), x, y, low)
        seconds = measure({"pyflame": ours, **rivals}, rounds=5, budget=5.0)
        name = f"train gpt {'bf16' if low else 'f32'}, tokens"
        results.append(Result(name, x.size, "tokens/s", seconds, reach))
        print(f"kernels take {kernel_share(step, x, y):.1%} of a jitted gpt step", file=sys.stderr)
    return results
