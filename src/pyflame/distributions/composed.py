"""Distributions made of others: Independent, and functions of a distribution's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.distributions.distribution import Distribution, sum_rightmost
from pyflame.distributions.transforms import Transform
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad


class Independent(Distribution):
    """The last axes of a batch taken as one value: log_prob is summed over them.

    >>> d = pf.distributions.Independent(pf.distributions.Normal(pf.zeros(3), 1.0), 1)
    >>> d.event_shape, d.log_prob(pf.zeros(3)).shape
    ((3,), ())
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = tuple(base_distribution.batch_shape)
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ArgumentError(
                f"[Independent] expected at most {len(batch)} axes of the batch but got {reinterpreted_batch_ndims}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], (*batch[cut:], *base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has it."""
        return self.base_dist.has_rsample

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        own = tuple(self.base_dist.batch_shape)[len(self._batch_shape) :]
        return Independent(self.base_dist.expand((*batch_shape, *own)), self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of a function of another one's values.

    >>> from pyflame.distributions import ExpTransform, Normal
    >>> pf.distributions.TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()]).log_prob(pf.tensor(1.0))
    tensor(-0.9189)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.base_dist = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        super().__init__(base_distribution.batch_shape, base_distribution.event_shape, validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has it."""
        return self.base_dist.has_rsample

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        stretched: Any = 0.0
        rank = len(self._event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            stretched = stretched + sum_rightmost(transform.log_abs_det_jacobian(x, value), rank - transform.event_dim)
            value = x
        return self.base_dist.log_prob(value) - stretched  # type: ignore[no-any-return]
