"""Loops of ordinary programs, not jitted, beside torch eager: batches that are slices, texts that grow, episodes of any
length, tensor work on items of a dataset, and loops that nobody evaluates. Each runs the same function with either
library; what is compared is the time of a step once the loop has been through twice, in rounds of many passes.

`python -m benchmarks --one-thread loops` also prints what was planned and compiled in the measured passes, which should
be nothing. `python -m benchmarks loops --device cuda` runs all of it on a GPU, torch on its own.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyflame as pf
from benchmarks.peers import torch_on
from benchmarks.timing import SETTLE, Result, clock_and_summary

ROUNDS = 9
ROUND = 0.01  # seconds of torch in a round, at least: after a pause everybody's first calls are slow
REACH = 1 / 1.3
CHOSEN = os.environ.get("LOOPS", "").split()  # names of loops, to run no others

Loop = Callable[[Any], tuple[Callable[[], Any], int]]  # library -> one pass over the loop, and how many steps that is


def _language_model(t: Any) -> tuple[Any, Any, Any]:
    t.manual_seed(0)

    class Model(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = t.nn.Embedding(64, 32)
            self.lstm = t.nn.LSTM(32, 64, batch_first=True)
            self.head = t.nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            hidden, _ = self.lstm(self.embedding(x))
            return self.head(hidden)

    model = Model()
    return model, t.optim.Adam(model.parameters(), lr=1e-3), t.randint(0, 64, (512, 17))


def _train(t: Any, model: Any, optimizer: Any, batch: Any) -> float:
    optimizer.zero_grad()
    logits = model(batch[:, :-1])
    loss = t.nn.functional.cross_entropy(logits.reshape(-1, 64), batch[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    return float(loss.item())


def sliced_batches(t: Any) -> tuple[Callable[[], Any], int]:
    """`data[i:i + 8]` in the training of an LSTM language model. No offset comes twice."""
    model, optimizer, data = _language_model(t)
    offsets = itertools.cycle(range(0, 504, 5))
    return lambda: [_train(t, model, optimizer, data[i : i + 8]) for i in itertools.islice(offsets, 8)], 8


def indexed_batches(t: Any) -> tuple[Callable[[], Any], int]:
    """`data[ix]` in the training of an MLP."""
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(32, 128), t.nn.ReLU(), t.nn.Linear(128, 10))
    optimizer = t.optim.SGD(model.parameters(), lr=0.1)
    x, y = t.randn(1024, 32), t.randint(0, 10, (1024,))

    def step(order: Any) -> float:
        optimizer.zero_grad()
        loss = t.nn.functional.cross_entropy(model(x[order]), y[order])
        loss.backward()
        optimizer.step()
        return float(loss.item())

    def epoch() -> list[float]:
        order = t.randperm(1024)
        return [step(order[i : i + 64]) for i in range(0, 1024, 64)]

    return epoch, 16


def text_windows(t: Any) -> tuple[Callable[[], Any], int]:
    """Batches stacked from windows of one long text, as in nanoGPT."""
    t.manual_seed(0)
    text = t.randint(0, 64, (5000,))
    model = t.nn.Sequential(t.nn.Embedding(64, 32), t.nn.Linear(32, 64), t.nn.ReLU(), t.nn.Linear(64, 64))
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> float:
        starts = t.randint(0, 5000 - 33, (8,))
        x = t.stack([text[i : i + 32] for i in starts])
        y = t.stack([text[i + 1 : i + 33] for i in starts])
        loss = t.nn.functional.cross_entropy(model(x).reshape(-1, 64), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return lambda: [step() for _ in range(8)], 8


def _transformer(t: Any, layers: int, width: int = 64) -> Any:
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return t.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def growing_text(t: Any) -> tuple[Callable[[], Any], int]:
    """Generation without a cache of keys and values: each step's sequence is one longer, and no length comes twice."""
    body, embedding, head = _transformer(t, 2), t.nn.Embedding(64, 64), t.nn.Linear(64, 64)
    body.eval()

    prompts = itertools.count(1, 16)

    def generate() -> list[int]:
        tokens = t.zeros((1, next(prompts)), dtype=t.int64)
        with t.no_grad():
            for _ in range(16):
                last = head(body(embedding(tokens)))[:, -1]
                tokens = t.cat([tokens, last.argmax(-1, keepdim=True)], dim=1)
        return tokens.tolist()[0]

    return generate, 16


