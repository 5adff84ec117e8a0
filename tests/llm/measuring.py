"""What a small model takes of memory while it generates."""

from __future__ import annotations

import gc
from pathlib import Path

import pyflame as pf
from tests.llm import small


def measured(path: Path, device: str, batch: int, dtype: str = "float32", **options: float) -> int:
    """The most bytes in use while prompts of three quarters of the context are read and some tokens written."""
    gc.collect()
    pf.reset_peak_memory_stats(device)
    before = pf.memory_stats(device).allocated
    model = pf.llm.load(path, device=device, dtype=dtype, context=small.CONTEXT)
    prompts = [[number] * (small.CONTEXT * 3 // 4) for number in range(3, 3 + batch)]
    model.generate(prompts, max_tokens=2, **options)
    return pf.memory_stats(device).peak_allocated - before


def resized(path: Path, **sizes: int) -> Path:
    for name, size in sizes.items():
        setattr(small, name, size)
    return small.folder(path)
