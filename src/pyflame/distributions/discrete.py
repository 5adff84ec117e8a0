"""Bernoulli and categorical distributions, by probabilities or by logits."""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.limits import finfo
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.continuous import standard_uniform
from pyflame.distributions.distribution import (
    Distribution,
    ExponentialFamily,
    F,
    broadcast_all,
    check_last,
    clamped,
    one_of,
)
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, eye
from pyflame.tensor.gradients import no_grad


def binary_logits(probs: Tensor) -> Tensor:
    """log(p / (1 - p))."""
    p = clamped(probs)
    return F["log"](p) - F["log1p"](-p)


class Binary(Distribution):
    """A distribution with a probability of success, given as itself or by its logit."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}  # noqa: RUF012
    _ranks: Any = {"_given": 0}  # noqa: RUF012

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._by_probs = one_of(type(self).__name__, probs, logits)
        self._derived = ("logits",) if self._by_probs else ("probs",)
        (self._given,) = broadcast_all(probs if self._by_probs else logits)
        super().__init__(self._given.shape, validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities of a success."""
        return self._given if self._by_probs else F["sigmoid"](self._given)

    @property
    def logits(self) -> Tensor:
        """log(p / (1 - p))."""
        return binary_logits(self._given) if self._by_probs else self._given

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return Size(self._given.shape)


class Counted(Binary):
    """A distribution of counts of successes that depends on another count."""

    total_count: Tensor
    _ranks = {"_given": 0, "total_count": 0}  # noqa: RUF012

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        by_probs = one_of(type(self).__name__, probs, logits)
        total, given = broadcast_all(total_count, probs if by_probs else logits)
        self.total_count = total.to(given.dtype)
        super().__init__(given if by_probs else None, None if by_probs else given, validate_args)


