"""Gamma numbers drawn inside of the graph, with gradients to their concentration: Beta, Dirichlet, Chi2, StudentT and
others are made of them.
"""

from __future__ import annotations

from pyflame.core.dtype import float64
from pyflame.core.limits import finfo
from pyflame.distributions.continuous import standard_normal, standard_uniform
from pyflame.distributions.distribution import F
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import is_grad_enabled, no_grad

# Marsaglia and Tsang's method rejects less than 5% of its proposals. A graph has no loops, so that many are drawn at
# once, and all of them are rejected less often than once in 10^9 draws; then the middle of the distribution is drawn.
_PROPOSALS = 7


def standard_gamma(concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Gamma numbers of rate 1 and the shape given, never exactly 0. Gradients flow to the concentration.

    >>> from pyflame.distributions.gamma_draws import standard_gamma
    >>> standard_gamma(pf.ones(3), (2, 3)).shape
    (2, 3)
    """
    with no_grad():
        drawn = _draw(concentration.detach().expand(shape))
    if not (concentration.requires_grad and is_grad_enabled()):
        return drawn
    slope = _slope(concentration.detach().expand(shape), drawn)
    return drawn + (concentration - concentration.detach()) * slope  # adds 0 and carries the gradient


def _draw(a: Tensor) -> Tensor:
    shape = tuple(a.shape)
    small = a < 1  # drawn for a + 1, then shrunk
    d = F["where"](small, a + 1, a) - 1.0 / 3.0
    c = 1 / F["sqrt"](9.0 * d)
    out = d
    for _ in range(_PROPOSALS):
        x, u = standard_normal(shape, a), standard_uniform(shape, a)
        v = (1 + c * x) ** 3
        log_v = F["log"](F["where"](v > 0, v, 1.0))
        right = (v > 0) & (F["log"](u) < 0.5 * x * x + d * (1 - v + log_v))
        out = F["where"](right, d * v, out)
    shrunk = out * (1 - standard_uniform(shape, a)) ** (1 / a)
    return F["where"](small, shrunk, out).clamp(min=finfo(a.dtype).tiny)


def _slope(a: Tensor, x: Tensor) -> Tensor:
    """dx/da where cdf(a, x) stays: -(d cdf / da) / density. The former by central differences in float64, of the
    smaller tail, which keeps about 9 digits.
    """
    a64, x64 = a.to(float64), x.to(float64)
    step = 1e-5 * a64
    below = F["igamma"](a64 + step, x64) - F["igamma"](a64 - step, x64)
    above = F["igammac"](a64 - step, x64) - F["igammac"](a64 + step, x64)
    change = F["where"](x64 < a64, below, above) / (2 * step)
    log_density = (a64 - 1) * F["log"](x64) - x64 - F["lgamma"](a64)
    return (-change * F["exp"](-log_density)).to(a.dtype)
