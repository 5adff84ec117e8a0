"""Gamma and what is made of it: Beta, Dirichlet, Chi2, FisherSnedecor, StudentT."""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.limits import finfo
from pyflame.distributions import constraints
from pyflame.distributions.continuous import standard_normal
from pyflame.distributions.distribution import ExponentialFamily, F, Parametrized, broadcast_all, check_last
from pyflame.distributions.gamma_draws import standard_gamma
from pyflame.tensor import Tensor

lgamma, digamma = F["lgamma"], F["digamma"]


class Gamma(Parametrized, ExponentialFamily):
    """rate^a x^(a-1) exp(-rate x) / Γ(a), with a the concentration.

    >>> pf.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5000)
    """

    names = ("concentration", "rate")
    concentration: Tensor
    rate: Tensor
    has_rsample = True
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration, rate, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = standard_gamma(self.concentration, self._extended_shape(sample_shape))
        return (drawn / self.rate).clamp(min=finfo(drawn.dtype).tiny)

    def cdf(self, value: Tensor) -> Tensor:
        return F["igamma"](self.concentration, self.rate * value)

    def log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return F["xlogy"](a, rate) + F["xlogy"](a - 1, value) - rate * value - lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - F["log"](self.rate) + lgamma(a) + (1.0 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of df squared normal numbers.

    >>> pf.distributions.Chi2(3.0).mean
    tensor(3.)
    """

    arg_constraints = {"df": constraints.positive}  # noqa: RUF012

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(df * 0.5, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class Beta(Parametrized, ExponentialFamily):
    """x^(a-1) (1-x)^(b-1) / B(a, b).

    >>> pf.distributions.Beta(2.0, 3.0).mean
    tensor(0.4000)
    """

    names = ("concentration1", "concentration0")
    concentration1: Tensor
    concentration0: Tensor
    has_rsample = True
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        super().__init__(concentration1, concentration0, validate_args=validate_args)

    @property
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        return Dirichlet(F["stack"]([self.concentration1, self.concentration0], -1)).mode[..., 0]

    @property
    def variance(self) -> Tensor:
        return self.concentration1 * self.concentration0 / (self._total**2 * (self._total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x, y = (standard_gamma(c, shape) for c in (self.concentration1, self.concentration0))
        return x / (x + y)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = F["xlogy"](a - 1, value) + F["xlogy"](b - 1, 1 - value)
        return inside + lgamma(a + b) - lgamma(a) - lgamma(b)

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        return (
            lgamma(a)
            + lgamma(b)
            - lgamma(total)
            - (a - 1) * digamma(a)
            - (b - 1) * digamma(b)
            + (total - 2) * digamma(total)
        )


class Dirichlet(ExponentialFamily):
    """Probabilities of n categories; the density is a product of powers of them.

    >>> pf.distributions.Dirichlet(pf.tensor([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}  # noqa: RUF012
    support = constraints.simplex
    has_rsample = True
    _ranks = {"concentration": 1}  # noqa: RUF012

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        check_last("Dirichlet", concentration)
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def _total(self) -> Tensor:
        return self.concentration.sum(-1, keepdims=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._total

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        first = F["one_hot"](self.concentration.argmax(-1) * 0, self._event_shape[0]).to(above.dtype)
        # below 1 all corners are infinitely likely: PyTorch names the first
        flat = (self.concentration < 1).all(-1, keepdims=True)
        return F["where"](flat, first, above / above.sum(-1, keepdims=True))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = standard_gamma(self.concentration, self._extended_shape(sample_shape))
        return drawn / drawn.sum(-1, keepdims=True)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return F["xlogy"](a - 1.0, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self._event_shape[0]
        total = a.sum(-1)
        own = lgamma(a).sum(-1) - lgamma(total)
        return own - (k - total) * digamma(total) - ((a - 1.0) * digamma(a)).sum(-1)


class StudentT(Parametrized):
    """A normal number over the root of a Chi2 over its degrees of freedom, scaled and moved.

    >>> pf.distributions.StudentT(4.0).variance
    tensor(2.)
    """

    names = ("df", "loc", "scale")
    df: Tensor
    loc: Tensor
    scale: Tensor
    has_rsample = True
    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        super().__init__(df, loc, scale, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return F["where"](self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        heavy = F["where"](self.df > 1, math.inf, math.nan)
        return F["where"](self.df > 2, finite, heavy)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        squares = 2.0 * standard_gamma(self.df * 0.5, shape)
        return self.loc + self.scale * standard_normal(shape, self.loc) / F["sqrt"](squares / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        df, y = self.df, (value - self.loc) / self.scale
        z = F["log"](self.scale) + 0.5 * F["log"](df) + 0.5 * math.log(math.pi) + lgamma(0.5 * df)
        return -0.5 * (df + 1.0) * F["log1p"](y**2 / df) - (z - lgamma(0.5 * (df + 1.0)))

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = lgamma(0.5 * df) + math.log(math.pi) * 0.5 - lgamma(0.5 * (df + 1))
        spread = 0.5 * (df + 1) * (digamma(0.5 * (df + 1)) - digamma(0.5 * df))
        return F["log"](self.scale) + spread + 0.5 * F["log"](df) + log_beta


class FisherSnedecor(Parametrized):
    """The ratio of two Chi2 numbers over their degrees of freedom.

    >>> pf.distributions.FisherSnedecor(2.0, 4.0).mean
    tensor(2.)
    """

    names = ("df1", "df2")
    df1: Tensor
    df2: Tensor
    has_rsample = True
    arg_constraints = dict.fromkeys(names, constraints.positive)
    support = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        super().__init__(df1, df2, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return F["where"](self.df2 <= 2, math.nan, self.df2 / (self.df2 - 2))

    @property
    def mode(self) -> Tensor:
        return F["where"](self.df1 <= 2, math.nan, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2))

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        return F["where"](b <= 4, math.nan, 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        top, below = (Gamma(df * 0.5, df).rsample(sample_shape) for df in (self.df1, self.df2))
        return (top / below).clamp(min=finfo(top.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        norm = lgamma(a + b) - lgamma(a) - lgamma(b) + a * F["log"](ratio)
        return norm + (a - 1) * F["log"](value) - (a + b) * F["log1p"](ratio * value)


def _sample_dirichlet(x: Tensor, generator: Any = None) -> Tensor:
    """A sample of Dirichlet distributions with these concentrations: torch._sample_dirichlet."""
    return Dirichlet(x).rsample()


def _standard_gamma(x: Tensor, generator: Any = None) -> Tensor:
    """A sample of Gamma distributions with these concentrations and a rate of 1: torch._standard_gamma."""
    return Gamma(x, F["mul"](x.detach(), 0) + 1).rsample()
