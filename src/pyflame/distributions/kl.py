"""kl_divergence: how far one distribution is from another, for pairs that have a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from pyflame.core.errors import NotSupportedError
from pyflame.distributions.composed import Independent, TransformedDistribution
from pyflame.distributions.continuous import Exponential, Laplace, Normal, Uniform
from pyflame.distributions.counts import Poisson
from pyflame.distributions.discrete import Bernoulli, Categorical, OneHotCategorical
from pyflame.distributions.distribution import Distribution, F, sum_rightmost
from pyflame.distributions.gammas import Beta, Dirichlet, Gamma, digamma, lgamma
from pyflame.distributions.matrices import half_log_det, solve_lower, squared_distance
from pyflame.distributions.multivariate import MultivariateNormal
from pyflame.tensor import Tensor

Fn = TypeVar("Fn", bound=Callable[..., Any])
_RULES: dict[tuple[type, type], Callable[..., Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Fn], Fn]:
    """Decorate the formula for a pair of distributions.

    >>> class Mine(pf.distributions.Normal): pass
    >>> @pf.distributions.register_kl(Mine, Mine)
    ... def formula(p, q):
    ...     return p.loc - q.loc
    """

    def decorate(fn: Fn) -> Fn:
        _RULES[type_p, type_q] = fn
        return fn

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expected value of log(p / q) under p.

    >>> N = pf.distributions.Normal
    >>> pf.distributions.kl_divergence(N(0.0, 1.0), N(1.0, 1.0))
    tensor(0.5)
    """
    for left in type(p).__mro__:
        for right in type(q).__mro__:
            if (left, right) in _RULES:
                return _RULES[left, right](p, q)
    raise NotSupportedError(
        f"[kl_divergence] expected a pair with a formula but got {type(p).__name__} and {type(q).__name__}; "
        "estimate it from samples, or add one with register_kl"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - F["log"](ratio))


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupportedError("[kl_divergence] expected two distributions with the same transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    softplus = F["softplus"]
    ones = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return ones + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    parts = p.probs * (p.logits - q.logits)
    parts = F["where"]((q.probs == 0).expand(parts.shape), math.inf, parts)
    return F["where"]((p.probs == 0).expand(parts.shape), 0.0, parts).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return F["where"](inside, F["log"]((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - F["log"](ratio) - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, F["abs"](p.loc - q.loc)
    return -F["log"](ratio) + away / q.scale + ratio * F["exp"](-away / p.scale) - 1


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (F["log"](p.rate) - F["log"](q.rate)) - (p.rate - q.rate)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    out = b * F["log"](p.rate / q.rate) + lgamma(b) - lgamma(a)
    return out + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    out = lgamma(c) + lgamma(d) + lgamma(a + b) - lgamma(c + d) - lgamma(a) - lgamma(b)
    return out + (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1, keepdims=True)
    out = lgamma(total.squeeze(-1)) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return out + ((a - b) * (digamma(a) - digamma(total))).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    trace = (solve_lower(q.scale_tril, p.scale_tril) ** 2).sum((-2, -1))
    distance = squared_distance(q.scale_tril, q.loc - p.loc)
    return half_log_det(q.scale_tril) - half_log_det(p.scale_tril) + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupportedError("[kl_divergence] expected two Independent of equally many axes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
