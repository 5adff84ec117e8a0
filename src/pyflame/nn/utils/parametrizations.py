"""Weight and spectral normalisation and orthogonal matrices as parametrizations: see parametrize.py."""

from __future__ import annotations

from typing import TypeVar

from pyflame.core.errors import ArgumentError
from pyflame.nn.module import Module
from pyflame.nn.utils import spectral
from pyflame.nn.utils.orthogonal import orthogonal
from pyflame.nn.utils.parametrize import register_parametrization
from pyflame.nn.utils.weights import norm_except, weight_of
from pyflame.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_of(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learn a weight's length (`original0`) and direction (`original1`) apart.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> layer.parametrizations.weight.original0.shape
    (3, 1)
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim, self.eps, self.n_power_iterations = dim, eps, n_power_iterations
        if weight.ndim > 1:
            matrix = spectral.as_matrix(weight.detach(), dim)
            self.register_buffer("_u", spectral.unit(matrix.shape[0], weight, eps))
            self.register_buffer("_v", spectral.unit(matrix.shape[1], weight, eps))
            spectral.iterate(matrix.T, self._v, self._u, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return weight / weight_length(weight, self.eps)
        matrix = spectral.as_matrix(weight, self.dim)
        if self.training:
            spectral.iterate(matrix.T, self._v, self._u, self.n_power_iterations, self.eps)  # u by v first
        return weight / spectral.sigma_of(matrix, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def weight_length(weight: Tensor, eps: float) -> Tensor:
    """The norm of a vector, at least eps."""
    return norm_except(weight, -1).clamp(min=eps)


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divide a weight by its largest singular value, which iterations at each use in training estimate.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
    >>> sorted(layer.state_dict())
    ['bias', 'parametrizations.weight.0._u', 'parametrizations.weight.0._v', 'parametrizations.weight.original']
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"[spectral_norm] expected n_power_iterations of at least 1 but got {n_power_iterations}")
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"[spectral_norm] expected a parameter as {name!r} but the module has none")
    axis = spectral.default_dim(module) if dim is None else dim
    register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, axis, eps))
    return module
