"""torch.backends.mkl by its path."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether Intel's MKL is used: kernels for the CPU are PyFlame's own, and so are its threads.

    >>> pf.backends.mkl.is_available()
    False
    """
    return False
