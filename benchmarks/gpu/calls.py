"""What ordinary calls take the host, not jitted, beside torch's: tensors so small that a GPU has nothing to do.

Each call evaluates its result, as printing or a loop's end would: torch launches at once, ours when a value is asked
for, so chains of ops are one call here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Line
from benchmarks.peers import torch_on

Work = Callable[[Any, Callable[..., Any]], Call]  # library, what evaluates -> a call


def _data(t: Any) -> tuple[Any, Any]:
    t.manual_seed(0)
    return t.randn(64, 64), t.randn(64, 64)


def add(t: Any, run: Callable[..., Any]) -> Call:
    a, b = _data(t)
    return lambda: run(a + b)


def matmul(t: Any, run: Callable[..., Any]) -> Call:
    a, b = _data(t)
    return lambda: run(a @ b)


def five_ops(t: Any, run: Callable[..., Any]) -> Call:
    a, b = _data(t)
    return lambda: run(((a + b) * a - b) * 0.5 + a)


def in_place(t: Any, run: Callable[..., Any]) -> Call:
    a, b = _data(t)
    return lambda: run(a.add_(b))


def indexed(t: Any, run: Callable[..., Any]) -> Call:
    a, _ = _data(t)
    index = t.arange(16)
    return lambda: run(a[index])


def dropout(t: Any, run: Callable[..., Any]) -> Call:
    a, _ = _data(t)
    return lambda: run(t.nn.functional.dropout(a, 0.5))


def randn(t: Any, run: Callable[..., Any]) -> Call:
    return lambda: run(t.randn(64, 64))


def item(t: Any, run: Callable[..., Any]) -> Call:
    a, b = _data(t)
    return lambda: (a + b).sum().item()


def embedding(t: Any, run: Callable[..., Any]) -> Call:
    layer, index = t.nn.Embedding(64, 64), t.arange(16)
    return lambda: run(layer(index))


def training_step(t: Any, run: Callable[..., Any]) -> Call:
    a, _ = _data(t)
    target = t.arange(64) % 10
    model = t.nn.Sequential(t.nn.Linear(64, 64), t.nn.ReLU(), t.nn.Linear(64, 10))
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = t.nn.functional.cross_entropy(model(a), target)
        loss.backward()
        optimizer.step()
        return run(loss)

    return step


def transformer_step(t: Any, run: Callable[..., Any]) -> Call:
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    model = t.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer, x = t.optim.AdamW(model.parameters(), lr=1e-3), t.randn(4, 32, 64)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return run(loss)

    return step


WORK: tuple[Work, ...] = (
    add, matmul, five_ops, in_place, indexed, dropout, randn, item, embedding, training_step, transformer_step,
)  # fmt: skip


def calls(bench: Bench) -> None:
    with torch_on(bench.torch_device) if bench.takes("torch") else nullcontext():
        _measure(bench)


def _measure(bench: Bench) -> None:
    for work in WORK:
        groups = {"pyflame": partial(_ours, work)}
        if bench.takes("torch"):
            groups["torch"] = partial(_torchs, work)
        seconds, failed = bench.measure(groups)
        line = Line(work.__name__.replace("_", " "), 0, "us", seconds, failed=failed, goals={"torch": 1 / 1.3})
        bench.add("calls", line)


def _ours(work: Work) -> Mapping[str, Call]:
    def evaluated(x: Any) -> Any:
        pf.eval(x)
        return x

    return {"pyflame": work(pf, evaluated)}


def _torchs(work: Work) -> Mapping[str, Call]:
    import torch

    return {"torch": work(torch, lambda x: x)}