class Bernoulli(Binary, ExponentialFamily):
    """1 with probability `probs`, else 0.

    >>> pf.distributions.Bernoulli(0.25).log_prob(pf.tensor(1.0))
    tensor(-1.3863)
    """

    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self._given.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            u = standard_uniform(self._extended_shape(sample_shape), self._given)
            return (u < self.probs).to(self._given.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -F["binary_cross_entropy_with_logits"](logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F["binary_cross_entropy_with_logits"](self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1."""
        values = F["stack"]([self._given * 0.0, self._given * 0.0 + 1.0])
        return values if expand else values.reshape(2, -1)[:, :1].reshape(2, *[1] * len(self._batch_shape))


class Categorical(Distribution):
    """One of n categories; `probs` need not sum to 1.

    >>> pf.distributions.Categorical(pf.tensor([1.0, 3.0])).log_prob(pf.tensor(1))
    tensor(-0.2877)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}  # noqa: RUF012
    has_enumerate_support = True
    _ranks = {"_given": 1}  # noqa: RUF012

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._by_probs = one_of("Categorical", probs, logits)
        self._derived = ("logits",) if self._by_probs else ("probs",)
        (given,) = broadcast_all(probs if self._by_probs else logits)
        check_last("Categorical", given)
        if self._by_probs:
            self._given = given / given.sum(-1, keepdims=True)
        else:
            self._given = given - F["logsumexp"](given, -1, keepdims=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self._given if self._by_probs else F["softmax"](self._given, -1)

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return F["log"](clamped(self._given)) if self._by_probs else self._given

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return Size(self._given.shape)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._given.sum(-1) * float("nan")

    @property
    def variance(self) -> Tensor:
        return self._given.sum(-1) * float("nan")

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Numbers of categories. The draw is part of the graph, so it works inside of pf.jit."""
        shape = self._extended_shape(sample_shape)
        count = 1
        for n in shape[: len(shape) - len(self._batch_shape)]:
            count *= n
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            if 0 in shape:
                return rows.new_zeros(shape).long()
            drawn = F["multinomial"](rows, count, True)  # (rows, count)
            return drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        index = value.long().unsqueeze(-1)
        shape = (*F["broadcast_tensors"](index[..., 0], self._given[..., 0])[0].shape,)
        logits = self.logits.expand(*shape, self._num_events)
        return F["gather"](logits, -1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self._given.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All categories."""
        values = arange(self._num_events).reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(self._num_events, *self._batch_shape) if expand else values


class OverCategories(Distribution):
    """A distribution of vectors with an element for each category of a Categorical."""

    arg_constraints = Categorical.arg_constraints

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        self._derived = self._categorical._derived
        super().__init__(self._categorical.batch_shape, (self._categorical._num_events,), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._copied_into(_instance)
        new._categorical = self._categorical.expand(batch_shape)
        new._batch_shape = new._categorical.batch_shape
        return new

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits


class OneHotCategorical(OverCategories):
    """A Categorical whose values are one-hot vectors.

    >>> pf.distributions.OneHotCategorical(pf.tensor([0.0, 1.0])).sample().tolist()
    [0.0, 1.0]
    """

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return F["one_hot"](self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample(sample_shape)
        return F["one_hot"](drawn, self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All one-hot vectors."""
        n = self._event_shape[0]
        values = eye(n, dtype=self.probs.dtype).reshape(n, *[1] * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As OneHotCategorical; gradients of samples go to the probabilities as if they were these.

    >>> pf.distributions.OneHotCategoricalStraightThrough(pf.tensor([0.0, 1.0])).rsample().tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class ContinuousBernoulli(Binary, ExponentialFamily):
    """The density over [0, 1] that is proportional to probs^x (1 - probs)^(1 - x). Near probs = 1/2, inside of `lims`,
    its formulas cancel, and Taylor's series take their place.

    >>> pf.distributions.ContinuousBernoulli(0.5).mean
    tensor(0.5000)
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        super().__init__(probs, logits, validate_args)
        if self._by_probs:
            self._given = clamped(self._given)

    @property
    def probs(self) -> Tensor:
        """The parameter, never exactly 0 or 1."""
        return self._given if self._by_probs else clamped(super().probs)

    def _apart(self) -> tuple[Tensor, Tensor]:
        """Where probs is far enough from 1/2, and probs there."""
        low, high = self._lims
        far = (self.probs <= low) | (self.probs > high)
        return far, F["where"](far, self.probs, low)

    @staticmethod
    def _log_odds(p: Tensor) -> Tensor:
        return F["log1p"](-p) - F["log"](p)

    def _log_norm(self) -> Tensor:
        """What log_prob has more than a Bernoulli's."""
        far, p = self._apart()
        exact = F["log"](F["abs"](self._log_odds(p))) - F["log"](F["abs"](1 - 2 * p))
        square = (self.probs - 0.5) ** 2
        return F["where"](far, exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * square) * square)

    @property
    def mean(self) -> Tensor:
        far, p = self._apart()
        away = self.probs - 0.5
        near = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * away**2) * away
        return F["where"](far, p / (2.0 * p - 1.0) + 1.0 / self._log_odds(p), near)

    @property
    def variance(self) -> Tensor:
        far, p = self._apart()
        square = (self.probs - 0.5) ** 2
        near = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * square) * square
        return F["where"](far, p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / self._log_odds(p) ** 2, near)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self._given))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return self._log_norm() - F["binary_cross_entropy_with_logits"](logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        far, p = self._apart()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return F["where"](value <= 0, 0.0, F["where"](value >= 1, 1.0, F["where"](far, exact, value)))

    def icdf(self, value: Tensor) -> Tensor:
        far, p = self._apart()
        exact = (F["log1p"](-p + value * (2.0 * p - 1.0)) - F["log1p"](-p)) / -self._log_odds(p)
        return F["where"](far, exact, value)

    def entropy(self) -> Tensor:
        return self.mean * self._log_odds(self.probs) - self._log_norm() - F["log1p"](-self.probs)
