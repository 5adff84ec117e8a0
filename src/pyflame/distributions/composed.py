"""Distributions made of others: Independent, and functions of a distribution's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.distribution import Distribution, sum_rightmost
from pyflame.distributions.transforms import ComposeTransform, Transform
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

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the base has it, and no axis of it is taken as an event."""
        return self.base_dist.has_enumerate_support and self.reinterpreted_batch_ndims == 0

    @constraints.dependent_property
    def support(self) -> Constraint:
        base: Constraint = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(base, count) if count else base

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        own = tuple(self.base_dist.batch_shape)[len(self._batch_shape) :]
        new = self._copied_into(_instance)
        new.base_dist, new._batch_shape = self.base_dist.expand((*batch_shape, *own)), Size(batch_shape)
        return new

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The base's values."""
        if not self.has_enumerate_support:
            raise self._without("enumerate_support")
        return self.base_dist.enumerate_support(expand)

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
        parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in parts):
            raise ArgumentError(f"[TransformedDistribution] expected transforms but got {parts!r}")
        chain = ComposeTransform(parts)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        before, after = chain.domain.event_dim, chain.codomain.event_dim
        if len(shape) < before:
            raise ShapeError(f"[TransformedDistribution] expected a base of at least {before} axes but got {shape}")
        out = chain.forward_shape(shape)
        wide, own = tuple(chain.inverse_shape(out)), len(base_distribution.event_shape)
        if wide != shape:  # a parameter of a transform is larger than the base
            base_distribution = base_distribution.expand(wide[: len(wide) - own])
        self.base_dist = Independent(base_distribution, before - own) if before > own else base_distribution
        self.transforms = parts
        cut = len(out) - max(after, own + after - before)
        super().__init__(out[:cut], out[cut:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has it."""
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support  # type: ignore[no-any-return]
        last: Constraint = self.transforms[-1].codomain
        more = len(self._event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self._event_shape))
        new = self._copied_into(_instance)
        new._batch_shape = Size(batch_shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _backward(self, y: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            y = transform.inv(y)
        return y

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
            before = transform.domain.event_dim
            rank += before - transform.codomain.event_dim
            stretched = stretched + sum_rightmost(transform.log_abs_det_jacobian(x, value), rank - before)
            value = x
        base = sum_rightmost(self.base_dist.log_prob(value), rank - len(self.base_dist.event_shape))
        return base - stretched  # type: ignore[no-any-return]

    def _rising(self, probability: Tensor) -> Tensor:
        """1 - p where the transforms fall."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        return self._rising(self.base_dist.cdf(self._backward(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._rising(value)))
