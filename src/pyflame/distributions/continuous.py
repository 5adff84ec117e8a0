"""Distributions of one real number with a density in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.distribution import ExponentialFamily, F, Parametrized, host_draw
from pyflame.tensor import Tensor
from pyflame.tensor.random import rand, randn

EULER = 0.5772156649015329


def standard_normal(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Normal numbers in the dtype and on the device of a parameter."""
    return randn(shape, dtype=like.dtype, device=like._node.meta.device if like._node.meta.committed else None)


def standard_uniform(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) in the dtype and on the device of a parameter."""
    return rand(shape, dtype=like.dtype, device=like._node.meta.device if like._node.meta.committed else None)


class LocationScale(Parametrized):
    """A density that is moved by `loc`, where its peak is, and stretched by `scale`."""

    names = ("loc", "scale")
    loc: Tensor
    scale: Tensor
    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(loc, scale, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(LocationScale, ExponentialFamily):
    """exp(-(x - loc)² / (2 scale²)) / (scale sqrt(2π)).

    >>> pf.distributions.Normal(0.0, 1.0).log_prob(pf.tensor(0.0))
    tensor(-0.9189)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + standard_normal(self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -((value - self.loc) ** 2) / (2 * self.variance) - F["log"](self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + F["erf"]((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * F["erfinv"](2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + F["log"](self.scale)


class Uniform(Parametrized):
    """The same density from low to high.

    >>> pf.distributions.Uniform(0.0, 2.0).entropy()
    tensor(0.6931)
    """

    names = ("low", "high")
    low: Tensor
    high: Tensor
    has_rsample = True
    arg_constraints = dict.fromkeys(names, constraints.dependent(is_discrete=False, event_dim=0))

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        super().__init__(low, high, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ArgumentError(f"[Uniform] expected low < high but got {self.low!r} and {self.high!r}")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.low + standard_uniform(self._extended_shape(sample_shape), self.low) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return F["log"](inside.to(self.low.dtype)) - F["log"](self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return F["log"](self.high - self.low)


class Exponential(Parametrized, ExponentialFamily):
    """rate * exp(-rate * x).

    >>> pf.distributions.Exponential(2.0).mean
    tensor(0.5000)
    """

    names = ("rate",)
    rate: Tensor
    has_rsample = True
    arg_constraints = {"rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(rate, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate * 0.0

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = standard_uniform(self._extended_shape(sample_shape), self.rate)
        return -F["log1p"](-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return F["log"](self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - F["exp"](-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -F["log1p"](-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - F["log"](self.rate)


class Laplace(LocationScale):
    """exp(-|x - loc| / scale) / (2 scale).

    >>> pf.distributions.Laplace(0.0, 1.0).variance
    tensor(2.)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = standard_uniform(self._extended_shape(sample_shape), self.loc) - 0.5
        return self.loc - self.scale * F["sign"](u) * F["log1p"](-2 * F["abs"](u).clamp(max=0.4999999))

    def log_prob(self, value: Tensor) -> Tensor:
        return -F["log"](2 * self.scale) - F["abs"](value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        away = value - self.loc
        return 0.5 - 0.5 * F["sign"](away) * F["expm1"](-F["abs"](away) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * F["sign"](term) * F["log1p"](-2 * F["abs"](term))

    def entropy(self) -> Tensor:
        return 1 + F["log"](2 * self.scale)


class Cauchy(LocationScale):
    """1 / (π scale (1 + ((x - loc) / scale)²)). It has no mean.

    >>> pf.distributions.Cauchy(0.0, 1.0).entropy()
    tensor(2.5310)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def variance(self) -> Tensor:
        return self.loc * 0.0 + math.inf

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - F["log"](self.scale) - F["log1p"](((value - self.loc) / self.scale) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        return F["atan"]((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return F["tan"](math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + F["log"](self.scale)


class Gumbel(LocationScale):
    """-log of an exponential number, scaled and moved.

    >>> pf.distributions.Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        return (math.pi / math.sqrt(6)) ** 2 * self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc).clamp(min=1e-38))

    def log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return y - F["exp"](y) - F["log"](self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return F["exp"](-F["exp"]((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * F["log"](-F["log"](value))

    def entropy(self) -> Tensor:
        return F["log"](self.scale) + (1 + EULER)


class GeneralizedPareto(Parametrized):
    """What lies above a threshold: 1 - cdf is (1 + concentration z)^(-1 / concentration), z = (x - loc) / scale.

    >>> pf.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    names = ("loc", "scale", "concentration")
    loc: Tensor
    scale: Tensor
    concentration: Tensor
    has_rsample = True
    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        super().__init__(loc, scale, concentration, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, F["where"](self.concentration < 0, end, math.inf))

    @property
    def _flat(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is 0, the limit of which is an exponential, and one that can be divided by."""
        zero = F["abs"](self.concentration) <= 1e-8
        return zero, F["where"](zero, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return F["where"](c < 1, self.loc + self.scale / (1 - F["where"](c < 1, c, 0.5)), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = F["where"](self.concentration < 0.5, self.concentration, 0.25)
        return F["where"](self.concentration < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        z, (zero, c) = (value - self.loc) / self.scale, self._flat
        power = 1 / c + 1 + 0 * z
        # a power of 0, the uniform distribution, has no logarithm to multiply at its end
        bent = F["where"](power == 0, power, power * F["log1p"](c * z))
        return -F["log"](self.scale) - F["where"](zero, z, bent)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf)."""
        z, (zero, c) = (value - self.loc) / self.scale, self._flat
        return F["where"](zero, -z, -F["log1p"](c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(cdf)."""
        return F["log1p"](-F["exp"](self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return F["exp"](self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        (zero, c), log = self._flat, F["log1p"](-value)
        return F["where"](zero, self.loc - self.scale * log, self.loc + self.scale / c * F["expm1"](-c * log))

    def entropy(self) -> Tensor:
        return F["log"](self.scale) + self.concentration + 1


class VonMises(Parametrized):
    """exp(concentration cos(x - loc)) / (2π I0(concentration)), over angles. Drawn on the host; mean and variance are
    those on the circle.

    >>> pf.distributions.VonMises(1.0, 4.0).mean
    tensor(1.)
    """

    names = ("loc", "concentration")
    loc: Tensor
    concentration: Tensor
    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        super().__init__(loc, concentration, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - F["i1e"](self.concentration) / F["i0e"](self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        loc, kappa = (t.detach().numpy().astype("float64") for t in (self.loc, self.concentration))
        shape = self._extended_shape(sample_shape)

        def draw(rng: np.random.Generator) -> Any:
            return np.mod(rng.vonmises(0.0, kappa, shape) + loc + math.pi, 2 * math.pi) - math.pi

        return host_draw("VonMises", draw, self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        return k * (F["cos"](value - self.loc) - 1) - math.log(2 * math.pi) - F["log"](F["i0e"](k))
