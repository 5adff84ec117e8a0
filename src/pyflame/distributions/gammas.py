"""Gamma and what is made of it: Beta, Dirichlet, Chi2, StudentT.

Gamma numbers are drawn on the host, by NumPy, and no gradient flows through them: `rsample` is not there, nor can
`sample` stand inside of pf.jit.
"""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.limits import finfo
from pyflame.distributions import constraints
from pyflame.distributions.distribution import (
    Distribution,
    F,
    Parametrized,
    broadcast_all,
    check_last,
    host_draw,
)
from pyflame.tensor import Tensor

lgamma, digamma = F["lgamma"], F["digamma"]


def gamma_draw(op: str, concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Gamma numbers of rate 1, never exactly 0."""
    shapes = concentration.detach().numpy().astype("float64")
    drawn = host_draw(op, lambda rng: rng.standard_gamma(shapes, shape), concentration)
    return drawn.clamp(min=finfo(concentration.dtype).tiny)


class Gamma(Parametrized):
    """rate^a x^(a-1) exp(-rate x) / Γ(a), with a the concentration.

    >>> pf.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5)
    """

    names = ("concentration", "rate")
    concentration: Tensor
    rate: Tensor
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

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = gamma_draw("Gamma", self.concentration, self._extended_shape(sample_shape))
        return (drawn / self.rate).detach()

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


class Beta(Parametrized):
    """x^(a-1) (1-x)^(b-1) / B(a, b).

    >>> pf.distributions.Beta(2.0, 3.0).mean
    tensor(0.4)
    """

    names = ("concentration1", "concentration0")
    concentration1: Tensor
    concentration0: Tensor
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
        return (self.concentration1 - 1) / (self._total - 2)

    @property
    def variance(self) -> Tensor:
        return self.concentration1 * self.concentration0 / (self._total**2 * (self._total + 1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x, y = (gamma_draw("Beta", c, shape) for c in (self.concentration1, self.concentration0))
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


class Dirichlet(Distribution):
    """Probabilities of n categories; the density is a product of powers of them.

    >>> pf.distributions.Dirichlet(pf.tensor([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}  # noqa: RUF012
    support = constraints.simplex
    _parameters = {"concentration": 1}  # noqa: RUF012

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

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = gamma_draw("Dirichlet", self.concentration, self._extended_shape(sample_shape))
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

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        squares = 2.0 * gamma_draw("StudentT", self.df * 0.5, shape)
        normal = squares.new_empty(shape).normal_()
        return (self.loc + self.scale * normal / F["sqrt"](squares / self.df)).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        df, y = self.df, (value - self.loc) / self.scale
        z = F["log"](self.scale) + 0.5 * F["log"](df) + 0.5 * math.log(math.pi) + lgamma(0.5 * df)
        return -0.5 * (df + 1.0) * F["log1p"](y**2 / df) - (z - lgamma(0.5 * (df + 1.0)))

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = lgamma(0.5 * df) + math.log(math.pi) * 0.5 - lgamma(0.5 * (df + 1))
        spread = 0.5 * (df + 1) * (digamma(0.5 * (df + 1)) - digamma(0.5 * df))
        return F["log"](self.scale) + spread + 0.5 * F["log"](df) + log_beta
