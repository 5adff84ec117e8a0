"""Padding layers, over the last one to three axes."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.core.errors import ArgumentError
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


class _Pad(Module):
    """`padding`: one number for all sides, or (last axis before, last axis behind, the axis before it before, ...)."""

    rank: int
    _mode: str
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        sides = tuple(padding) if isinstance(padding, Sequence) else (padding,) * (2 * self.rank)
        if len(sides) != 2 * self.rank:
            raise ArgumentError(
                f"[{type(self).__name__}] expected a number or {2 * self.rank} of them as padding but got {padding}"
            )
        self.padding = sides

    def forward(self, input: Tensor) -> Tensor:
        return F["pad"](input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    _mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """A number before and behind the last axis.

    >>> nn.ConstantPad1d(1, 9.0)(pf.zeros(1, 2))
    tensor([[9., 0., 0., 9.]])
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """A number around the last two axes."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """A number around the last three axes."""

    rank = 3


class ZeroPad1d(_Pad):
    """Zeros before and behind the last axis."""

    rank, _mode = 1, "constant"


class ZeroPad2d(_Pad):
    """Zeros around the last two axes.

    >>> nn.ZeroPad2d((1, 0, 0, 2))(pf.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 4)
    """

    rank, _mode = 2, "constant"


class ZeroPad3d(_Pad):
    """Zeros around the last three axes."""

    rank, _mode = 3, "constant"


class ReflectionPad1d(_Pad):
    """The elements inside mirrored, before and behind the last axis.

    >>> nn.ReflectionPad1d(2)(pf.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    rank, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The elements inside mirrored, around the last two axes."""

    rank, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The elements inside mirrored, around the last three axes."""

    rank, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The outermost element repeated, before and behind the last axis."""

    rank, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The outermost element repeated, around the last two axes."""

    rank, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The outermost element repeated, around the last three axes."""

    rank, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The elements of the other end, before and behind the last axis."""

    rank, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """The elements of the other end, around the last two axes."""

    rank, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """The elements of the other end, around the last three axes."""

    rank, _mode = 3, "circular"
