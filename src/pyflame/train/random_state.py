"""The state of the random generators, as an object that is saved and restored like a model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from pyflame.core.generator import Generator, default_generator


class RandomState:
    """PyFlame's generator (the global one if none is named); with `host` also those of `numpy.random` and `random`.

    >>> state = RandomState(); saved = state.state_dict(); a = pf.rand(2)
    >>> state.load_state_dict(saved); bool((pf.rand(2) == a).all())
    True
    """

    def __init__(self, generator: Generator | None = None, *, host: bool = False) -> None:
        self.generator = default_generator if generator is None else generator
        self.host = host

    def state_dict(self) -> dict[str, Any]:
        saved: dict[str, Any] = {"pyflame": self.generator.get_state()}
        if self.host:
            saved["numpy"] = _plain(np.random.get_state(legacy=False))
            saved["python"] = random.getstate()
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state; generators that were not saved go on as they are."""
        self.generator.set_state(state_dict["pyflame"])
        if self.host and "numpy" in state_dict:
            np.random.set_state(state_dict["numpy"])
            random.setstate(state_dict["python"])


def _plain(value: Any) -> Any:
    """NumPy keeps its state in arrays of types that files of tensors lack."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
