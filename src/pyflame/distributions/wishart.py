"""Distributions of matrices: Wishart's covariances and the Cholesky factors of correlations."""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.limits import finfo
from pyflame.distributions import constraints
from pyflame.distributions.continuous import standard_normal
from pyflame.distributions.distribution import Distribution, ExponentialFamily, F, broadcast_all
from pyflame.distributions.gamma_draws import standard_gamma
from pyflame.distributions.gammas import Beta, digamma, lgamma
from pyflame.distributions.matrices import cholesky, half_log_det, solve_lower
from pyflame.distributions.multivariate import ByCovariance
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, as_tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.torch_functions import mvlgamma


def mvdigamma(x: Tensor, p: int) -> Tensor:
    """The derivative of mvlgamma."""
    return digamma(x.unsqueeze(-1) - arange(p, dtype=x.dtype, device=x.device) / 2).sum(-1)


class Wishart(ByCovariance, ExponentialFamily):
    """The sum of df outer products of normal vectors with a covariance, given as itself, as its inverse or as its lower
    Cholesky factor.

    >>> pf.distributions.Wishart(3.0, pf.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    df: Tensor
    has_rsample = True
    support = constraints.positive_definite
    _ranks = {"df": 0, "scale_tril": 2}  # noqa: RUF012

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        lower = self._lower_of(covariance_matrix, precision_matrix, scale_tril)
        if lower.ndim < 2 or lower.shape[-1] != lower.shape[-2]:
            raise ShapeError(f"[Wishart] expected square matrices but got shape {lower.shape}")
        df = as_tensor(df, dtype=lower.dtype)
        batch = F["broadcast_tensors"](df, lower[..., 0, 0])[0].shape
        self.df, self.scale_tril = df.expand(batch), lower.expand(*batch, *lower.shape[-2:])
        super().__init__(batch, lower.shape[-2:], validate_args)

    @property
    def arg_constraints(self) -> Any:
        """Those of the matrices, and df above the dimensions less 1."""
        return {**ByCovariance.arg_constraints, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    @property
    def _dim(self) -> int:
        return self._event_shape[-1]

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._dim - 1
        return F["where"](factor <= 0, math.nan, factor)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        own = F["diagonal"](v, 0, -2, -1)
        return self.df[..., None, None] * (v**2 + own.unsqueeze(-1) * own.unsqueeze(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """By Bartlett: a triangle of normal numbers under the roots of Chi2 numbers."""
        shape = self._extended_shape(sample_shape)
        half = 0.5 * (self.df.unsqueeze(-1) - arange(self._dim, dtype=self.df.dtype, device=self.df.device))
        roots = F["sqrt"](2.0 * standard_gamma(half, shape[:-1])).clamp(min=finfo(self.df.dtype).eps)
        noise = F["tril"](standard_normal(shape, self.df), -1) + F["diag_embed"](roots)
        lower = self.scale_tril @ noise
        return lower @ lower.mT

    def log_prob(self, value: Tensor) -> Tensor:
        n, p, lower = self.df, self._dim, cholesky(value)
        trace = (solve_lower(self.scale_tril, lower) ** 2).sum((-2, -1))
        norm = n * (p * math.log(2) / 2 + half_log_det(self.scale_tril)) + mvlgamma(n / 2, p)
        return (n - p - 1) * half_log_det(lower) - trace / 2 - norm

    def entropy(self) -> Tensor:
        n, p = self.df, self._dim
        size = (p + 1) * (p * math.log(2) / 2 + half_log_det(self.scale_tril))
        return size + mvlgamma(n / 2, p) - (n - p - 1) / 2 * mvdigamma(n / 2, p) + n * p / 2


class LKJCholesky(Distribution):
    """The lower Cholesky factors of matrices of correlations M, by det(M)^(concentration - 1).

    >>> pf.distributions.LKJCholesky(3).event_shape
    (3, 3)
    """

    concentration: Tensor
    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012
    support = constraints.corr_cholesky
    _ranks = {"concentration": 0}  # noqa: RUF012

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ArgumentError(f"[LKJCholesky] expected a dim of at least 2 but got {dim}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion: each row is a direction, and how much of its length lies before the diagonal."""
        a = self.concentration
        offset = (arange(self.dim, dtype=a.dtype, device=a.device) - 1).clamp(min=0.0)
        beta = Beta(offset + 0.5, (a + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * offset)
        with no_grad():
            length = beta.sample(sample_shape).unsqueeze(-1)
            normal = F["tril"](standard_normal(self._extended_shape(sample_shape), a), -1)
            tiny = finfo(a.dtype).tiny
            row = F["sqrt"](length) * normal / F["sqrt"]((normal**2).sum(-1, keepdims=True)).clamp(min=tiny)
            return row + F["diag_embed"](F["sqrt"]((1 - (row**2).sum(-1)).clamp(min=tiny)))

    def log_prob(self, value: Tensor) -> Tensor:
        a, less = self.concentration, self.dim - 1
        order = arange(2, self.dim + 1, dtype=a.dtype, device=a.device)
        powers = 2 * (a - 1).unsqueeze(-1) + self.dim - order
        alpha = a + 0.5 * less
        norm = 0.5 * less * math.log(math.pi) + mvlgamma(alpha - 0.5, less) - lgamma(alpha) * less
        return (powers * F["log"](F["diagonal"](value, 0, -2, -1)[..., 1:])).sum(-1) - norm
