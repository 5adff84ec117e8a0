"""Frequencies of rotary positions, in double precision on the host; `pf.rope` turns by them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pyflame.core.errors import ArgumentError
from pyflame.llm.config import Rope

Frequencies = npt.NDArray[np.float64]


def frequencies(rope: Rope) -> Frequencies:
    """By how much each pair turns per position: (dims/2)"""
    own: Frequencies = rope.base ** (-np.arange(0, rope.dims, 2, dtype=np.float64) / rope.dims)
    if rope.scaling == "linear":
        return own / rope.factor
    if rope.scaling == "llama3":
        return _llama3(rope, own)
    if rope.scaling == "yarn":
        return _yarn(rope, own)
    if rope.scaling == "factors":
        if len(rope.factors) != own.size:
            raise ArgumentError(f"[rope] expected {own.size} factors but got {len(rope.factors)}")
        own = own / np.array(rope.factors)
    return own


def _llama3(rope: Rope, own: Frequencies) -> Frequencies:
    """Pairs that turn rarely within the trained context are slowed down, those that turn often are kept."""
    turns = rope.original_context * own / (2 * math.pi)
    kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = np.clip(kept, 0.0, 1.0)
    return own * (kept + (1.0 - kept) / rope.factor)


def _yarn(rope: Rope, own: Frequencies) -> Frequencies:
    """As llama3's, but the ramp runs over the number of the pair."""

    def pair(turns: float) -> float:
        return rope.dims * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dims - 1)
    slowed: Frequencies = np.clip((np.arange(rope.dims // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    return own * (1.0 - slowed + slowed / rope.factor)


def yarn_attention_factor(factor: float, scale: float = 1.0) -> float:
    """What yarn multiplies cos and sin with: 0.1 s ln(factor) + 1."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0
