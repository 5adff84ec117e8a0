"""Memory formats: the order in which a tensor's axes lie in memory, by PyTorch's names.

A format changes strides, never the shape. `channels_last` is (N, H, W, C) in memory for a tensor (N, C, H, W). On GPUs
the engine chooses the order of what it computes itself (`passes/layout.py`); what is moved to a format lies so.
"""

from __future__ import annotations

import enum
from typing import Any

from pyflame.core.errors import ArgumentTypeError, ShapeError
from pyflame.core.shape import Shape, is_contiguous


class memory_format(enum.Enum):
    """How a tensor's axes lie in memory."""

    contiguous_format = 0
    preserve_format = 1
    channels_last = 2
    channels_last_3d = 3

    def __repr__(self) -> str:
        return f"pyflame.{self.name}"

    __str__ = __repr__


contiguous_format = memory_format.contiguous_format
preserve_format = memory_format.preserve_format
channels_last = memory_format.channels_last
channels_last_3d = memory_format.channels_last_3d
RANKS = {channels_last: 4, channels_last_3d: 5}


def order_of(op: str, format: Any, rank: int) -> Shape | None:
    """The axes of a tensor in the order in which a format has them in memory; None: as they are.

    >>> order_of("to", channels_last, 4)
    (0, 2, 3, 1)
    """
    if format is not None and not isinstance(format, memory_format):
        raise ArgumentTypeError(f"[{op}] expected a memory format such as pf.channels_last but got {format!r}")
    if format is None or format is preserve_format:
        return None
    wanted = RANKS.get(format, rank)
    if rank != wanted:
        raise ShapeError(f"[{op}] expected a tensor of {wanted} axes for {format.name} but got {rank}")
    return tuple(range(rank)) if format is contiguous_format else (0, *range(2, rank), 1)


def lies_in(shape: Shape, strides: Shape, order: Shape) -> bool:
    """Whether elements lie without gaps in an order of their axes."""
    return is_contiguous(tuple(shape[a] for a in order), tuple(strides[a] for a in order))
