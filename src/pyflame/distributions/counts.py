"""Distributions of counts: Binomial, Geometric, Multinomial, NegativeBinomial, Poisson. All but Geometric are drawn on
the host.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, DTypeError, NotSupportedError
from pyflame.core.generator import Generator
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.continuous import standard_uniform
from pyflame.distributions.discrete import Binary, Counted, OverCategories
from pyflame.distributions.distribution import ExponentialFamily, F, Parametrized, broadcast_all, host_draw
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange
from pyflame.tensor.gradients import no_grad

lgamma = F["lgamma"]


class Poisson(Parametrized, ExponentialFamily):
    """rate^k exp(-rate) / k!.

    >>> pf.distributions.Poisson(2.0).log_prob(pf.tensor(0.0))
    tensor(-2.)
    """

    names = ("rate",)
    rate: Tensor
    arg_constraints = {"rate": constraints.nonnegative}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(rate, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return F["floor"](self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        rate, shape = self.rate.detach().numpy().astype("float64"), self._extended_shape(sample_shape)
        return host_draw("Poisson", lambda rng: rng.poisson(rate, shape), self.rate)

    def log_prob(self, value: Tensor) -> Tensor:
        return F["xlogy"](value, self.rate) - self.rate - lgamma(value + 1)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """A count for each rate, in its dtype: drawn on the host, so not inside of pf.jit. Its gradient is 0.

    >>> pf.poisson(pf.zeros(2))
    tensor([0., 0.])
    """
    if not input.dtype.is_float:
        raise DTypeError(f"[poisson] expected rates in floating point but got {input.dtype.name}")
    rate = input.detach().numpy().astype("float64")
    if not ((rate >= 0) & (rate < np.inf)).all():
        raise ArgumentError(f"[poisson] expected finite rates of at least 0 but got {rate.tolist()}")
    drawn = host_draw("poisson", lambda rng: rng.poisson(rate), input, generator).to(input.device)
    return drawn + input * 0.0 if input.requires_grad else drawn


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """The successes among `count` attempts of probability `prob` each: drawn on the host, so not inside of pf.jit.

    >>> pf.binomial(pf.tensor([3.0, 4.0]), pf.tensor([0.0, 1.0]))
    tensor([0., 4.])
    """
    if not count.dtype.is_float or count.dtype is not prob.dtype:
        raise DTypeError(
            f"[binomial] expected counts and probabilities in one floating-point dtype but got {count.dtype.name} and "
            f"{prob.dtype.name}"
        )
    n, p = count.detach().numpy().astype("int64"), prob.detach().numpy().astype("float64")
    if not ((n >= 0).all() and ((p >= 0) & (p <= 1)).all()):
        raise ArgumentError("[binomial] expected counts of at least 0 and probabilities in [0, 1] but got others")
    return host_draw("binomial", lambda rng: rng.binomial(n, p), count, generator).to(count.device)


class Geometric(Binary):
    """Failures before the first success of probability `probs`.

    >>> pf.distributions.Geometric(0.25).mean
    tensor(3.)
    """

    support = constraints.nonnegative_integer

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        if not bool((self.probs > 0).all()):
            raise ArgumentError(f"[Geometric] expected probs above 0 but got {self.probs!r}")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return self.probs * 0.0

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            u = standard_uniform(self._extended_shape(sample_shape), self._given)
            return F["floor"](F["log1p"](-u) / F["log1p"](-self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        probs = F["where"]((self.probs == 1) & (value == 0), 0.0, self.probs)
        return value * F["log1p"](-probs) + F["log"](self.probs)

    def entropy(self) -> Tensor:
        return F["binary_cross_entropy_with_logits"](self.logits, self.probs, reduction="none") / self.probs


class Binomial(Counted):
    """Successes among `total_count` trials of probability `probs`.

    >>> pf.distributions.Binomial(10, 0.3).mean
    tensor(3.)
    """

    arg_constraints = {"total_count": constraints.nonnegative_integer, **Binary.arg_constraints}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return F["minimum"](F["floor"]((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        count, probs = (t.detach().numpy().astype("float64") for t in (self.total_count, self.probs))
        shape = self._extended_shape(sample_shape)
        return host_draw("Binomial", lambda rng: rng.binomial(count.astype(np.int64), probs, shape), self._given)

    def log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        choose = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return choose + value * logits - n * F["softplus"](logits)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 to the one total_count, which is evaluated."""
        counts = self.total_count.detach().numpy()
        if not (counts == counts.flat[0]).all():
            raise NotSupportedError("[Binomial] expected equal total_counts to enumerate but got different ones")
        values = arange(int(counts.flat[0]) + 1, dtype=self._given.dtype).reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def entropy(self) -> Tensor:
        log_probs = self.log_prob(self.enumerate_support(False))
        return -(F["exp"](log_probs) * log_probs).sum(0)


class NegativeBinomial(Counted):
    """Successes of probability `probs` before `total_count` failures.

    >>> pf.distributions.NegativeBinomial(3, 0.5).mean
    tensor(3.)
    """

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.total_count * F["exp"](self.logits)

    @property
    def mode(self) -> Tensor:
        return F["floor"]((self.total_count - 1) * F["exp"](self.logits)).clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / F["sigmoid"](-self.logits)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        count, logits = (t.detach().numpy().astype("float64") for t in (self.total_count, self.logits))
        shape = self._extended_shape(sample_shape)

        def draw(rng: np.random.Generator) -> Any:
            return rng.poisson(rng.standard_gamma(count, shape) * np.exp(logits))

        return host_draw("NegativeBinomial", draw, self._given)

    def log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        powers = n * F["logsigmoid"](-logits) + value * F["logsigmoid"](logits)
        choose = lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        return powers + F["where"](n + value == 0, 0.0, choose)


class Multinomial(OverCategories):
    """How often each of n categories comes in `total_count` draws.

    >>> pf.distributions.Multinomial(4, pf.tensor([1.0, 3.0])).mean.tolist()
    [1.0, 3.0]
    """

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise ArgumentError(f"[Multinomial] expected one whole number as total_count but got {total_count!r}")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        probs, shape = self.probs.detach().numpy().astype("float64"), self._extended_shape(sample_shape)
        even = probs / probs.sum(-1, keepdims=True)
        return host_draw("Multinomial", lambda rng: rng.multinomial(self.total_count, even, shape[:-1]), self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        powers = F["where"]((value == 0) & (logits == float("-inf")), 0.0, logits * value).sum(-1)
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + powers

    def entropy(self) -> Tensor:
        n = self.total_count
        each = Binomial(n, self.probs)
        counts = each.enumerate_support(False)[1:]  # those of 0 and 1 add log(0!) and log(1!), which are 0
        ways = (F["exp"](each.log_prob(counts)) * lgamma(counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + ways
