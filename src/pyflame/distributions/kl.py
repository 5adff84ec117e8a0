"""kl_divergence: formulas for pairs of distributions.

Pairs of distributions of one real number share formulas: KL(p, q) is -entropy(p) - E_p[log q(x)], and log q is made
of x, x², log x and the like, whose expected values p knows. Where p has values that q has not, it is infinite.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from pyflame.core.errors import ArgumentTypeError, NotSupportedError, ShapeError
from pyflame.distributions.composed import Independent, TransformedDistribution
from pyflame.distributions.continuous import EULER, Cauchy, Exponential, Gumbel, Laplace, Normal, Uniform
from pyflame.distributions.counts import Binomial, Geometric, Poisson
from pyflame.distributions.discrete import Bernoulli, Categorical, ContinuousBernoulli, OneHotCategorical
from pyflame.distributions.distribution import Distribution, ExponentialFamily, F, broadcast_all, sum_rightmost
from pyflame.distributions.gammas import Beta, Dirichlet, Gamma, digamma, lgamma
from pyflame.distributions.matrices import half_log_det, solve_lower, squared_distance
from pyflame.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from pyflame.distributions.transformed import Pareto
from pyflame.distributions.wishart import Wishart, mvdigamma
from pyflame.tensor import Tensor
from pyflame.tensor.torch_functions import mvlgamma

Fn = TypeVar("Fn", bound=Callable[..., Any])
Rule = Callable[[Any, Any], Tensor]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Fn], Fn]:
    """Decorate the formula for a pair of distributions, which holds for their subclasses too.

    >>> class Mine(pf.distributions.Normal): pass
    >>> @pf.distributions.register_kl(Mine, Mine)
    ... def formula(p, q):
    ...     return p.loc - q.loc
    """
    for given in (type_p, type_q):
        if not isinstance(given, type):  # a base that is no Distribution itself will do: Pyro has one
            raise ArgumentTypeError(f"[register_kl] expected classes of distributions but got {given!r}")

    def decorate(fn: Fn) -> Fn:
        _RULES[type_p, type_q] = fn
        return fn

    return decorate


def _without_formula(p: Distribution, q: Distribution) -> NotSupportedError:
    return NotSupportedError(
        f"[kl_divergence] expected a pair with a formula but got {type(p).__name__} and {type(q).__name__}; "
        "estimate it from samples, or add one with register_kl"
    )


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expected value of log(p / q) under p.

    >>> N = pf.distributions.Normal
    >>> pf.distributions.kl_divergence(N(0.0, 1.0), N(1.0, 1.0))
    tensor(0.5000)
    """
    lefts, rights = type(p).__mro__, type(q).__mro__
    found = [(a, b) for a in lefts for b in rights if (a, b) in _RULES]
    if not found:
        raise _without_formula(p, q)
    by_right = min(found, key=lambda pair: (rights.index(pair[1]), lefts.index(pair[0])))
    if _RULES[found[0]] is not _RULES[by_right]:
        warnings.warn(
            f"[kl_divergence] {type(p).__name__} and {type(q).__name__} have two formulas; "
            f"register_kl({found[0][0].__name__}, {by_right[1].__name__}) decides",
            RuntimeWarning,
            stacklevel=2,
        )
    return _RULES[found[0]](p, q)


# --- numbers: what is expected under p, and minus the expected log q --------------------------------------------------


def _x_log_x(x: Tensor) -> Tensor:
    return F["xlogy"](x, x)


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """E[log x] of a uniform x."""
    return (_x_log_x(high) - _x_log_x(low)) / (high - low) - 1


_EXPECTED_LOG: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: digamma(p.concentration1) - digamma(p._total),
    Exponential: lambda p: -EULER - F["log"](p.rate),
    Gamma: lambda p: digamma(p.concentration) - F["log"](p.rate),
    Pareto: lambda p: F["log"](p.scale) + 1 / p.alpha,
    Uniform: lambda p: _mean_log(p.low, p.high),
}
_EXPECTED_LOG_OF_REST: dict[type, Callable[[Any], Tensor]] = {  # E[log(1 - x)]
    Uniform: lambda p: _mean_log(1 - p.high, 1 - p.low),
}
_EXPECTED_EXP: dict[type, Callable[[Any, Tensor], Tensor]] = {  # E[exp(-t x)]
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate) ** -p.concentration,
    Gumbel: lambda p, t: F["exp"](lgamma(1 + t * p.scale) - t * p.loc),
    Normal: lambda p, t: F["exp"](0.5 * (t * p.scale) ** 2 - t * p.loc),
    Uniform: lambda p, t: (F["exp"](-t * p.low) - F["exp"](-t * p.high)) / (t * (p.high - p.low)),
}


