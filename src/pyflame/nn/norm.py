"""Normalisation layers. Running statistics are buffers whose cells are rebound, so they work inside jit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn import functional, init
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter, new_parameter, settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, empty
from pyflame.tensor.gradients import no_grad


class _Affine(Module):
    """A norm with a weight of ones and a bias of zeros, both optional."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_affine(self, shape: tuple[int, ...], weight: bool, bias: bool, device: object, dtype: object) -> None:
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            self.register_parameter(name, new_parameter(*shape, device=device, dtype=dtype) if wanted else None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


# --- over the last axes -----------------------------------------------------------------------------------------------


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(normalized_shape) if isinstance(normalized_shape, Sequence) else (normalized_shape,)


class LayerNorm(_Affine):
    """Mean 0 and variance 1 over the last axes, then scaled and shifted.

    >>> nn.LayerNorm(4)(pf.randn(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """Mean square 1 over the last axes, then scaled. eps: the dtype's unless given.

    >>> nn.RMSNorm(4)(pf.randn(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, False, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Mean 0 and variance 1 over each group of channels of (N, C, ...), then scaled and shifted per channel.

    >>> nn.GroupNorm(2, 6)(pf.randn(2, 6, 4, 4)).shape
    (2, 6, 4, 4)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: object = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(
                f"[GroupNorm] expected num_channels to be a multiple of num_groups but got {num_channels} and "
                f"{num_groups}"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_affine((num_channels,), affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


# --- with running statistics ------------------------------------------------------------------------------------------


class _Running(_Affine):
    """What batch and instance norm share: statistics per channel that are carried along."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _version = 2
    _axes: tuple[int, ...]  # how many axes an input may have

    def _build(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: object,
        dtype: object,
        bias: bool,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._add_affine((num_features,), affine, bias, device, dtype)
        for name, shape, kind in (
            ("running_mean", (num_features,), dtype),
            ("running_var", (num_features,), dtype),
            ("num_batches_tracked", (), int64),
        ):
            self.register_buffer(name, empty(shape, device=device, dtype=kind) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        for buffer, value in ((self.running_mean, 0.0), (self.running_var, 1.0), (self.num_batches_tracked, 0)):
            if buffer is not None:
                init.constant_(buffer, value)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, statistics as at the start."""
        self.reset_running_stats()
        super().reset_parameters()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any, **kwargs: Any
    ) -> None:
        # PyTorch's files from before 2018 lack the count
        if (local_metadata.get("version") or 1) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args, **kwargs)

    def _check_input_dim(self, input: Tensor) -> None:
        """Raise unless the input has as many axes as it may: subclasses put their own check in its place."""
        if input.ndim not in self._axes:
            raise ShapeError(f"[{type(self).__name__}] expected {self._axes} axes but got shape {input.shape}")

    def _check(self, input: Tensor, channel_axis: int) -> None:
        self._check_input_dim(input)
        if input.shape[channel_axis] != self.num_features:
            raise ShapeError(
                f"[{type(self).__name__}] expected {self.num_features} channels but got {input.shape[channel_axis]} "
                f"in shape {input.shape}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Running):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: object = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._build(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input, 1)
        training = self.training
        share: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
                if self.momentum is None:  # the plain mean over all batches
                    share = self.num_batches_tracked.to(input.dtype).reciprocal()
        tracked = self.track_running_stats or not training
        out = functional.batch_norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            training or self.running_mean is None or self.running_var is None,
            share,
            self.eps,
        )
        if training and self.num_batches_tracked is not None:
            settle([self.num_batches_tracked])
        return out


class BatchNorm1d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C) or (N, C, L): by the batch in training, by running statistics else.

    >>> nn.BatchNorm1d(3)(pf.randn(8, 3)).shape
    (8, 3)
    """

    _axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C, H, W): by the batch in training, by running statistics else.

    >>> nn.BatchNorm2d(3).eval()(pf.randn(8, 3, 4, 4)).shape
    (8, 3, 4, 4)
    """

    _axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Mean 0 and variance 1 per channel of (N, C, D, H, W)."""

    _axes = (5,)


class _InstanceNorm(_Running):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: object = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._build(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        batched = input.ndim == self._axes[1]
        self._check(input, 1 if batched else 0)
        out = functional.instance_norm(
            input if batched else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum or 0.0,
            self.eps,
        )
        return out if batched else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Mean 0 and variance 1 over each channel of each sample of (N, C, L) or (C, L).

    >>> nn.InstanceNorm1d(3)(pf.randn(2, 3, 5)).shape
    (2, 3, 5)
    """

    _axes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Mean 0 and variance 1 over each channel of each sample of (N, C, H, W) or (C, H, W)."""

    _axes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Mean 0 and variance 1 over each channel of each sample of (N, C, D, H, W) or (C, D, H, W)."""

    _axes = (4, 5)


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics are those of all processes: of one process, its own.

    >>> type(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3))).__name__
    'SyncBatchNorm'
    """

    _axes = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: object = None,
        device: object = None,
        dtype: object = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """The module with SyncBatchNorm in place of every batch norm; parameters and statistics stay the same."""
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            module.__class__ = cls
        for child in module.children():
            cls.convert_sync_batchnorm(child, process_group)
        return module


class LocalResponseNorm(Module):
    """Each element over a power of the mean square of its neighbours across channels, of (N, C, ...).

    >>> nn.LocalResponseNorm(2)(pf.ones(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm of (N, C, H, W) as older models have it, with as many neighbours on both sides.

    The first channel counts as a neighbour of all later ones, as in PyTorch.

    >>> nn.CrossMapLRN2d(2)(pf.ones(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ShapeError(f"[CrossMapLRN2d] expected (N, C, H, W) but got shape {input.shape}")
        channels, reach = input.shape[1], (self.size + 1) // 2
        square = input * input
        padded = functional.pad(square, (0, 0, 0, 0, reach - 1, reach - 1))
        around = sum(padded[:, i : i + channels] for i in range(2 * reach - 1))
        first = square[:, :1] * (arange(channels, device=input.device) >= reach).reshape(-1, 1, 1)
        return input * ((around + first) * (self.alpha / self.size) + self.k).pow(-self.beta)
