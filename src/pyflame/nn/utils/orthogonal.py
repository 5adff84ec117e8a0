"""Matrices that stay orthogonal while they are learned."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError
from pyflame.nn.module import Module
from pyflame.nn.utils.parametrize import register_parametrization
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye, place_of
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.linalg import householder_product, matrix_exp, solve
from pyflame.tensor.old_linalg import geqrf
from pyflame.tensor.random import randn
from pyflame.tensor.sets import allclose

M = TypeVar("M", bound=Module)
MAPS = ("matrix_exp", "cayley", "householder")


def _identity(n: int, like: Tensor) -> Tensor:
    return eye(n, dtype=like.dtype, device=place_of(like, None))


def _reflected(x: Tensor) -> Tensor:
    """The product of the reflections whose vectors are below the diagonal, its columns signed by the diagonal."""
    below = x.tril(-1)
    tau = 2.0 / ((below * below).sum(-2) + 1.0)
    return householder_product(below, tau) * x.detach().diagonal(0, -2, -1).round().unsqueeze(-2)


def _rotated(x: Tensor, way: str) -> Tensor:
    """The exponential, or Cayley's (I + A/2) (I - A/2)^-1, of a skew-symmetric A made of the lower triangle."""
    n, k = x.shape[-2:]
    low = x.tril()
    square = low if n == k else F["pad"](low, (0, n - k))
    skew = square - square.mT
    if way == "matrix_exp":
        return matrix_exp(skew)[..., :k]
    one = _identity(n, x)
    return solve(one - skew * 0.5, one + skew * 0.5)[..., :k]


def _orthonormal(x: Tensor) -> Tensor:
    """The orthogonal factor of a QR factorisation, signed so that an orthogonal matrix is its own."""
    packed, tau = geqrf(x)
    return householder_product(packed, tau) * packed.diagonal(0, -2, -1).sign().unsqueeze(-2)


class _Orthogonal(Module):
    base: Tensor | None

    def __init__(self, shape: tuple[int, ...], way: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.orthogonal_map, self.moves = tuple(shape), way, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        q = _reflected(tall) if self.orthogonal_map == "householder" else _rotated(tall, self.orthogonal_map)
        if self.moves:
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ShapeError(f"[orthogonal] expected a value of shape {self.shape} but got {Q.shape}")
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        n, k = tall.shape[-2:]
        if self.moves:
            self.base = self._completed(tall, n, k)
            start = -_identity(n, Q)[:, :k].expand(tall.shape)  # from which every map makes the first columns of base
            return start.mT if wide else start
        if self.orthogonal_map != "householder":
            raise NotSupportedError(
                f"[orthogonal] expected use_trivialization=True to assign to {self.orthogonal_map} but got False; use "
                "orthogonal_map='householder'"
            )
        packed, tau = geqrf(tall)
        diagonal = packed.diagonal(0, -2, -1)
        # LAPACK leaves out a reflection of nothing, which turns a sign here
        signs = F["where"](tau == 0.0, -diagonal.sign(), diagonal.sign())
        found: Tensor = packed + F["pad"](F["diag_embed"](signs - diagonal, 0, -2, -1), (0, 0, 0, n - k))
        return found.mT if wide else found

    def _completed(self, tall: Tensor, n: int, k: int) -> Tensor:
        """A square orthogonal matrix that begins with these columns, made orthonormal where they are not."""
        if n != k:
            drawn = randn(*tall.shape[:-2], n, n - k, dtype=tall.dtype, device=place_of(tall, None))
            return _orthonormal(F["cat"]([tall, drawn], -1))
        near = 10.0 * n * float(np.finfo(tall.dtype.numpy).eps)
        whole = allclose(tall.mT @ tall, _identity(n, tall).expand(tall.shape), atol=near)
        return tall.clone() if whole else _orthonormal(tall)


def orthogonal(
    module: M, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> M:
    """Keep a matrix, or batch of them, orthogonal: its columns, or rows if those are fewer, are orthonormal.

    `orthogonal_map` is "matrix_exp" (square matrices' default), "cayley" or "householder" (that of others). With
    `use_trivialization` the map starts at a matrix `base` that is kept beside the parameter.

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 5))
    >>> pf.allclose(layer.weight.T @ layer.weight, pf.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"[orthogonal] expected a parameter as {name!r} but the module has none")
    if weight.ndim < 2:
        raise ShapeError(f"[orthogonal] expected matrices (..., n, m) but got shape {weight.shape}")
    way = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if way not in MAPS:
        raise ArgumentError(f"[orthogonal] expected one of {MAPS} as orthogonal_map but got {orthogonal_map!r}")
    register_parametrization(module, name, _Orthogonal(weight.shape, way, use_trivialization), unsafe=True)
    return module
