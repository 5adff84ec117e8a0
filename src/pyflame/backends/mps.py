"""torch.backends.mps by its path."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_built() -> bool:
    """Whether Metal is supported: it is not."""
    return False


def is_available() -> bool:
    """Whether an Apple GPU can be used: none can.

    >>> pf.backends.mps.is_available()
    False
    """
    return False
