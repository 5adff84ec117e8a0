"""Convolution layers over one to three spatial axes, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.linear import reset_affine
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter, new_parameter
from pyflame.tensor import Tensor

Sizes = int | Sequence[int]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def sizes(layer: str, name: str, value: Any, rank: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    out = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * rank
    if len(out) != rank or any(isinstance(n, bool) or not isinstance(n, int) for n in out):
        raise ArgumentError(f"[{layer}] expected {name} to be a number or {rank} of them but got {value!r}")
    return out


class _ConvBase(Module):
    """What convolutions and transposed ones share."""

    rank: int
    weight: Parameter
    bias: Parameter | None
    padding: str | tuple[int, ...]

    def _build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: str | Sizes,
        output_padding: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        transposed: bool,
        device: object,
        dtype: object,
    ) -> None:
        layer, rank = type(self).__name__, self.rank
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[{layer}] expected groups that divide in_channels={in_channels} and out_channels={out_channels} "
                f"but got {groups}"
            )
        modes = ("zeros",) if transposed else _PADDING_MODES
        if padding_mode not in modes:
            raise ArgumentError(f"[{layer}] expected padding_mode to be one of {modes} but got {padding_mode!r}")
        if isinstance(padding, str) and (transposed or padding not in ("same", "valid")):
            raise ArgumentError(f"[{layer}] expected padding 'same', 'valid' or numbers but got {padding!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = sizes(layer, "kernel_size", kernel_size, rank)
        self.stride = sizes(layer, "stride", stride, rank)
        self.padding = padding if isinstance(padding, str) else sizes(layer, "padding", padding, rank)
        self.dilation = sizes(layer, "dilation", dilation, rank)
        self.output_padding = sizes(layer, "output_padding", output_padding, rank)
        self.groups = groups
        self.padding_mode = padding_mode
        if padding == "same" and self.stride != (1,) * rank:
            raise ArgumentError(f"[{layer}] expected stride 1 with padding='same' but got {stride}; pad by numbers")
        outer = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = new_parameter(*outer, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        reset_affine(self.weight, self.bias)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        none, one = (0,) * self.rank, (1,) * self.rank
        for name, default in (("padding", none), ("dilation", one), ("output_padding", none), ("groups", 1)):
            value = getattr(self, name)
            shown += f", {name}={value}" if value != default else ""
        shown += "" if self.bias is not None else ", bias=False"
        return shown + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


class _Conv(_ConvBase):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self._build(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode, False,
            device, dtype,
        )  # fmt: skip

    def _around(self) -> list[int]:
        """The padding as pf.pad wants it: before and behind each axis, last axis first."""
        if self.padding == "valid":
            return [0] * (2 * self.rank)
        if isinstance(self.padding, tuple):
            return [n for n in reversed(self.padding) for _ in range(2)]
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        return [n for total in reversed(totals) for n in (total // 2, total - total // 2)]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """With a weight and a bias of the caller's: what subclasses call that make theirs anew at each step."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = F["pad"](input, self._around(), self.padding_mode), 0
        return F[f"conv{self.rank}d"](input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Cross-correlation over one axis: (N, C, L) -> (N, out_channels, L'). The batch axis may be missing.

    >>> nn.Conv1d(3, 8, 5, padding="same")(pf.randn(2, 3, 10)).shape
    (2, 8, 10)
    """

    rank = 1


class Conv2d(_Conv):
    """Cross-correlation over two axes: (N, C, H, W) -> (N, out_channels, H', W'). The batch axis may be missing.

    >>> nn.Conv2d(3, 8, 3, stride=2, padding=1)(pf.randn(2, 3, 8, 8)).shape
    (2, 8, 4, 4)
    """

    rank = 2


class Conv3d(_Conv):
    """Cross-correlation over three axes: (N, C, D, H, W) -> (N, out_channels, D', H', W').

    >>> nn.Conv3d(1, 2, 3)(pf.randn(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3


class _ConvTranspose(_ConvBase):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self._build(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias,
            padding_mode, True, device, dtype,
        )  # fmt: skip

    def _extra(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding that leads to this output size."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self.rank :]
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self.rank :],
                self.stride,
                sizes(type(self).__name__, "padding", self.padding, self.rank),
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if len(wanted) != self.rank or any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
            raise ShapeError(
                f"[{type(self).__name__}] expected output_size between {tuple(least)} and {tuple(most)} for an input "
                f"of shape {input.shape} but got {tuple(output_size)}"
            )
        return tuple(n - a for n, a in zip(wanted, least, strict=True))

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        convolve = F[f"conv_transpose{self.rank}d"]
        return convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._extra(input, output_size),
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTranspose):
    """The gradient of Conv1d as a layer: (N, C, L) -> (N, out_channels, L'), larger by the stride.

    >>> nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1)(pf.randn(2, 3, 5)).shape
    (2, 2, 10)
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """The gradient of Conv2d as a layer: (N, C, H, W) -> (N, out_channels, H', W'), larger by the stride.

    >>> nn.ConvTranspose2d(3, 2, 4, stride=2, padding=1)(pf.randn(2, 3, 5, 5)).shape
    (2, 2, 10, 10)
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """The gradient of Conv3d as a layer: (N, C, D, H, W) -> (N, out_channels, D', H', W')."""

    rank = 3
