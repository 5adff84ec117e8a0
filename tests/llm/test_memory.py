"""Memory over many generations: what it was after a few of each kind is what it is in the end."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.runtime.stats import MemoryStats
from tests.llm import small

PAGE = 4096
SLACK = 3 << 20  # bytes of the process: the allocator of the C library keeps some of what it is given back


def in_use() -> tuple[MemoryStats, int]:
    """What the pool knows of, and bytes of this process that lie in memory: pages of mapped files come and go."""
    gc.collect()
    _, total, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return pf.memory_stats("cpu"), (total - shared) * PAGE


def one_generation(model: Model, number: int) -> None:
    """Another prompt each time, of another length, in turns of what users do."""
    prompt = [3 + (number * 7 + n) % 200 for n in range(1 + number * 5 % 40)]
    kind = number % 5
    if kind == 0:
        model.generate(prompt, max_tokens=5)
    elif kind == 1:
        model.generate(prompt, max_tokens=4, temperature=0.8, top_p=0.9, seed=number)
    elif kind == 2:
        model.generate([prompt, prompt[:3]], max_tokens=3)
    elif kind == 3:
        model.generate(prompt * 2, max_tokens=6, lookup=3)
    else:
        for _ in model.stream(prompt, max_tokens=9, n=2, temperature=1.0, repetition_penalty=1.1):
            break


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.thorough)])
def test_many_generations(tmp_path: Path, count: int) -> None:
    model = pf.llm.load(small.gguf(tmp_path / "small.gguf"), device="cpu")
    for number in range(40):  # each kind with each size of a chunk, so that all plans are there
        one_generation(model, number)
    for number in range(10):
        one_generation(model, number)
    held, before = in_use()
    for number in range(10, count):
        one_generation(model, number)
    after, now = in_use()
    assert (after.allocated, after.live_blocks) == (held.allocated, held.live_blocks)
    assert after.reserved <= held.reserved * 1.05
    assert now - before < SLACK
