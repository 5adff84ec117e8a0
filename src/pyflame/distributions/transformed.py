"""Distributions that are functions of others' values, as torch.distributions makes them: TransformedDistribution with
names for its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyflame.distributions import constraints
from pyflame.distributions.composed import TransformedDistribution
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.continuous import EULER, Cauchy, Exponential, Normal, Uniform, standard_uniform
from pyflame.distributions.discrete import Binary, OverCategories
from pyflame.distributions.distribution import Distribution, F, broadcast_all, clamped
from pyflame.distributions.gammas import Gamma, digamma, lgamma
from pyflame.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    StickBreakingTransform,
    Transform,
)
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor


class Named(TransformedDistribution):
    """A TransformedDistribution that `_made` makes from parameters, which broadcast."""

    names: tuple[str, ...] = ()

    def __init__(self, *values: Any, validate_args: bool | None = None) -> None:
        self._ranks = dict.fromkeys(self.names, 0)
        if values and isinstance(
            values[0], Distribution
        ):  # Pyro's LogNormal gives a base of its own, and passes by ours
            for name in self.names:
                setattr(self, name, getattr(values[0], name))
            super().__init__(values[0], values[1], validate_args)
            return
        for name, value in zip(self.names, broadcast_all(*values), strict=True):
            setattr(self, name, value)
        base, transforms = self._made()
        super().__init__(base, transforms, validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        """The base and the transforms."""
        raise self._without("base")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = Distribution.expand(self, batch_shape, _instance)
        base, transforms = new._made()
        TransformedDistribution.__init__(new, base, transforms, validate_args=False)
        new._validate_args = self._validate_args
        return new


class LogNormal(Named):
    """exp of a Normal.

    >>> pf.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    names = ("loc", "scale")
    loc: Tensor
    scale: Tensor
    arg_constraints = Normal.arg_constraints
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(loc, scale, validate_args=validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Normal(self.loc, self.scale), [ExpTransform()]

    @property
    def mean(self) -> Tensor:
        return F["exp"](self.loc + self.scale**2 / 2)

    @property
    def mode(self) -> Tensor:
        return F["exp"](self.loc - self.scale**2)

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return F["expm1"](square) * F["exp"](2 * self.loc + square)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Folded(Named):
    """The absolute value of a distribution that is even around 0."""

    names = ("scale",)
    scale: Tensor
    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(scale, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return self.scale * 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return F["where"](value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Folded):
    """The absolute value of a Normal around 0.

    >>> pf.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Normal(0.0, self.scale), [AbsTransform()]

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(_Folded):
    """The absolute value of a Cauchy around 0. Its mean is infinite.

    >>> pf.distributions.HalfCauchy(1.0).entropy()
    tensor(1.8379)
    """

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Cauchy(0.0, self.scale), [AbsTransform()]

    @property
    def mean(self) -> Tensor:
        return self.scale * math.inf

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


class Pareto(Named):
    """alpha scale^alpha / x^(alpha + 1), above scale.

    >>> pf.distributions.Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    names = ("scale", "alpha")
    scale: Tensor
    alpha: Tensor
    arg_constraints = dict.fromkeys(names, constraints.positive)

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        super().__init__(scale, alpha, validate_args=validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Exponential(self.alpha), [ExpTransform(), AffineTransform(0.0, self.scale)]

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1.0)  # infinite from there on
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2.0)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Tensor:
        return F["log"](self.scale / self.alpha) + (1 + 1 / self.alpha)


class Weibull(Named):
    """scale times a power of an exponential number; its logarithm of 1 - cdf is -(x / scale)^concentration.

    >>> pf.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    names = ("scale", "concentration")
    scale: Tensor
    concentration: Tensor
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        super().__init__(scale, concentration, validate_args=validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        power = PowerTransform(self.concentration_reciprocal)
        return Exponential(self.scale.new_ones(self.scale.shape)), [power, AffineTransform(0.0, self.scale)]

    @property
    def concentration_reciprocal(self) -> Tensor:
        """1 / concentration."""
        return 1 / self.concentration

    def _gamma(self, n: int) -> Tensor:
        """The moment of order n, for a scale of 1."""
        return F["exp"](lgamma(1 + n * self.concentration_reciprocal))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._gamma(1)

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (self._gamma(2) - self._gamma(1) ** 2)

    def entropy(self) -> Tensor:
        part = self.concentration_reciprocal
        return EULER * (1 - part) + F["log"](self.scale * part) + 1


class Kumaraswamy(Named):
    """a b x^(a-1) (1 - x^a)^(b-1), much as a Beta, with a cdf in closed form.

    >>> pf.distributions.Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    names = ("concentration1", "concentration0")
    concentration1: Tensor
    concentration0: Tensor
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration1, concentration0, validate_args=validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        zeros = self.concentration0.new_zeros(self.concentration0.shape)
        first, last = (PowerTransform(1 / c) for c in (self.concentration0, self.concentration1))
        return Uniform(zeros, zeros + 1), [first, AffineTransform(1.0, -1.0), last]

    def _moment(self, n: int) -> Tensor:
        b, part = self.concentration0, 1 + n / self.concentration1
        return b * F["exp"](lgamma(part) + lgamma(b) - lgamma(part + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = F["log1p"](-b) / b - F["log1p"](-b * a)  # as PyTorch's
        return F["exp"](F["where"]((a < 1) | (b < 1), math.nan, log_mode))

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean**2

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (digamma(b + 1) + EULER) - F["log"](a) - F["log"](b)


class InverseGamma(Named):
    """1 over a Gamma number.

    >>> pf.distributions.InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    names = ("concentration", "rate")
    concentration: Tensor
    rate: Tensor
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration, rate, validate_args=validate_args)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Gamma(self.concentration, self.rate), [PowerTransform(-self.rate.new_ones(()))]

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return F["where"](a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return F["where"](a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + F["log"](self.rate) + lgamma(a) - (1 + a) * digamma(a)


class LogisticNormal(Named):
    """Probabilities made of normal numbers by StickBreakingTransform.

    >>> pf.distributions.LogisticNormal(pf.zeros(3), pf.ones(3)).sample().shape
    (4,)
    """

    names = ("loc", "scale")
    loc: Tensor
    scale: Tensor
    arg_constraints = Normal.arg_constraints
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        loc, scale = (t if t.ndim else t.expand(1) for t in broadcast_all(loc, scale))
        super().__init__(loc, scale, validate_args=validate_args)
        self._ranks = dict.fromkeys(self.names, 1)

    def _made(self) -> tuple[Distribution, Sequence[Transform]]:
        return Normal(self.loc, self.scale), [StickBreakingTransform()]


class LogitRelaxedBernoulli(Binary):
    """The logits of a RelaxedBernoulli.

    >>> pf.distributions.transformed.LogitRelaxedBernoulli(1.0, probs=0.5).log_prob(pf.tensor(0.0))
    tensor(-1.3863)
    """

    has_rsample = True
    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.temperature = as_tensor(temperature, dtype=self._given.dtype)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamped(standard_uniform(self._extended_shape(sample_shape), self._given))
        p = clamped(self.probs)
        return (F["log"](u) - F["log1p"](-u) + F["log"](p) - F["log1p"](-p)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        away = self.logits - value * self.temperature
        return F["log"](self.temperature) + away - 2 * F["softplus"](away)


class ExpRelaxedCategorical(OverCategories):
    """The logarithms of a RelaxedOneHotCategorical.

    >>> pf.distributions.transformed.ExpRelaxedCategorical(1.0, pf.ones(2)).event_shape
    (2,)
    """

    has_rsample = True
    support = constraints.real_vector  # a surface in it, in truth

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.temperature = as_tensor(temperature, dtype=self._categorical._given.dtype)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamped(standard_uniform(self._extended_shape(sample_shape), self._categorical._given))
        return F["log_softmax"]((self.logits - F["log"](-F["log"](u))) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._event_shape[0]
        scale = math.lgamma(k) + (k - 1) * F["log"](self.temperature)
        return F["log_softmax"](self.logits - value * self.temperature, -1).sum(-1) + scale


class _Relaxed(TransformedDistribution):
    """What is a relaxation of a discrete distribution: the smaller the temperature, the closer to it."""

    base_dist: Any

    @property
    def temperature(self) -> Tensor:
        """How far from the discrete distribution."""
        return self.base_dist.temperature  # type: ignore[no-any-return]

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs  # type: ignore[no-any-return]

    @property
    def logits(self) -> Tensor:
        """The logits."""
        return self.base_dist.logits  # type: ignore[no-any-return]


class RelaxedBernoulli(_Relaxed):
    """A Bernoulli whose values lie between 0 and 1, so that gradients flow through them.

    >>> pf.distributions.RelaxedBernoulli(1.0, probs=0.5).log_prob(pf.tensor(0.5))
    tensor(0.)
    """

    arg_constraints = Binary.arg_constraints
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        self._derived = base._derived
        super().__init__(base, SigmoidTransform(), validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """A OneHotCategorical whose values are probabilities, so that gradients flow through them: Gumbel's softmax.

    >>> pf.distributions.RelaxedOneHotCategorical(1.0, pf.ones(2)).log_prob(pf.tensor([0.5, 0.5]))
    tensor(0.)
    """

    arg_constraints = OverCategories.arg_constraints
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits)
        self._derived = base._derived
        super().__init__(base, ExpTransform(), validate_args)
