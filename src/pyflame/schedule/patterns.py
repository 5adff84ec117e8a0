"""can_fuse: whether a short sequence of ops is one launch, for the eight patterns that users ask about by name.

The schedule fuses far more than these; tests hold each pattern against the plans it really makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pyflame.core.errors import ArgumentError, suggest
from pyflame.ir import OPS


class FusedOpType(Enum):
    """The named patterns."""

    MATMUL_BIAS = ("matmul", "add")
    MATMUL_BIAS_RELU = ("matmul", "add", "relu")
    MATMUL_BIAS_GELU = ("matmul", "add", "gelu")
    CONV_BIAS = ("conv", "add")
    CONV_BIAS_RELU = ("conv", "add", "relu")
    CONV_BN_RELU = ("conv", "batch_norm", "relu")
    ADD_RELU = ("add", "relu")
    MUL_ADD = ("mul", "add")


_SAME = {
    "conv1d": "conv",
    "conv2d": "conv",
    "conv3d": "conv",
    "batch_matmul": "matmul",
    "bmm": "matmul",
    "mm": "matmul",
    "bias": "add",
}
_KNOWN = {"conv", *_SAME}


def can_fuse(ops: Sequence[str]) -> FusedOpType | None:
    """The pattern that these ops, in order, form in one launch; None where they are no named pattern.

    >>> can_fuse(["matmul", "add", "relu"])
    <FusedOpType.MATMUL_BIAS_RELU: ('matmul', 'add', 'relu')>
    """
    for op in ops:
        if op not in OPS and op not in _KNOWN:
            raise ArgumentError(f"[can_fuse] expected names of ops but got {op!r}{suggest(op, [*OPS, *_KNOWN])}")
    wanted = tuple(_SAME.get(op, op) for op in ops)
    return next((pattern for pattern in FusedOpType if pattern.value == wanted), None)
