"""MixtureSameFamily."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.discrete import Categorical
from pyflame.distributions.distribution import Distribution, F
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad


class MixtureSameFamily(Distribution):
    """One of k distributions of a kind, which a Categorical chooses: the last axis of the components' batch.

    >>> d = pf.distributions
    >>> d.MixtureSameFamily(d.Categorical(pf.ones(2)), d.Normal(pf.tensor([-1.0, 1.0]), 1.0)).mean
    tensor(0.)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical) or not isinstance(component_distribution, Distribution):
            raise ArgumentError(
                f"[MixtureSameFamily] expected a Categorical and a distribution but got {mixture_distribution!r} and "
                f"{component_distribution!r}"
            )
        *batch, count = component_distribution.batch_shape or (0,)
        weights = mixture_distribution.param_shape
        pairs = zip(reversed(weights[:-1]), reversed(batch), strict=False)
        if weights[-1] != count or any(1 not in p and p[0] != p[1] for p in pairs):
            raise ShapeError(
                "[MixtureSameFamily] expected weights that fit components of the batch shape "
                f"{component_distribution.batch_shape} but got shape {weights}"
            )
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        super().__init__(tuple(batch), component_distribution.event_shape, validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._copied_into(_instance)
        new._batch_shape = Size(batch_shape)
        new.mixture_distribution = self.mixture_distribution.expand(batch_shape)
        new.component_distribution = self.component_distribution.expand(
            (*batch_shape, self.component_distribution.batch_shape[-1])
        )
        return new

    @property
    def _axis(self) -> int:
        """That of the components, before an event's."""
        return -1 - len(self._event_shape)

    def _weighted(self, values: Tensor) -> Tensor:
        weights = self.mixture_distribution.probs
        return (values * weights.reshape(*weights.shape, *[1] * len(self._event_shape))).sum(self._axis)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances and the variance of the means."""
        parts = self.component_distribution
        return self._weighted(parts.variance + (parts.mean - self.mean.unsqueeze(self._axis)) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        parts = self.component_distribution.cdf(value.unsqueeze(self._axis))
        return (parts * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self.component_distribution.log_prob(value.unsqueeze(self._axis))
        return F["logsumexp"](parts + F["log_softmax"](self.mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            chosen = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)  # (..., k, *event)
            index = chosen.reshape(*chosen.shape, *[1] * (1 + len(self._event_shape)))
            index = index.expand(*chosen.shape, 1, *self._event_shape)
            return F["gather"](drawn, drawn.ndim + self._axis, index).squeeze(self._axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
