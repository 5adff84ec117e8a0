"""Parameters as one long vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from pyflame.core.errors import ShapeError
from pyflame.nn.ops import F
from pyflame.nn.parameter import settle
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of all parameters, one after another.

    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    return F["cat"]([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters the elements of one vector, as parameters_to_vector laid them out.

    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.vector_to_parameters(pf.tensor([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.bias.item()
    3.0
    """
    cells = list(parameters)
    total = sum(p.numel() for p in cells)
    if vec.shape != (total,):
        raise ShapeError(f"[vector_to_parameters] expected a vector of shape ({total},) but got {vec.shape}")
    at = 0
    with no_grad():
        for cell in cells:
            cell.copy_(vec[at : at + cell.numel()].reshape(cell.shape))
            at += cell.numel()
    settle(cells)
