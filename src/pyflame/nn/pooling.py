"""Pooling layers: the maximum or the mean of windows, over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.nn import functional
from pyflame.nn.conv import Sizes, sizes
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


class _MaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:  # with return_indices also their positions
        pool = F[f"max_pool{self.rank}d"]
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The maximum of windows over (N, C, L).

    >>> nn.MaxPool1d(2)(pf.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
    tensor([[[3., 2.]]])
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The maximum of windows over (N, C, H, W).

    >>> nn.MaxPool2d(2)(pf.randn(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The maximum of windows over (N, C, D, H, W)."""

    rank = 3


class _MaxUnpool(Module):
    rank: int

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = sizes(name, "kernel_size", kernel_size, self.rank)
        self.stride = self.kernel_size if stride is None else sizes(name, "stride", stride, self.rank)
        self.padding = sizes(name, "padding", padding, self.rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = getattr(functional, f"max_unpool{self.rank}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d with `return_indices=True`: its maxima where they were, and 0 elsewhere.

    >>> values, where = nn.MaxPool1d(2, return_indices=True)(pf.tensor([[1.0, 3.0, 2.0, 0.0]]))
    >>> nn.MaxUnpool1d(2)(values, where)
    tensor([[0., 3., 2., 0.]])
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d with `return_indices=True`."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d with `return_indices=True`."""

    rank = 3


class _FractionalMaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(
                f"[{type(self).__name__}] expected either output_size or output_ratio but got "
                f"{output_size!r} and {output_ratio!r}"
            )
        self.kernel_size, self.return_indices = kernel_size, return_indices
        self.output_size, self.output_ratio = output_size, output_ratio
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:  # with return_indices also their positions
        pool = getattr(functional, f"fractional_max_pool{self.rank}d")
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maxima of windows whose starts are drawn, over (N, C, H, W): `output_size` of them, or a part of the size.

    >>> nn.FractionalMaxPool2d(2, output_ratio=0.6)(pf.randn(1, 3, 9, 9)).shape
    (1, 3, 5, 5)
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maxima of windows whose starts are drawn, over (N, C, D, H, W).

    >>> nn.FractionalMaxPool3d(2, output_size=3)(pf.randn(1, 3, 6, 6, 6)).shape
    (1, 3, 3, 3, 3)
    """

    rank = 3


class _AvgPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        settings: list[Any] = [self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad]
        if self.rank > 1:
            settings.append(self.divisor_override)
        return F[f"avg_pool{self.rank}d"](input, *settings)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of windows over (N, C, L).

    >>> nn.AvgPool1d(2)(pf.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
    tensor([[[2., 1.]]])
    """

    rank = 1

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        window = sizes("AvgPool1d", "kernel_size", kernel_size, 1)
        step = window if stride is None else sizes("AvgPool1d", "stride", stride, 1)
        super().__init__(window, step, sizes("AvgPool1d", "padding", padding, 1), ceil_mode, count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of windows over (N, C, H, W).

    >>> nn.AvgPool2d(2)(pf.randn(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of windows over (N, C, D, H, W)."""

    rank = 3


class _Adaptive(Module):
    rank: int
    _function: str

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return F[f"{self._function}{self.rank}d"](input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """The mean of windows chosen so that `output_size` of them cover (N, C, L).

    >>> nn.AdaptiveAvgPool1d(1)(pf.tensor([[[1.0, 3.0]]]))
    tensor([[[2.]]])
    """

    rank, _function = 1, "adaptive_avg_pool"


class AdaptiveAvgPool2d(_Adaptive):
    """The mean of windows chosen so that `output_size` of them cover (N, C, H, W); None keeps an axis.

    >>> nn.AdaptiveAvgPool2d((1, 1))(pf.randn(2, 3, 7, 5)).shape
    (2, 3, 1, 1)
    """

    rank, _function = 2, "adaptive_avg_pool"


class AdaptiveAvgPool3d(_Adaptive):
    """The mean of windows chosen so that `output_size` of them cover (N, C, D, H, W)."""

    rank, _function = 3, "adaptive_avg_pool"


class _AdaptiveMax(_Adaptive):
    _function = "adaptive_max_pool"

    def __init__(self, output_size: int | Sequence[int | None] | None, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return F[f"{self._function}{self.rank}d"](input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The maximum of windows chosen so that `output_size` of them cover (N, C, L)."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The maximum of windows chosen so that `output_size` of them cover (N, C, H, W).

    >>> nn.AdaptiveMaxPool2d(2)(pf.randn(1, 3, 7, 5)).shape
    (1, 3, 2, 2)
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The maximum of windows chosen so that `output_size` of them cover (N, C, D, H, W)."""

    rank = 3


class _LPPool(Module):
    rank: int

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool: Any = getattr(functional, f"lp_pool{self.rank}d")
        pooled: Tensor = pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return pooled

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of (N, C, L).

    >>> nn.LPPool1d(2, 2)(pf.ones(1, 1, 4)).shape
    (1, 1, 2)
    """

    rank = 1


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W).

    >>> nn.LPPool2d(2, 2)(pf.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    rank = 2


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W).

    >>> nn.LPPool3d(2, 2)(pf.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    rank = 3
