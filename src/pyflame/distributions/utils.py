"""torch.distributions.utils by its path: what distributions written elsewhere are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.distributions.discrete import binary_logits
from pyflame.distributions.distribution import F, broadcast_all
from pyflame.distributions.distribution import clamped as clamp_probs
from pyflame.distributions.distribution import sum_rightmost as _sum_rightmost  # noqa: F401
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tril_indices
from pyflame.tensor.gradients import enable_grad
from pyflame.tensor.random import randn

__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = float(np.euler_gamma)


def _standard_normal(shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
    return randn(shape, dtype=dtype, device=device)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: of successes, or of the categories along the last axis.

    >>> pf.distributions.utils.logits_to_probs(pf.zeros(2))
    tensor([0.5000, 0.5000])
    """
    return F["sigmoid"](logits) if is_binary else F["softmax"](logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits of probabilities, which are kept a little away from 0 and 1.

    >>> pf.distributions.utils.probs_to_logits(pf.tensor([0.5]), is_binary=True)
    tensor([0.])
    """
    return binary_logits(probs) if is_binary else F["log"](clamp_probs(probs))


class lazy_property:
    """A property that is computed when it is first asked for, and kept. On the class it is a property.

    >>> class Noise:
    ...     @pf.distributions.utils.lazy_property
    ...     def scale(self):
    ...         return pf.ones(2)
    >>> noise = Noise(); noise.scale is noise.scale
    True
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return property(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of matrices, row by row. (..., n, n) -> (..., elements)

    >>> pf.distributions.utils.tril_matrix_to_vec(pf.tensor([[1, 0], [2, 3]]))
    tensor([1, 2, 3])
    """
    rows, columns = tril_indices(mat.shape[-2], mat.shape[-1], diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Matrices with these lower triangles. (..., elements) -> (..., n, n)

    >>> pf.distributions.utils.vec_to_tril_matrix(pf.tensor([1, 2, 3]))
    tensor([[1, 0],
            [2, 3]])
    """
    n = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    rows, columns = tril_indices(n, n, diag)
    out = vec.new_zeros((*vec.shape[:-1], n, n))
    out[..., rows, columns] = vec
    return out
