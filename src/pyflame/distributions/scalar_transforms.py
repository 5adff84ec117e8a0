"""Transforms of each number of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyflame.core.limits import finfo
from pyflame.core.shape import Size
from pyflame.distributions import constraints
from pyflame.distributions.constraints import Constraint
from pyflame.distributions.distribution import Distribution, F, broadcast_all, sum_rightmost
from pyflame.distributions.transform_base import Transform
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor


class _Elementwise(Transform):
    """A rising function of each number that has no parameters."""

    domain = constraints.real
    bijective = True
    sign = 1
    _compared = ()


class ExpTransform(_Elementwise):
    """y = exp(x).

    >>> pf.distributions.ExpTransform()(pf.tensor(0.0))
    tensor(1.)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F["exp"](x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F["log"](y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def inside(y: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1."""
    return y.clamp(finfo(y.dtype).tiny, 1.0 - finfo(y.dtype).eps)


def _clipped_sigmoid(x: Tensor) -> Tensor:
    return inside(F["sigmoid"](x))


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x)), never exactly 0 or 1.

    >>> pf.distributions.SigmoidTransform()(pf.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F["log"](inside(y)) - F["log1p"](-inside(y))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F["softplus"](-x) - F["softplus"](x)


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x)).

    >>> pf.distributions.SoftplusTransform()(pf.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F["softplus"](x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F["log"](-F["expm1"](-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F["softplus"](-x)


class TanhTransform(_Elementwise):
    """y = tanh(x).

    >>> pf.distributions.TanhTransform()(pf.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return F["tanh"](x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F["atanh"](y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh²), without cancellation
        return 2.0 * (math.log(2.0) - x - F["softplus"](-2.0 * x))


class AbsTransform(Transform):
    """y = |x|; its inverse is y.

    >>> pf.distributions.AbsTransform()(pf.tensor(-2.0))
    tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        return F["abs"](x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class _Broadcast(Transform):
    """A transform whose parameters broadcast with its argument."""

    bijective = True

    def forward_shape(self, shape: Any) -> Size:
        own = [getattr(getattr(self, name), "shape", ()) for name in self._compared or ()]
        return Size(np.broadcast_shapes(tuple(shape), *own))

    inverse_shape = forward_shape


class PowerTransform(_Broadcast):
    """y = x^exponent.

    >>> pf.distributions.PowerTransform(2.0)(pf.tensor(3.0))
    tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    _compared = ("exponent",)

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> Any:
        return F["sign"](self.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return F["log"](F["abs"](self.exponent * y / x))


class AffineTransform(_Broadcast):
    """y = loc + scale * x.

    >>> pf.distributions.AffineTransform(1.0, 2.0)(pf.tensor(3.0))
    tensor(7.)
    """

    _compared = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return F["sign"](self.scale)
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        stretch = F["log"](F["abs"](as_tensor(self.scale, dtype=x.dtype))).expand(x.shape)
        return sum_rightmost(stretch, self._event_dim)


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x), as copulas are made.

    >>> d = pf.distributions
    >>> d.CumulativeDistributionTransform(d.Normal(0.0, 1.0))(pf.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
