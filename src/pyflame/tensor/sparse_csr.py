"""Sparse matrices in compressed rows (CSR): where each row begins, the columns, and the values.

The product and the conversions are those of the coordinate form, which it holds as well: the rows are spelled out once,
when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, int64
from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError
from pyflame.core.shape import check_shape
from pyflame.tensor.arguments import publish
from pyflame.tensor.creation import as_tensor, place_of, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.printing import format_sparse
from pyflame.tensor.sparse import SparseTensor, to_sparse
from pyflame.tensor.tensor import Tensor
from pyflame.tensor.torch_names import layout as layouts

__all__ = ["SparseCSRTensor", "sparse_csr_tensor"]


class SparseCSRTensor(SparseTensor):
    """A sparse matrix in compressed rows. Make one with `pf.sparse_csr_tensor` or `x.to_sparse_csr()`."""

    is_sparse = False  # as in PyTorch, where that word is for the coordinate form
    is_sparse_csr = True
    layout = layouts.sparse_csr

    def __init__(self, places: Tensor, values: Tensor, shape: tuple[int, ...], starts: Tensor) -> None:
        super().__init__(places, values, shape, True)
        self._starts = starts

    def crow_indices(self) -> Tensor:
        """At which element each row begins, and the number of all."""
        return self._starts

    def col_indices(self) -> Tensor:
        """The column of each element."""
        return self._places[1]

    def indices(self) -> Tensor:
        """Raises, as in PyTorch: use crow_indices and col_indices."""
        raise NotSupportedError(
            "[indices] expected a sparse tensor in coordinates but got one in compressed rows; use crow_indices() and "
            "col_indices(), or to_sparse()"
        )

    def _with(self, values: Tensor) -> SparseCSRTensor:
        return SparseCSRTensor(self._places, values, self.shape, self._starts)

    def to(self, *args: Any, **kwargs: Any) -> SparseCSRTensor:
        """On another device, or with another dtype."""
        values = self._elements.to(*args, **kwargs)
        starts = self._starts.to(device=values.device)
        return SparseCSRTensor(self._places.to(device=values.device), values, self.shape, starts)

    def to_sparse(self) -> SparseTensor:
        """The same in coordinates."""
        return SparseTensor(self._places, self._elements, self.shape, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> SparseCSRTensor:
        """The matrix itself."""
        return self

    def __repr__(self) -> str:
        parts = {"crow_indices": self._starts, "col_indices": self.col_indices(), "values": self._elements}
        return format_sparse(parts, self)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseCSRTensor:
    """A sparse matrix whose row i has the elements from crow_indices[i] to crow_indices[i + 1].

    Evaluates the indices.

    >>> m = pf.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [2.0, 3.0, 4.0], (2, 2))
    >>> m.to_dense(), m @ pf.ones(2)
    (tensor([[0., 2.],
            [3., 4.]]), tensor([2., 7.]))
    """
    starts, columns = as_tensor(crow_indices, int64, device), as_tensor(col_indices, int64, device)
    elements = as_tensor(values, None if dtype is None else as_dtype(dtype), device)
    if starts.ndim != 1 or columns.ndim != 1 or elements.shape[:1] != columns.shape or not len(starts):
        raise ShapeError(
            "[sparse_csr_tensor] expected crow_indices (rows + 1,), col_indices (count,) and values (count,) but got "
            f"{starts.shape}, {columns.shape} and {elements.shape}; batches of matrices are not there"
        )
    counts, known = np.diff(starts.numpy()), columns.numpy()
    shape = check_shape("sparse_csr_tensor", (len(counts), int(known.max(initial=-1)) + 1) if size is None else size)
    if len(shape) != 2 or elements.ndim != 1 or shape[0] != len(counts):
        raise ShapeError(f"[sparse_csr_tensor] expected a size of ({len(counts)}, columns) but got {shape}")
    if (counts < 0).any() or starts.numpy()[0] != 0 or counts.sum() != len(known):
        raise ArgumentError(
            f"[sparse_csr_tensor] expected crow_indices that rise from 0 to {len(known)} but got {starts.tolist()}"
        )
    if known.size and (known.min() < 0 or known.max() >= shape[1]):
        raise ArgumentError(f"[sparse_csr_tensor] expected columns within {shape} but got {columns.tolist()}")
    rows = tensor(np.repeat(np.arange(len(counts)), counts), device=place_of(columns, None))
    if requires_grad:
        elements.requires_grad_()
    return SparseCSRTensor(FUNCTIONS["stack"]([rows, columns]), elements, shape, starts)


def compressed(self: SparseTensor) -> SparseCSRTensor:
    """The same matrix in compressed rows. Evaluates the positions."""
    if self.ndim != 2 or self._places.shape[0] != 2:
        raise ShapeError(f"[to_sparse_csr] expected a matrix but got shape {self.shape}; batches are not there")
    ordered = self.coalesce()
    counts = np.bincount(ordered._places[0].numpy(), minlength=self.shape[0])
    starts = tensor(np.concatenate([[0], np.cumsum(counts)]), device=place_of(ordered._places, None))
    return SparseCSRTensor(ordered._places, ordered._elements, self.shape, starts)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> SparseCSRTensor:
    """The elements of a matrix that are not 0, in compressed rows. Evaluates the tensor.

    >>> pf.eye(2).to_sparse_csr().crow_indices()
    tensor([0, 1, 2])
    """
    if self.ndim != 2 or dense_dim:
        raise ShapeError(f"[to_sparse_csr] expected a matrix but got shape {self.shape}; batches are not there")
    return compressed(to_sparse(self))


publish(("sparse_csr_tensor",), globals(), __name__)
