"""Layers that make images larger and smaller, or cut them into patches."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.nn import functional
from pyflame.nn.conv import Sizes
from pyflame.nn.module import Module
from pyflame.tensor import Tensor


class Upsample(Module):
    """Resizes (N, C, ...) to `size` or by `scale_factor`: 'nearest', 'linear', 'bilinear', 'bicubic' or 'trilinear'.

    >>> nn.Upsample(scale_factor=2, mode="bilinear")(pf.randn(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = tuple(map(float, scale_factor)) if isinstance(scale_factor, Sequence) else scale_factor
        if isinstance(self.scale_factor, int):
            self.scale_factor = float(self.scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return functional.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        shown = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{shown}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes (N, C, H, W) to `size` or by `scale_factor`: PyTorch's older name of Upsample.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(pf.randn(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Resizes (N, C, H, W) linearly, the corners kept: PyTorch's older name of Upsample with align_corners.

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(pf.randn(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """Channels become space: (..., C*r*r, H, W) -> (..., C, H*r, W*r).

    >>> nn.PixelShuffle(2)(pf.randn(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Space becomes channels: (..., C, H*r, W*r) -> (..., C*r*r, H, W).

    >>> nn.PixelUnshuffle(2)(pf.randn(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class Unfold(Module):
    """Patches of (N, C, H, W) as columns: (N, C * taps, patches).

    >>> nn.Unfold(2)(pf.randn(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """The sum of patches at their places: (N, C * taps, patches) -> (N, C, *output_size).

    >>> nn.Fold((4, 4), 2)(pf.randn(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return functional.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class ChannelShuffle(Module):
    """Channels of (N, C, ...) dealt out among groups.

    >>> nn.ChannelShuffle(2)(pf.ones(1, 4, 2, 2)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
