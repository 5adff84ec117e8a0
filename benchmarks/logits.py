"""Cross-entropy over a vocabulary of 50,257: GPT steps whose logits are computed in chunks of rows, and whole.

The arena is what a plan reserves for intermediates. `pyflame whole`: with PYFLAME_MAX_LOGITS=0.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyflame as pf
from benchmarks.peers import have
from benchmarks.timing import Result, measure
from benchmarks.training import gpt, jitted_step, torch_step
from pyflame.core import knobs

SIZES = dict(vocab=50257, context=256, layers=2, heads=4, width=128)
BATCH = 12  # 3,072 rows of logits: 618 MB


def step(most: str) -> tuple[Callable[[], Any], float]:
    """A training step planned with this bound, and its arena."""
    before = os.environ.get(knobs.MAX_LOGITS.name, knobs.MAX_LOGITS.default)
    os.environ[knobs.MAX_LOGITS.name] = most
    try:
        model, x, y = gpt(SIZES, BATCH)
        jitted, call = jitted_step(model, x, y)
        arena = pf.explain(jitted, pf.tensor(x), pf.tensor(y), run=False).arena_bytes
    finally:
        os.environ[knobs.MAX_LOGITS.name] = before
    return call, float(arena)


def run() -> list[Result]:
    chunked, arena = step(knobs.MAX_LOGITS.default)
    whole, arena_whole = step("0")
    contenders: dict[str, Callable[[], Any]] = {"pyflame": chunked, "pyflame whole": whole}
    if have("torch"):
        from benchmarks import torch_models

        _, x, y = gpt(SIZES, BATCH)
        contenders["torch"] = torch_step(lambda: torch_models.gpt(**SIZES), x, y, low=False)
    seconds = measure(contenders, rounds=5, budget=5.0)
    return [
        Result("train gpt f32, vocabulary 50257, tokens", BATCH * SIZES["context"], "tokens/s", seconds, 1.0),
        Result("its intermediates", 0, "MB", {"pyflame": arena, "pyflame whole": arena_whole}),
    ]