def _of(table: dict[type, Any], p: Distribution) -> Any:
    return next(table[kind] for kind in type(p).__mro__ if kind in table)


def _cross_beta(p: Any, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    logs = (a - 1) * _of(_EXPECTED_LOG, p)(p) + (b - 1) * _of(_EXPECTED_LOG_OF_REST, p)(p)
    return lgamma(a) + lgamma(b) - lgamma(a + b) - logs  # type: ignore[no-any-return]


def _cross_gamma(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    return lgamma(a) - a * F["log"](rate) - (a - 1) * _of(_EXPECTED_LOG, p)(p) + rate * p.mean  # type: ignore[no-any-return]


def _cross_normal(p: Any, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2)
    return 0.5 * math.log(2 * math.pi) + F["log"](q.scale) + spread  # type: ignore[no-any-return]


def _cross_gumbel(p: Any, q: Gumbel) -> Tensor:
    tail = F["exp"](q.loc / q.scale) * _of(_EXPECTED_EXP, p)(p, 1 / q.scale)
    return F["log"](q.scale) + (p.mean - q.loc) / q.scale + tail  # type: ignore[no-any-return]


def _cross_laplace(p: Normal, q: Laplace) -> Tensor:
    away = p.loc - q.loc
    ratio = away / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * F["exp"](-0.5 * ratio**2) + away * F["erf"](ratio * math.sqrt(0.5))
    return F["log"](2 * q.scale) + distance / q.scale


_CROSS: dict[type, Callable[[Any, Any], Tensor]] = {
    Beta: _cross_beta,
    ContinuousBernoulli: lambda p, q: -(p.mean * q.logits + F["log1p"](-q.probs) + q._log_norm()),
    Exponential: lambda p, q: q.rate * p.mean - F["log"](q.rate),
    Gamma: _cross_gamma,
    Gumbel: _cross_gumbel,
    Laplace: _cross_laplace,
    Normal: _cross_normal,
    Pareto: lambda p, q: (q.alpha + 1) * _of(_EXPECTED_LOG, p)(p) - F["log"](q.alpha) - q.alpha * F["log"](q.scale),
    Uniform: lambda p, q: F["log"](q.high - q.low),
}
_BOUNDS: dict[type, Callable[[Any], tuple[Any, Any]]] = {  # finite ones, of the values
    Beta: lambda d: (0.0, 1.0),
    ContinuousBernoulli: lambda d: (0.0, 1.0),
    Exponential: lambda d: (0.0, math.inf),
    Gamma: lambda d: (0.0, math.inf),
    Pareto: lambda d: (d.scale, math.inf),
    Uniform: lambda d: (d.low, d.high),
}
_BOUNDED = (Beta, ContinuousBernoulli, Uniform)
_ABOVE = (*_BOUNDED, Exponential, Gamma, Pareto)
# p -> q with a formula that may be finite, and q that never have all values of p
_PAIRS: dict[type, tuple[tuple[type, ...], tuple[type, ...]]] = {
    Beta: ((ContinuousBernoulli, Exponential, Gamma, Normal, Uniform), (Pareto,)),
    ContinuousBernoulli: ((ContinuousBernoulli, Exponential, Normal, Uniform), (Pareto,)),
    Exponential: ((Gamma, Gumbel, Normal), (*_BOUNDED, Pareto)),
    Gamma: ((Exponential, Gumbel, Normal), (*_BOUNDED, Pareto)),
    Gumbel: ((Gumbel, Normal), _ABOVE),
    Laplace: ((Normal,), _ABOVE),
    Normal: ((Gumbel, Laplace), _ABOVE),
    Pareto: ((Pareto,), _BOUNDED),  # and others below
    Uniform: ((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto, Uniform), ()),
}


def _heavy_tail(p: Pareto, q: Any) -> Tensor:
    """Infinite where p has not the moment of x that log q takes: without a gradient there, rather than with nan."""
    order = 2.0 if isinstance(q, Normal) else 1.0
    finite = p.alpha > order
    return F["where"](finite, _numbers(Pareto(p.scale, F["where"](finite, p.alpha, order + 1.0)), q), math.inf)


def _numbers(p: Any, q: Any) -> Tensor:
    out: Tensor = _of(_CROSS, q)(p, q) - p.entropy()
    if not isinstance(q, _ABOVE):
        return out
    (low, high), (least, most) = _of(_BOUNDS, p)(p), _of(_BOUNDS, q)(q)
    inside = [(least, low)] if isinstance(least, Tensor) or isinstance(low, Tensor) else []
    inside += [(high, most)] if isinstance(high, Tensor) or isinstance(most, Tensor) else []
    for small, large in inside:
        out = F["where"](small <= large, out, math.inf)
    return out


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    given, other = (next(t for t in vars(d).values() if isinstance(t, Tensor)) for d in (p, q))
    return broadcast_all(given, other)[0] * 0.0 + math.inf


for _p, (_finite, _never) in _PAIRS.items():
    for _q in _finite:
        register_kl(_p, _q)(_numbers)
    for _q in _never:
        register_kl(_p, _q)(_infinite)
for _q in (Exponential, Gamma, Normal):
    register_kl(Pareto, _q)(_heavy_tail)
for _q in (Bernoulli, Binomial):
    register_kl(Poisson, _q)(_infinite)


# --- pairs with formulas of their own ---------------------------------------------------------------------------------


# Those of one family cancel less than the general formula: that of equal ones is 0.


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - F["log"](ratio))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - F["log"](ratio) - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    out = b * F["log"](p.rate / q.rate) + lgamma(b) - lgamma(a)
    return out + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    out = (lgamma(c) - lgamma(a)) + (lgamma(d) - lgamma(b)) + (lgamma(a + b) - lgamma(c + d))
    return out + (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, F["abs"](p.loc - q.loc)
    return -F["log"](ratio) + away / q.scale + ratio * F["exp"](-away / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    spread = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return F["log"](spread) - F["log"](4 * p.scale * q.scale)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    softplus, where = F["softplus"], F["where"]
    ones = where(q.probs == 0, math.inf, p.probs * (softplus(-q.logits) - softplus(-p.logits)))
    zeros = where(q.probs == 1, math.inf, (1 - p.probs) * (softplus(q.logits) - softplus(p.logits)))
    return where(p.probs == 0, 0.0, ones) + where(p.probs == 1, 0.0, zeros)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * F["log"](q.rate) - q.rate)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    """Evaluates the counts: fewer trials under p have no closed form."""
    if bool((p.total_count < q.total_count).any()):
        raise NotSupportedError("[kl_divergence] expected a Binomial q of at most as many trials as p has")
    each = p.probs * (p.logits - q.logits) + F["log1p"](-p.probs) - F["log1p"](-q.probs)
    return F["where"](p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - F["log1p"](-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (F["log"](p.rate) - F["log"](q.rate)) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    parts = p.probs * (p.logits - q.logits)
    parts = F["where"]((q.probs == 0).expand(parts.shape), math.inf, parts)
    return F["where"]((p.probs == 0).expand(parts.shape), 0.0, parts).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1, keepdims=True)
    out = lgamma(total.squeeze(-1)) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return out + ((a - b) * (digamma(a) - digamma(total))).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    _check_events(p, q)
    trace = (solve_lower(q.scale_tril, p.scale_tril) ** 2).sum((-2, -1))
    distance = squared_distance(q.scale_tril, q.loc - p.loc)
    return half_log_det(q.scale_tril) - half_log_det(p.scale_tril) + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Tensor:
    _check_events(p, q)
    size, other = (
        d._log_det() if isinstance(d, LowRankMultivariateNormal) else 2 * half_log_det(d.scale_tril) for d in (q, p)
    )
    away, precision = (q.loc - p.loc).unsqueeze(-1), q.precision_matrix
    trace = (precision * (p.covariance_matrix + away * away.mT)).sum((-2, -1))
    out: Tensor = 0.5 * (size - other + trace - p.event_shape[0])
    return out


def _check_events(p: Distribution, q: Distribution) -> None:
    if p.event_shape != q.event_shape:
        raise ShapeError(f"[kl_divergence] expected values of one shape but got {p.event_shape} and {q.event_shape}")


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    _check_events(p, q)
    d = p._dim
    trace = (solve_lower(q.scale_tril, p.scale_tril) ** 2).sum((-2, -1))
    out = q.df * (half_log_det(q.scale_tril) - half_log_det(p.scale_tril)) + 0.5 * p.df * (trace - d)
    return out + mvlgamma(q.df / 2, d) - mvlgamma(p.df / 2, d) + 0.5 * (p.df - q.df) * mvdigamma(p.df / 2, d)


@register_kl(ExponentialFamily, ExponentialFamily)
def _families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """Bregman's divergence of the normalizer, within one family."""
    if type(p) is not type(q):
        raise _without_formula(p, q)
    normalizer, given, slopes = p._expanded_normalizer()
    others = q._natural_params
    out = q._log_normalizer(*others) - normalizer
    for mine, other, slope in zip(given, others, slopes, strict=True):
        out = out - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return out


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupportedError("[kl_divergence] expected two distributions with the same transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupportedError("[kl_divergence] expected two Independent of equally many axes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
