"""Sparse matrices as in torch.sparse, in coordinate form: enough for graph networks.

A SparseTensor holds the positions of its elements, (axes, count), and their values, (count, ...). It is made of two
tensors, and its products and conversions are ops over them, so gradients reach the values and the dense operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, float32, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.core.shape import check_shape, contiguous_strides
from pyflame.core.state import state
from pyflame.tensor.arguments import publish
from pyflame.tensor.creation import as_tensor, place_of, tensor, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.indexing import nonzero
from pyflame.tensor.overrides import disabled_torch_function
from pyflame.tensor.printing import format_sparse
from pyflame.tensor.tensor import Tensor
from pyflame.tensor.torch_names import layout as layouts

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


class SparseTensor:
    """Elements at given positions, zeros elsewhere. Make one with `pf.sparse_coo_tensor` or `x.to_sparse()`."""

    is_sparse = True
    is_sparse_csr = False
    layout = layouts.sparse_coo

    def __init__(self, indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool = False) -> None:
        self._places = indices
        self._elements = values
        self.shape = shape
        self._coalesced = coalesced

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return self._elements.dtype

    @property
    def device(self) -> str:
        return self._elements.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        return self._elements.requires_grad

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the values."""
        return self._elements.grad

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of axes."""
        return self.ndim

    def is_coalesced(self) -> bool:
        """Whether each position is there once, in order."""
        return self._coalesced

    def sparse_dim(self) -> int:
        """How many axes are sparse."""
        return self._places.shape[0]

    def dense_dim(self) -> int:
        """How many axes are dense."""
        return self.ndim - self.sparse_dim()

    def indices(self) -> Tensor:
        """The positions of the elements: (axes, count)."""
        return self._places

    def values(self) -> Tensor:
        """The elements."""
        return self._elements

    def _indices(self) -> Tensor:
        return self._places

    def _values(self) -> Tensor:
        return self._elements

    def _nnz(self) -> int:
        return self._places.shape[1]

    def __repr__(self) -> str:
        return format_sparse({"indices": self._places, "values": self._elements}, self, newline=True)

    # --- conversions ------------------------------------------------------------------------------------------------

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._places, values, self.shape, self._coalesced)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """On another device, or with another dtype."""
        values = self._elements.to(*args, **kwargs)
        return SparseTensor(self._places.to(device=values.device), values, self.shape, self._coalesced)

    def cpu(self) -> SparseTensor:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: object = None) -> SparseTensor:
        """On an NVIDIA GPU."""
        return self.to(device or "cuda")

    def float(self) -> SparseTensor:
        """With values of float32."""
        return self._with(self._elements.to(dtype=float32))

    def detach(self) -> SparseTensor:
        """Without its tape."""
        return self._with(self._elements.detach())

    def requires_grad_(self, wanted: bool = True) -> SparseTensor:
        """Ask for gradients with respect to the values."""
        self._elements.requires_grad_(wanted)
        return self

    def _flat(self) -> Tensor:
        """The position of each element in the flattened sparse axes."""
        strides = contiguous_strides(self.shape[: self._places.shape[0]])
        step = tensor(np.array(strides, np.int64).reshape(-1, 1), device=place_of(self._places, None))
        return (self._places * step).sum(0)

    def to_dense(self) -> Tensor:
        """All elements, with zeros between them; elements at one position are added.

        >>> pf.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)).to_dense()
        tensor([[0., 2.],
                [3., 0.]])
        """
        axes = self._places.shape[0]
        rows = zeros(
            prod(self.shape[:axes]), *self.shape[axes:], dtype=self.dtype, device=place_of(self._elements, None)
        )
        return F["index_add"](rows, 0, self._flat(), self._elements).reshape(self.shape)

    def coalesce(self) -> SparseTensor:
        """The elements in order, those at one position added. Evaluates the positions.

        >>> pf.sparse_coo_tensor([[1, 0, 1]], [2.0, 3.0, 4.0], (2,)).coalesce().values()
        tensor([3., 6.])
        """
        if self._coalesced:
            return self
        sparse = self.shape[: self._places.shape[0]]
        unique, group = np.unique(self._flat().numpy(), return_inverse=True)
        place = place_of(self._elements, None)
        places = tensor(np.stack(np.unravel_index(unique, sparse)).astype(np.int64), device=place)
        empty = zeros(len(unique), *self._elements.shape[1:], dtype=self.dtype, device=place)
        values = F["index_add"](empty, 0, tensor(group.reshape(-1), device=place), self._elements)
        return SparseTensor(places, values, self.shape, True)

    def to_sparse_csr(self) -> Any:
        """A matrix in compressed rows. Evaluates the positions."""
        from pyflame.tensor.sparse_csr import compressed  # here: it is made of this class

        return compressed(self)

    def t(self) -> SparseTensor:
        """A matrix transposed."""
        rows, columns = _matrix("t", self)
        return SparseTensor(F["stack"]([columns, rows]), self._elements, self.shape[::-1])

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """A matrix with its axes swapped."""
        return self if dim0 % self.ndim == dim1 % self.ndim else self.t()

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def __matmul__(self, other: Tensor) -> Tensor:
        return mm(self, other)

    mm = matmul = mv = __matmul__

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return mm(self.t(), other.T).T

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`pf.mm` and its like are products here too; other functions know dense tensors only."""
        if getattr(func, "__name__", "") in ("matmul", "mm", "mv") and len(args) == 2:
            return args[0] @ args[1] if isinstance(args[0], SparseTensor) else args[1].__rmatmul__(args[0])
        return disabled_torch_function(func, types, args, kwargs)

    def __mul__(self, other: Any) -> SparseTensor:
        if isinstance(other, (Tensor, SparseTensor)) and other.ndim:
            raise ArgumentError("[mul] expected a number beside a sparse tensor but got a tensor; use to_dense()")
        return self._with(self._elements * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseTensor:
        return self._with(self._elements / other)


def _matrix(op: str, a: Any) -> tuple[Tensor, Tensor]:
    """The rows and the columns of a sparse matrix's elements."""
    if not isinstance(a, SparseTensor):
        raise DTypeError(f"[{op}] expected a sparse matrix but got {type(a).__name__}; make one with to_sparse()")
    if a.ndim != 2 or a._places.shape[0] != 2:
        raise ShapeError(
            f"[{op}] expected a sparse matrix but got shape {a.shape} with {a._places.shape[0]} sparse axes"
        )
    return a._places[0], a._places[1]


def mm(sparse: SparseTensor, dense: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense one, or a vector.

    >>> pf.sparse.mm(pf.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)), pf.ones(2, 2))
    tensor([[2., 2.],
            [3., 3.]])
    """
    rows, columns = _matrix("mm", sparse)
    if not isinstance(dense, Tensor):
        raise DTypeError(f"[mm] expected a dense tensor on the right but got {type(dense).__name__}; use to_dense()")
    if dense.ndim not in (1, 2) or dense.shape[0] != sparse.shape[1]:
        raise ShapeError(f"[mm] expected inner sizes to match but got {sparse.shape} @ {dense.shape}")
    if dense.dtype is not sparse.dtype:
        raise DTypeError(f"[mm] expected one dtype but got {sparse.dtype.name} and {dense.dtype.name}; cast one")
    values = sparse._elements.reshape(-1, *[1] * (dense.ndim - 1))
    terms = values * F["index_select"](dense, 0, columns)
    out = zeros(sparse.shape[0], *dense.shape[1:], dtype=dense.dtype, device=place_of(dense, None))
    return F["index_add"](out, 0, rows, terms)


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool = False,
) -> SparseTensor:
    """A sparse tensor of values (count, ...) at positions (axes, count). Without a size it is as small as they allow.

    >>> pf.sparse_coo_tensor([[0, 2]], [1.0, 2.0]).shape
    (3,)
    """
    places = as_tensor(indices, int64, device)
    elements = as_tensor(values, None if dtype is None else as_dtype(dtype), device)
    if places.ndim != 2 or elements.ndim < 1 or places.shape[1] != elements.shape[0]:
        raise ShapeError(
            f"[sparse_coo_tensor] expected indices (axes, count) and values (count, ...) but got {places.shape} and "
            f"{elements.shape}"
        )
    axes = places.shape[0]
    known = None if state.tracer is not None else places.numpy()
    if size is None:
        if known is None or not places.shape[1]:
            raise ArgumentError("[sparse_coo_tensor] expected a size where no positions are known; pass size=")
        size = (*(int(n) + 1 for n in known.max(1)), *elements.shape[1:])
    shape = check_shape("sparse_coo_tensor", size)
    if shape[axes:] != elements.shape[1:] or len(shape) < axes:
        raise ShapeError(
            f"[sparse_coo_tensor] expected a size of {axes} sparse axes and {elements.shape[1:]} but got {shape}"
        )
    if known is not None and known.size and ((known < 0) | (known >= np.array(shape[:axes]).reshape(-1, 1))).any():
        raise PyFlameIndexError(f"[sparse_coo_tensor] expected positions within {shape} but got one outside")
    if requires_grad:
        elements.requires_grad_()
    return SparseTensor(places, elements, shape, is_coalesced)


def to_sparse(self: Tensor) -> SparseTensor:
    """The elements that are not 0, and their positions. Evaluates the tensor.

    >>> pf.eye(2).to_sparse().values()
    tensor([1., 1.])
    """
    found = nonzero(self.detach())
    places = found.T.contiguous()
    return SparseTensor(places, self[tuple(places[a] for a in range(self.ndim))], self.shape, True)


spmm = mm


class FloatTensor(SparseTensor):
    """PyTorch's older way to make a sparse tensor of float32: from indices, values and a size."""

    def __init__(self, indices: Any, values: Any, size: Sequence[int] | None = None) -> None:
        made = sparse_coo_tensor(indices, values, size, dtype=float32)
        super().__init__(made._places, made._elements, made.shape)


__all__ = ["FloatTensor", "SparseTensor", "mm", "sparse_coo_tensor", "spmm", "to_sparse"]

publish(("mm", "sparse_coo_tensor", "spmm"), globals(), __name__)
