"""The first call of a 2-layer vision transformer in a new process: forward, and a training step with Adam.

Three processes, with a cache folder of their own: one finds nothing there, one finds the kernels that are written by
hand (which a wheel brings along; the generated ones depend on the program), one finds all and compiles nothing.
Wall time of the call without the import; `--one-thread`: CPU time of the process and of the compilers it started.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.timing import Result, clock_and_summary

ROUNDS = 3
CACHES = ("nothing", "hand-written kernels", "all kernels")


def first_call(train: bool) -> Callable[[], Any]:
    """What the process is to do, from building the model on."""
    import numpy as np

    import pyflame as pf
    from pyflame import nn, optim

    class ViT(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 8, stride=8)
            self.places = nn.Parameter(pf.zeros(1, 16, width))
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2)
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2) + self.places
            return self.head(self.norm(self.layers(x)).mean(1))

    def call() -> Any:
        model = ViT()
        x = pf.tensor(np.random.default_rng(0).standard_normal((8, 3, 32, 32), dtype=np.float32))
        if not train:
            return model(x).numpy()
        optimizer = optim.Adam(model.parameters())
        loss = pf.cross_entropy(model(x), pf.tensor(np.arange(8)))
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


def _child(train: bool, by_hand: bool) -> None:
    """Make the call and print its seconds and what it compiled; `by_hand`: leave only such kernels in the cache."""
    import pyflame as pf
    from pyflame.runtime.kernels import KernelTable

    texts: dict[str, str] = {}
    if by_hand:
        compile_missing = KernelTable._compile_missing

        def noted(table: Any, missing: Any) -> None:
            texts.update({key: text for key, (text, _) in missing.items()})
            compile_missing(table, missing)

        KernelTable._compile_missing = noted  # type: ignore[method-assign]
    call = first_call(train)
    began = time.perf_counter()
    call()
    seconds = time.perf_counter() - began
    for key, text in texts.items():
        if "#define" not in text:
            for entry in Path(os.environ["PYFLAME_CACHE_DIR"]).rglob(f"{key}.kernel"):
                entry.unlink()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(u.ru_utime + u.ru_stime for u in used)
    print(json.dumps([seconds, cpu, pf.compile_stats().compiles]))


def _process(cache: str, train: bool, by_hand: bool = False) -> tuple[float, float, int]:
    command = [sys.executable, "-c", f"from benchmarks.first_call import _child; _child({train}, {by_hand})"]
    done = subprocess.run(
        command, env={**os.environ, "PYFLAME_CACHE_DIR": cache}, check=True, capture_output=True, text=True
    )
    seconds, cpu, compiles = json.loads(done.stdout)
    return seconds, cpu, compiles


def _measured(train: bool) -> dict[str, tuple[float, float, int]]:
    """By what the process finds in its cache: seconds of the call, CPU seconds of the process, kernels compiled."""
    with tempfile.TemporaryDirectory() as folder:
        cold, by_hand = f"{folder}/cold", f"{folder}/hand"
        nothing = _process(cold, train)
        _process(by_hand, train, by_hand=True)
        return dict(zip(CACHES, (nothing, _process(by_hand, train), _process(cold, train)), strict=True))


def run() -> list[Result]:
    clock, summary = clock_and_summary()
    which = 0 if clock is time.perf_counter else 1
    results = []
    for train in (False, True):
        rounds = [_measured(train) for _ in range(ROUNDS)]
        name = "training step" if train else "forward"
        for cache in CACHES:
            seconds = summary([r[cache][which] for r in rounds])
            work = f"first {name} of a ViT, cache has {cache}, {rounds[0][cache][2]} compiled"
            results.append(Result(work, 1, "s", {"pyflame": seconds}))
    return results