def episodes(t: Any) -> tuple[Callable[[], Any], int]:
    """Policy gradient: episodes of random length, log probabilities and rewards stacked."""
    t.manual_seed(0)
    policy = t.nn.Sequential(t.nn.Linear(4, 64), t.nn.ReLU(), t.nn.Linear(64, 2))
    optimizer = t.optim.Adam(policy.parameters(), lr=1e-2)
    lengths = _lengths()

    def episode() -> float:
        observation, logs = t.ones(4), []
        for _ in range(next(lengths)):
            probabilities = t.softmax(policy(observation), dim=-1)
            action = int(probabilities.argmax().item())
            logs.append(t.log(probabilities[action]))
            observation = observation * 0.99 + 0.01 * action
        rewards = t.linspace(0.0, 1.0, len(logs))
        loss = -(t.stack(logs) * (rewards - rewards.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return lambda: [episode() for _ in range(4)], 4


def _lengths() -> Iterator[int]:
    number = 1
    while True:
        number = number * 1103515245 + 12345 & 0x7FFFFFFF
        yield 10 + number % 40


def dataset_items(t: Any) -> tuple[Callable[[], Any], int]:
    """Tensor work in `__getitem__`: a random crop, a flip and a normalisation of each image, stacked by hand."""
    t.manual_seed(0)
    images = t.randn(64, 3, 36, 36)
    numbers = _lengths()

    def item(i: int) -> Any:
        number = next(numbers)
        top, left = number % 5, number % 3
        image = images[i, :, top : top + 32, left : left + 32]
        if number % 7 < 3:
            image = image.flip(-1)
        return (image - 0.5) / 0.25

    def batches() -> float:
        return float(sum(t.stack([item(i + k) for k in range(16)]).mean().item() for i in range(0, 64, 16)))

    return batches, 64


def sampling(t: Any) -> tuple[Callable[[], Any], int]:
    """80 steps of a diffusion sampler over a small U-Net, evaluated at the end only."""
    t.manual_seed(0)
    net = _unet(t)
    net.eval()
    betas = t.linspace(1e-4, 0.02, 80)
    alphas = 1 - betas
    bars = t.cumprod(alphas, dim=0)

    def sample() -> float:
        x = t.randn(2, 1, 16, 16)
        with t.no_grad():
            for i in reversed(range(80)):
                noise = net(x, t.full((2,), i, dtype=t.int64))
                x = (x - betas[i] / t.sqrt(1 - bars[i]) * noise) / t.sqrt(alphas[i])
                if i > 0:
                    x = x + t.sqrt(betas[i]) * t.randn(2, 1, 16, 16)
        return float(x.mean().item())

    return sample, 80


def _unet(t: Any) -> Any:
    """Two levels of convolutions with group norms, and the step's number added as an embedding."""

    class Block(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inside: int, outside: int) -> None:
            super().__init__()
            self.time = t.nn.Embedding(80, outside)
            self.first = t.nn.Conv2d(inside, outside, 3, padding=1)
            self.second = t.nn.Conv2d(outside, outside, 3, padding=1)
            self.norm = t.nn.GroupNorm(4, outside)

        def forward(self, x: Any, step: Any) -> Any:
            x = t.nn.functional.silu(self.first(x)) + self.time(step)[:, :, None, None]
            return t.nn.functional.silu(self.norm(self.second(x)))

    class Net(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle, self.up = Block(1, 16), Block(16, 32), Block(48, 16)
            self.out = t.nn.Conv2d(16, 1, 1)

        def forward(self, x: Any, step: Any) -> Any:
            high = self.down(x, step)
            low = self.middle(t.nn.functional.max_pool2d(high, 2), step)
            wide = t.nn.functional.interpolate(low, scale_factor=2.0, mode="nearest")
            return self.out(self.up(t.cat([high, wide], dim=1), step))

    return Net()


def deep_transformer(t: Any) -> tuple[Callable[[], Any], int]:
    """Training of 8 transformer layers: a graph of thousands of nodes, rebuilt at each step."""
    model = _transformer(t, 8)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)
    x = t.randn(4, 32, 64)

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return lambda: [step() for _ in range(4)], 4


def descent(t: Any) -> tuple[Callable[[], Any], int]:
    """Gradient descent on a quadratic, with `.item()` at every step."""
    t.manual_seed(0)
    x = t.randn(10, requires_grad=True)
    target = t.arange(10.0)

    def step() -> float:
        loss = ((x - target) ** 2).sum()
        loss.backward()
        with t.no_grad():
            x.sub_(x.grad * 0.01)
        x.grad = None
        return float(loss.item())

    return lambda: [step() for _ in range(50)], 50


def running_sums(t: Any) -> tuple[Callable[[], Any], int]:
    """Items of a small tensor, one by one, as plain Python programs walk over them."""
    values = t.arange(100.0)

    def walk() -> float:
        total = 0.0
        for i in range(100):
            total += values[i].item()
        return total

    return walk, 100


LOOPS: tuple[Loop, ...] = (
    sliced_batches, indexed_batches, text_windows, growing_text, episodes, dataset_items, sampling, deep_transformer,
    descent, running_sums,
)  # fmt: skip


def _measured(loop: Loop, rounds: int) -> tuple[Result, str]:
    """Seconds per step of both, in turns, after two passes each; and what was planned and compiled meanwhile.

    Of the round whose ratio is the median: where texts grow no round is as long as another, so the shortest of one
    library is compared with the same work of the other.
    """
    import torch

    clock, _ = clock_and_summary()
    passes = {"pyflame": loop(pf), "torch": loop(torch)}
    wall = time.perf_counter  # compilers are processes of their own
    took = {name: [_seconds(wall, one_pass) for _ in range(2)] for name, (one_pass, _) in passes.items()}
    repeats = max(1, round(ROUND / took["torch"][1]))
    times: list[dict[str, float]] = []
    before = pf.compile_stats()
    for _ in range(rounds):
        times.append({})
        for name, (one_pass, steps) in passes.items():
            time.sleep(SETTLE)  # until the other's thread pool has come to rest
            times[-1][name] = _seconds(clock, one_pass, repeats) / repeats / steps
    after = pf.compile_stats()
    note = f"{after.plan_misses - before.plan_misses} plans, {after.compiles - before.compiles} kernels"
    note += f"; the first pass took {took['pyflame'][0]:.2f} s, the second {took['pyflame'][1]:.2f} s"
    middle = sorted(times, key=lambda t: t["pyflame"] / t["torch"])[rounds // 2]
    return Result(loop.__name__.replace("_", " "), 0, "us", middle, REACH), f"{rounds * repeats} warm passes {note}"


def _seconds(clock: Callable[[], float], work: Callable[[], Any], times: int = 1) -> float:
    started = clock()
    for _ in range(times):
        work()
    return clock() - started


def run_on(device: str) -> list[Result]:
    """The loops with all tensors on a GPU, which torch calls cuda whoever made it."""
    with torch_on("cuda"), pf.device(device):
        return run()


def run() -> list[Result]:
    results = []
    for loop in LOOPS:
        if not CHOSEN or loop.__name__ in CHOSEN:
            result, note = _measured(loop, ROUNDS)
            print(
                f"{result.work}: {result.ours * 1e6:.0f} us, torch {result.seconds['torch'] * 1e6:.0f} us, "
                f"{1 / (result.ratio or 1):.2f} x torch's time; in {note}",
                file=sys.stderr,
                flush=True,
            )
            results.append(result)
    return results
