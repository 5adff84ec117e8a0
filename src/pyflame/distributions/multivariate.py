"""Normal vectors: by a covariance, its inverse or its Cholesky factor, or by a covariance of low rank."""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.distributions import constraints
from pyflame.distributions.continuous import standard_normal
from pyflame.distributions.distribution import Distribution, F
from pyflame.distributions.matrices import cholesky, half_log_det, inverse_lower, solve_lower, squared_distance
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye


class ByCovariance(Distribution):
    """A distribution with a covariance, given as itself, as its inverse or as its lower Cholesky factor."""

    scale_tril: Tensor
    arg_constraints: Any = {  # noqa: RUF012
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def _lower_of(self, covariance: Tensor | None, precision: Tensor | None, scale_tril: Tensor | None) -> Tensor:
        """The Cholesky factor, from the one matrix given."""
        named = zip(ByCovariance.arg_constraints, (covariance, precision, scale_tril), strict=True)
        self._derived = tuple(name for name, matrix in named if matrix is None)
        if len(self._derived) != 2:
            raise ArgumentError(
                f"[{type(self).__name__}] expected one of covariance_matrix, precision_matrix and scale_tril but got "
                f"{3 - len(self._derived)}"
            )
        for matrix in (covariance, precision, scale_tril):
            if matrix is not None and (matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]):
                raise ShapeError(f"[{type(self).__name__}] expected (..., n, n) but got {matrix.shape}")
        if covariance is not None:
            return cholesky(covariance)
        return scale_tril if precision is None else _precision_to_scale_tril(precision)  # type: ignore[return-value]

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inverse = inverse_lower(self.scale_tril)
        return inverse.mT @ inverse


class MultivariateNormal(ByCovariance):
    """A normal vector with a covariance, given as itself, as its inverse or as its lower Cholesky factor.

    >>> d = pf.distributions.MultivariateNormal(pf.zeros(2), pf.eye(2))
    >>> d.log_prob(pf.zeros(2))
    tensor(-1.8379)
    """

    loc: Tensor
    has_rsample = True
    support = constraints.real_vector
    arg_constraints = {"loc": constraints.real_vector, **ByCovariance.arg_constraints}  # noqa: RUF012
    _ranks = {"loc": 1, "scale_tril": 2}  # noqa: RUF012

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        lower = self._lower_of(covariance_matrix, precision_matrix, scale_tril)
        if loc.ndim < 1 or lower.shape[-1] != loc.shape[-1]:
            raise ShapeError(
                f"[MultivariateNormal] expected (..., n) and (..., n, n) but got {loc.shape} and {lower.shape}"
            )
        n = loc.shape[-1]
        batch = F["broadcast_tensors"](loc[..., 0], lower[..., 0, 0])[0].shape
        self.loc, self.scale_tril = loc.expand(*batch, n), lower.expand(*batch, n, n)
        self._unbroadcasted_scale_tril = lower  # what is computed with, as in PyTorch: GPyTorch gives its own for it
        super().__init__(batch, (n,), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        normal = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + (self._unbroadcasted_scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        lower = self._unbroadcasted_scale_tril
        distance = squared_distance(lower, value - self.loc)
        out: Tensor = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(lower)
        return out

    def entropy(self) -> Tensor:
        log_det = half_log_det(self._unbroadcasted_scale_tril)
        out: Tensor = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det
        return out.expand(*self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """A normal vector with the covariance W W^T + D: W (n, rank) is `cov_factor`, D the diagonal `cov_diag`. Only
    systems of rank equations are solved.

    >>> d = pf.distributions.LowRankMultivariateNormal(pf.zeros(2), pf.ones(2, 1), pf.ones(2))
    >>> d.covariance_matrix.tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    _ranks = {"loc": 1, "cov_factor": 2, "cov_diag": 1}  # noqa: RUF012

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        n = loc.shape[-1:]
        if loc.ndim < 1 or cov_factor.ndim < 2 or cov_factor.shape[-2:-1] != n or cov_diag.shape[-1:] != n:
            raise ShapeError(
                f"[LowRankMultivariateNormal] expected (..., n), (..., n, rank) and (..., n) but got {loc.shape}, "
                f"{cov_factor.shape} and {cov_diag.shape}"
            )
        batch = F["broadcast_tensors"](loc[..., 0], cov_factor[..., 0, 0], cov_diag[..., 0])[0].shape
        self.loc, self.cov_diag = loc.expand(*batch, *n), cov_diag.expand(*batch, *n)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        super().__init__(batch, n, validate_args)

    @property
    def _scaled(self) -> Tensor:
        """D^-1/2 W, with which the covariance is D^1/2 (I + scaled scaled^T) D^1/2."""
        return self.cov_factor / F["sqrt"](self.cov_diag).unsqueeze(-1)

    @property
    def _capacitance_tril(self) -> Tensor:
        """The factor of I + W^T D^-1 W."""
        w = self._scaled
        return cholesky(w.mT @ w + eye(w.shape[-1], dtype=w.dtype, device=w.device))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """W W^T + D."""
        return self.cov_factor @ self.cov_factor.mT + F["diag_embed"](self.cov_diag)

    @property
    def scale_tril(self) -> Tensor:
        """The lower factor of the covariance."""
        return cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, by Woodbury."""
        inner = solve_lower(self._capacitance_tril, self.cov_factor.mT / self.cov_diag.unsqueeze(-2))
        return F["diag_embed"](1 / self.cov_diag) - inner.mT @ inner

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        along = standard_normal((*shape[:-1], self.cov_factor.shape[-1], 1), self.loc)
        own = F["sqrt"](self.cov_diag) * standard_normal(shape, self.loc)
        return self.loc + (self.cov_factor @ along).squeeze(-1) + own

    def _log_det(self) -> Tensor:
        return 2 * half_log_det(self._capacitance_tril) + F["log"](self.cov_diag).sum(-1)

    def _distance(self, away: Tensor) -> Tensor:
        """away^T covariance^-1 away, by Woodbury."""
        scaled = away / F["sqrt"](self.cov_diag)
        along = (self._scaled.mT @ scaled.unsqueeze(-1)).squeeze(-1)
        return (scaled**2).sum(-1) - squared_distance(self._capacitance_tril, along)

    def log_prob(self, value: Tensor) -> Tensor:
        size = self._event_shape[0] * math.log(2 * math.pi) + self._log_det()
        return -0.5 * (size + self._distance(value - self.loc))

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The lower factor of the inverse of a matrix, from the factor of the matrix with its axes reversed."""
    flipped = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT  # lower, precision = flipped^T flipped
    return inverse_lower(flipped)
