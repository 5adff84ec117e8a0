"""Attention: nn.MultiheadAttention, flex_attention, and the names by which PyTorch chooses an implementation."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.errors import ArgumentTypeError
from pyflame.nn.attention.multihead import MultiheadAttention

__all__ = ["MultiheadAttention", "SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __str__(self) -> str:
        return f"SDPBackend.{self.name}"


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Changes nothing: implementations of attention compete here, and the fastest that is right is taken.

    >>> with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
    ...     pass
    """
    for backend in backends if isinstance(backends, (list, tuple)) else [backends]:
        if not isinstance(backend, SDPBackend):
            raise ArgumentTypeError(f"[sdpa_kernel] expected SDPBackend but got {type(backend).__name__}")
    yield
