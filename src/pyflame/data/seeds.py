"""Seeds: one base seed per loader, from which every order and every worker's random numbers follow.

A seed is the BLAKE2 hash of the numbers that say what it is for: (base seed, epoch) for an order, (base seed, epoch,
batch) for the random numbers that a dataset draws in a worker. It keys NumPy's Philox. Nothing depends on what was
drawn before, so a loader can start in the middle of any epoch.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.core.generator import Generator, default_generator

_MASK = (1 << 64) - 1


def _digest(parts: tuple[int, ...]) -> bytes:
    return hashlib.blake2b(b"".join((p & _MASK).to_bytes(8, "little") for p in parts), digest_size=16).digest()


def derive(*parts: int) -> int:
    """One seed of 63 bits from several numbers."""
    return int.from_bytes(_digest(parts)[:8], "little") >> 1


def rng(*parts: int) -> np.random.Generator:
    """NumPy's Philox under a key made of several numbers."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(parts), "little")))


def draw_seed(generator: Generator | None) -> int:
    """A base seed from a generator, or from the one that pf.manual_seed sets. Each call gives another."""
    return derive(*(generator or default_generator).next_stream())


def check_seed(op: str, seed: object, generator: object) -> None:
    """`seed` and `generator` are two ways to say the same."""
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentError(f"[{op}] expected a pf.Generator but got {type(generator).__name__}; or pass seed=<int>")
    if seed is not None and generator is not None:
        raise ArgumentError(f"[{op}] expected a seed or a generator but got both; drop one")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
        raise ArgumentError(f"[{op}] expected a whole number as seed but got {seed!r}")


def seed_process(*parts: int) -> None:
    """Seed the global generators of this process: random, numpy.random and PyFlame's."""
    digest = _digest(parts)
    random.seed(digest)
    np.random.seed(np.frombuffer(digest, np.uint32))
    default_generator.manual_seed(int.from_bytes(digest[:8], "little"))
