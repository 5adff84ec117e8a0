"""What a convolution is to a library: sizes in NCHW order (or NCW, NCDHW), with equal padding on both sides.

In memory x, w and y lie in that order too, or all of them with their second axis last: NHWC, and weights KRSC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from pyflame.core.errors import ArgumentError

FORWARD, BACKWARD_DATA, BACKWARD_FILTER = "forward", "backward_data", "backward_filter"
DIRECTIONS = (FORWARD, BACKWARD_DATA, BACKWARD_FILTER)


@dataclass(frozen=True)
class ConvSpec:
    """y = x * w: x is (batch, channels, *size), w is (filters, channels / groups, *kernel).

    `w` and `y` of the three directions are the same problem: forward makes y of x and w, `backward_data` makes the
    gradient of x of w and y's, `backward_filter` that of w of x and y's.

    >>> ConvSpec(8, 3, (32, 32), 16, (3, 3), padding=(1, 1)).y
    (8, 16, 32, 32)
    """

    batch: int
    channels: int
    size: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    dtype: str = "float32"
    tf32: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        axes = len(self.size)
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            if not getattr(self, name):
                object.__setattr__(self, name, (usual,) * axes)
        lengths = {len(v) for v in (self.size, self.kernel, self.stride, self.padding, self.dilation)}
        if lengths != {axes} or not 1 <= axes <= 3:
            raise ArgumentError(f"[conv] expected 1 to 3 sizes, strides and paddings of one number but got {self.text}")
        if self.channels % self.groups or self.filters % self.groups:
            raise ArgumentError(f"[conv] expected channels and filters to divide by the groups but got {self.text}")
        if min(self.y) < 1 or min(self.x) < 1 or min(self.w) < 1:
            raise ArgumentError(f"[conv] expected a result with elements but got {self.text} -> {self.y}")

    @property
    def x(self) -> tuple[int, ...]:
        return (self.batch, self.channels, *self.size)

    @property
    def w(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, *self.kernel)

    @property
    def y(self) -> tuple[int, ...]:
        sizes = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return (self.batch, self.filters, *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))

    def shape(self, operand: str) -> tuple[int, ...]:
        """The shape of "x", "w" or "y"."""
        return {"x": self.x, "w": self.w, "y": self.y}[operand]

    def strides(self, operand: str) -> tuple[int, ...]:
        """The strides of "x", "w" or "y", in the order of its shape.

        >>> ConvSpec(8, 3, (32, 32), 16, (3, 3), channels_last=True).strides("x")
        (3072, 1, 96, 3)
        """
        shape = self.shape(operand)
        if not self.channels_last:
            return packed(shape)
        outer, *spatial, inner = packed((shape[0], *shape[2:], shape[1]))
        return (outer, inner, *spatial)

    @property
    def flat(self) -> ConvSpec:
        """The same with two spatial axes at least, which is what libraries begin at: (n, c, l) -> (n, c, 1, l)."""
        if len(self.size) > 1:
            return self
        return replace(
            self,
            size=(1, *self.size),
            kernel=(1, *self.kernel),
            stride=(1, *self.stride),
            padding=(0, *self.padding),
            dilation=(1, *self.dilation),
        )

    @property
    def text(self) -> str:
        """The problem in one line."""
        return (
            f"conv ({self.batch}, {self.channels}, {', '.join(map(str, self.size))}) by {self.filters} of {self.kernel}"
            f" stride {self.stride} padding {self.padding} dilation {self.dilation} groups {self.groups} {self.dtype}"
            f"{' channels last' if self.channels_last else ''}"
        )

    @property
    def flops(self) -> float:
        return 2.0 * prod(self.y) * prod(self.w[1:])


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a shape whose elements lie one behind the other.

    >>> packed((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
