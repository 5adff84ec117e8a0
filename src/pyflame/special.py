"""torch.special by its path: ops of the catalogue under their names there, and a few made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyflame.core.dtype import float64
from pyflame.tensor import Tensor
from pyflame.tensor.arguments import publish as _publish
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.torch_functions import mvlgamma

F: dict[str, Callable[..., Tensor]] = FUNCTIONS

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2",
    "expit", "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e",
    "i1", "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

digamma, erf, erfc, erfinv, exp2, expm1 = (F[n] for n in ("digamma", "erf", "erfc", "erfinv", "exp2", "expm1"))
log1p, log_softmax, logit, logsumexp = (F[n] for n in ("log1p", "log_softmax", "logit", "logsumexp"))
zeta = F["zeta"]
polygamma, round, sinc, softmax, xlogy = (F[n] for n in ("polygamma", "round", "sinc", "softmax", "xlogy"))
i0, i0e, i1, i1e = (F[n] for n in ("i0", "i0e", "i1", "i1e"))
expit, gammaln, psi = F["sigmoid"], F["lgamma"], F["digamma"]
gammainc, gammaincc = F["igamma"], F["igammac"]
modified_bessel_i0, modified_bessel_i1 = F["i0"], F["i1"]
airy_ai, erfcx = F["airy_ai"], F["erfcx"]
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = (F[f"bessel_{n}"] for n in ("j0", "j1", "y0", "y1"))
modified_bessel_k0, modified_bessel_k1 = F["modified_bessel_k0"], F["modified_bessel_k1"]
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = F["scaled_modified_bessel_k0"], F["scaled_modified_bessel_k1"]
(
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
) = (F[f"chebyshev_polynomial_{kind}"] for kind in "tuvw")
(
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
) = (F[f"shifted_chebyshev_polynomial_{kind}"] for kind in "tuvw")
hermite_polynomial_h, hermite_polynomial_he = F["hermite_polynomial_h"], F["hermite_polynomial_he"]
laguerre_polynomial_l, legendre_polynomial_p = F["laguerre_polynomial_l"], F["legendre_polynomial_p"]
multigammaln = mvlgamma


def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), and 0 where input is 0.

    >>> pf.special.xlog1py(pf.tensor([0.0, 1.0]), pf.tensor([-1.0, 0.0]))
    tensor([0., 0.])
    """
    return F["where"](F["isnan"](F["mul"](other, 1.0)), math.nan, F["where"](input == 0, 0.0, input * _log1p(other)))


def _log1p(x: Any) -> Any:
    return F["log1p"](x) if isinstance(x, Tensor) else math.log1p(x)


def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0 and -inf below.

    >>> pf.special.entr(pf.tensor([0.0, 1.0, -1.0]))
    tensor([-0., -0., -inf])
    """
    return F["where"](input < 0, -math.inf, -F["xlogy"](input, input))


def ndtr(input: Tensor) -> Tensor:
    """The part of a standard normal distribution below x.

    >>> pf.special.ndtr(pf.tensor([0.0]))
    tensor([0.5000])
    """
    return F["erfc"](input * -math.sqrt(0.5)) * 0.5


def ndtri(input: Tensor) -> Tensor:
    """Where `ndtr` is x."""
    return F["erfinv"](input * 2.0 - 1.0) * math.sqrt(2.0)


def log_ndtr(input: Tensor) -> Tensor:
    """log(ndtr(x)), by its asymptotic series where that would be log(0).

    >>> pf.special.log_ndtr(pf.tensor([-40.0]))
    tensor([-804.6085])
    """
    edge = -25.0 if input.dtype is float64 else -10.0  # beyond it the series is exact to the last bit or two
    x = F["clamp"](input, max=edge)
    s = 1.0 / (x * x)
    # ndtr(x) = exp(-x^2 / 2) / (-x sqrt(2 pi)) (1 - 1/x^2 + 3/x^4 - 15/x^6 + 105/x^8 - 945/x^10)
    series = 1.0 - s * (1.0 - s * (3.0 - s * (15.0 - s * (105.0 - s * 945.0))))
    tail = -0.5 * x * x - F["log"](-x) - 0.5 * math.log(2.0 * math.pi) + F["log"](series)
    low = F["log"](ndtr(F["clamp"](input, edge, 0.0)))
    high = F["log1p"](-ndtr(-F["clamp"](input, 0.0)))
    return F["where"](input < edge, tail, F["where"](input < 0, low, high))


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, and 1 at 0.

    >>> pf.special.spherical_bessel_j0(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8415])
    """
    return F["sinc"](input * (1.0 / math.pi))


_publish(__all__, globals(), __name__, "special_")
