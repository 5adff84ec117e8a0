"""MultivariateNormal. The Cholesky factor and triangular systems are unrolled in the graph, one step per dimension, so
gradients flow through them; they are meant for a few dozen dimensions.
"""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.distributions.continuous import standard_normal
from pyflame.distributions.distribution import Distribution, F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye


def cholesky(matrix: Tensor) -> Tensor:
    """The lower triangle L with L L^T = matrix, of (..., n, n)."""
    n = matrix.shape[-1]
    matrix = (matrix + matrix.mT) * 0.5  # so that gradients are symmetric, as the matrix is
    columns: list[Tensor] = []
    for j in range(n):
        rest = matrix[..., j:, j]
        for column in columns:
            rest = rest - column[..., j:] * column[..., j : j + 1]
        root = F["sqrt"](rest[..., :1])
        columns.append(F["pad"](rest / root, (j, 0)))
    return F["stack"](columns, -1)


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """x with lower @ x = right, of (..., n, n) and (..., n)."""
    found: list[Tensor] = []
    for i in range(lower.shape[-1]):
        value = right[..., i]
        for j, x in enumerate(found):
            value = value - lower[..., i, j] * x
        found.append(value / lower[..., i, i])
    return F["stack"](found, -1)


class MultivariateNormal(Distribution):
    """A normal vector with a covariance, given as itself, as its inverse or as its lower Cholesky factor.

    >>> d = pf.distributions.MultivariateNormal(pf.zeros(2), pf.eye(2))
    >>> d.log_prob(pf.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
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

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        shape, n = tuple(batch_shape), self._event_shape[0]
        return MultivariateNormal(self.loc.expand(*shape, n), scale_tril=self.scale_tril.expand(*shape, n, n))

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        n = self._event_shape[0]
        unit = eye(n, dtype=self.loc.dtype)
        columns = [solve_lower(self.scale_tril, unit[i].expand(*self._batch_shape, n)) for i in range(n)]
        inverse = F["stack"](columns, -1)
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

    def _half_log_det(self) -> Tensor:
        return F["log"](F["diagonal"](self.scale_tril, 0, -2, -1)).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        away = value - self.loc
        lower = self.scale_tril.expand(*away.shape[:-1], *self.scale_tril.shape[-2:])
        distance = (solve_lower(lower, away) ** 2).sum(-1)
        out: Tensor = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()
        return out

    def entropy(self) -> Tensor:
        out: Tensor = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return out


def _from_precision(precision: Tensor) -> Tensor:
    """The lower factor of the inverse of a matrix, from the factor of the matrix with its axes reversed."""
    n = precision.shape[-1]
    flipped = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT  # lower, precision = flipped^T flipped
    unit = eye(n, dtype=precision.dtype)
    batch = precision.shape[:-2]
    return F["stack"]([solve_lower(flipped, unit[i].expand(*batch, n)) for i in range(n)], -1)
