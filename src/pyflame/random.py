"""torch.random by its path: the global generator's seed and state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.generator import default_generator
from pyflame.tensor.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cuda") -> Iterator[None]:
    """After the `with` block the generator goes on as if nothing had been drawn. There is one for all devices.

    >>> _ = pf.manual_seed(0)
    >>> with pf.random.fork_rng():
    ...     a = pf.rand(2)
    >>> bool((a == pf.rand(2)).all())
    True
    """
    before = default_generator.get_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.set_state(before)
