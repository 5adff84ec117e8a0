"""MultivariateNormal, by a covariance, its inverse or its Cholesky factor."""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.distributions import constraints
from pyflame.distributions.continuous import standard_normal
from pyflame.distributions.distribution import Distribution, F
from pyflame.distributions.matrices import cholesky, half_log_det, inverse_lower, squared_distance
from pyflame.tensor import Tensor


class MultivariateNormal(Distribution):
    """A normal vector with a covariance, given as itself, as its inverse or as its lower Cholesky factor.

    >>> d = pf.distributions.MultivariateNormal(pf.zeros(2), pf.eye(2))
    >>> d.log_prob(pf.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    _parameters = {"loc": 1, "scale_tril": 2}  # noqa: RUF012

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [m for m in matrices.values() if m is not None]
        self._derived = tuple(name for name, m in matrices.items() if m is None)
        if len(given) != 1:
            raise ArgumentError(
                "[MultivariateNormal] expected one of covariance_matrix, precision_matrix and scale_tril but got "
                f"{len(given)}"
            )
        if loc.ndim < 1 or given[0].ndim < 2 or given[0].shape[-2:] != (loc.shape[-1],) * 2:
            raise ShapeError(
                f"[MultivariateNormal] expected (..., n) and (..., n, n) but got {loc.shape} and {given[0].shape}"
            )
        if covariance_matrix is not None:
            lower = cholesky(covariance_matrix)
        elif precision_matrix is not None:
            lower = _from_precision(precision_matrix)
        else:
            lower = given[0]
        n = loc.shape[-1]
        batch = F["broadcast_tensors"](loc[..., 0], lower[..., 0, 0])[0].shape
        self.loc, self.scale_tril = loc.expand(*batch, n), lower.expand(*batch, n, n)
        super().__init__(batch, (n,), validate_args)

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inverse = inverse_lower(self.scale_tril)
        return inverse.mT @ inverse

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
        return self.loc + (self.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = squared_distance(self.scale_tril, value - self.loc)
        out: Tensor = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self.scale_tril)
        return out

    def entropy(self) -> Tensor:
        out: Tensor = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self.scale_tril)
        return out


def _from_precision(precision: Tensor) -> Tensor:
    """The lower factor of the inverse of a matrix, from the factor of the matrix with its axes reversed."""
    flipped = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT  # lower, precision = flipped^T flipped
    return inverse_lower(flipped)
