"""torch.backends.mkldnn by its path."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether oneDNN is used: kernels for the CPU are PyFlame's own, and so are its threads.

    >>> pf.backends.mkldnn.is_available()
    False
    """
    return False
