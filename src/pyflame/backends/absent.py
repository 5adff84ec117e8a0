"""torch.xpu and torch.mps by their paths: kinds of devices that PyFlame does not run on, so there are never any."""

from __future__ import annotations

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "synchronize"]


def is_available() -> bool:
    """Whether there is such a device: no.

    >>> pf.xpu.is_available(), pf.mps.device_count()
    (False, 0)
    """
    return False


def device_count() -> int:
    """How many there are: none."""
    return 0


def empty_cache() -> None:
    """Nothing: there is no memory to give back."""


def synchronize(device: object = None) -> None:
    """Nothing: there is nothing to wait for."""


def manual_seed(seed: int) -> None:
    """Nothing: there is no generator."""


manual_seed_all = manual_seed
