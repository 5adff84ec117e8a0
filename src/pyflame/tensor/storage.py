"""Memory as programs for torch see it: storages, where a tensor lies in one, and what replaces its memory.

A storage stands for the tensor at the root of all that share memory (views.py). So it is as large as that tensor, two
tensors share memory if their storages have one address, and what is written to it is seen by all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, uint8
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError, NotSupportedError
from pyflame.core.state import state
from pyflame.engine.on_demand import evaluate
from pyflame.ir import placed
from pyflame.tensor import creation, views
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.overrides import DisableTorchFunctionSubclass
from pyflame.tensor.tensor import Tensor, exchange


class UntypedStorage:
    """The memory of a tensor and of all that share it, in bytes. Made by `x.untyped_storage()`."""

    dtype: DType = uint8

    def __init__(self, root: Tensor) -> None:
        self._root = root

    def _elements(self) -> Tensor:
        return self._root.reshape(-1).view(self.dtype)

    @property
    def device(self) -> Any:
        return self._root.device

    def data_ptr(self) -> int:
        """The address of its first byte, until something is written to it. Evaluates the tensor."""
        return data_ptr(self._root)

    def nbytes(self) -> int:
        """How large it is."""
        return self._root.nbytes

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def size(self) -> int:
        """Number of elements."""
        return self.nbytes() // self.dtype.itemsize

    def __len__(self) -> int:
        return self.size()

    def __getitem__(self, at: Any) -> Any:
        found = self._elements()[at]
        return found.item() if found.ndim == 0 else found.tolist()

    def tolist(self) -> list[Any]:
        """Its elements as Python numbers."""
        return self._elements().tolist()  # type: ignore[no-any-return]

    def clone(self) -> UntypedStorage:
        """A copy of the memory."""
        return type(self)(self._root.detach().clone())

    def copy_(self, source: UntypedStorage) -> UntypedStorage:
        """Take over the bytes of another storage, which all tensors in this one see."""
        if source.nbytes() != self.nbytes():
            raise ArgumentError(f"[copy_] expected a storage of {self.nbytes()} bytes but got {source.nbytes()}")
        UntypedStorage(self._root)._elements().copy_(UntypedStorage(source._root)._elements())
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype.name}, device={self.device}) of size {self.size()}"


class TypedStorage(UntypedStorage):
    """A storage as elements of the dtype of its tensor. Made by `x.storage()`."""

    def __init__(self, root: Tensor) -> None:
        super().__init__(root)
        self.dtype = root.dtype


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that it lies in, in bytes.

    >>> x = pf.zeros(2, 3)
    >>> x[1].untyped_storage().nbytes(), x[1].untyped_storage().data_ptr() == x.data_ptr()
    (24, True)
    """
    return UntypedStorage(views.root_of(self))


def storage(self: Tensor) -> TypedStorage:
    """The memory that it lies in, as elements of the dtype of the tensor that owns it."""
    return TypedStorage(views.root_of(self))


def storage_offset(self: Tensor) -> int:
    """Where its first element lies in its storage, in elements.

    >>> pf.zeros(2, 3)[1, 1:].storage_offset()
    4
    """
    return views.layout(self).offset


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether another tensor has the same elements of the same memory, in the same order."""
    return views.root_of(self) is views.root_of(tensor) and views.layout(self) == views.layout(tensor)


def data_ptr(self: Tensor) -> int:
    """The address of its first element, in the memory of its device, until the tensor is written to. Evaluates it.

    >>> pf.ones(2).data_ptr() != 0
    True
    """
    if state.tracer is not None:
        state.tracer.escaped("data_ptr()")
    if not self._node.size or self.device.type == "meta":
        return 0
    node = exchange(self, self._node, placed(self._node))
    evaluate([node])
    return int(node.data.address)


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The axes from the one whose neighbours lie farthest apart in memory to the nearest.

    >>> pf.zeros(2, 3).T.dim_order()
    (1, 0)
    """
    steps = self.stride()
    if ambiguity_check and (0 in steps or len(set(steps)) < self.ndim):
        raise ArgumentError(f"[dim_order] expected strides that all differ but got {steps} of shape {self.shape}")
    return tuple(sorted(range(self.ndim), key=lambda axis: -steps[axis]))


def _layout(self: Tensor) -> Any:
    from pyflame.tensor.torch_names import strided  # here: it imports this

    return strided


# --- other memory -----------------------------------------------------------------------------------------------------


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Lie where another tensor does, with its shape; without one, have no elements. What shared memory with it before
    no longer does.
    """
    if source is None:
        source = creation.empty(0, dtype=self.dtype, device=creation.place_of(self, None))
    if not isinstance(source, Tensor) or storage_offset or size is not None or stride is not None:
        raise NotSupportedError(
            "[set_] expected a tensor alone but got a storage or where to lie in it; pass source.as_strided(size, "
            "stride, offset)"
        )
    if source.dtype is not self.dtype:
        raise DTypeError(f"[set_] expected a tensor of {self.dtype.name} but got {source.dtype.name}; cast it first")
    if self.requires_grad or state.tracer is not None:
        raise GradientError("[set_] expected a tensor without gradient, outside of jit; use copy_, or make a new one")
    if source is not self:
        views.replace(self, source)
    return self


def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """`as_strided`, in place: the tensor gets another shape, and lies where it did."""
    views.lie_as(self, self.as_strided(size, stride, storage_offset))
    return self


def new_empty_strided(
    self: Tensor, size: Any, stride: Any, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Uninitialised memory with these strides, with the dtype and device of this tensor."""
    reach = 1 + sum((int(n) - 1) * int(s) for n, s in zip(size, stride, strict=True)) if 0 not in tuple(size) else 0
    memory = self.new_empty(max(reach, 0), dtype=dtype, device=device)
    out: Tensor = memory.as_strided(size, stride)
    return out.requires_grad_(requires_grad)


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in the place of this tensor: itself with the other's values, or the other."""
    return other.detach() if assign else self.copy_(other).detach()


def as_subclass(self: Tensor, cls: type[Any]) -> Any:
    """The same tensor as an object of a subclass of Tensor; gradients flow through."""
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise ArgumentTypeError(f"[as_subclass] expected a subclass of Tensor but got {cls!r}")
    with DisableTorchFunctionSubclass():
        same = F["view_as"](self, self)
    out: Any = object.__new__(cls)  # a __new__ of its own takes other arguments
    Tensor.__init__(out, same._node, same._entry)
    return views.link_view(out, self, same._link.path) if same._link is not None else out


def _mapped(self: Tensor, others: tuple[Tensor, ...], callable: Callable[..., Any]) -> Tensor:
    lists = [t.detach().expand(self.shape).reshape(-1).tolist() for t in (self, *others)]
    values = np.array([callable(*row) for row in zip(*lists, strict=True)], self.dtype.numpy)
    return self.copy_(creation.tensor(values, dtype=self.dtype).reshape(self.shape))


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and of another's. Slow, and for the CPU."""
    return _mapped(self, (tensor,), callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and of two others'. Slow, and for the CPU."""
    return _mapped(self, (x, y), callable)


# --- what only sparse tensors have ------------------------------------------------------------------------------------


def _of_sparse(name: str) -> Callable[[Tensor], Any]:
    def method(self: Tensor) -> Any:
        raise ArgumentError(f"[{name}] expected a sparse tensor but got a dense one; make one with to_sparse()")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "Of sparse tensors: a dense one raises."
    return method


def sparse_dim(self: Tensor) -> int:
    """How many axes are sparse: none."""
    return 0


def dense_dim(self: Tensor) -> int:
    """How many axes are dense: all."""
    return self.ndim


def sparse_mask(self: Tensor, mask: Any) -> Any:
    """The elements at the positions of a sparse tensor, as one.

    >>> pf.ones(2, 2).sparse_mask(pf.eye(2).to_sparse()).values()
    tensor([1., 1.])
    """
    from pyflame.tensor.sparse import SparseTensor  # here: few programs need it

    if not isinstance(mask, SparseTensor) or tuple(mask.shape) != tuple(self.shape):
        raise ArgumentError(f"[sparse_mask] expected a sparse tensor of shape {self.shape} but got {mask!r}")
    places = mask._indices()
    return SparseTensor(places, self[tuple(places)], mask.shape, mask.is_coalesced())


METHODS: dict[str, Any] = {
    "as_strided_": as_strided_, "as_subclass": as_subclass, "const_data_ptr": data_ptr, "data_ptr": data_ptr,
    "dense_dim": dense_dim, "dim_order": dim_order, "is_set_to": is_set_to,
    "layout": property(_layout, doc="pf.strided: tensors are dense."),
    "map2_": map2_, "map_": map_, "module_load": module_load, "new_empty_strided": new_empty_strided, "set_": set_,
    "sparse_dim": sparse_dim, "sparse_mask": sparse_mask, "storage": storage, "storage_offset": storage_offset,
    "untyped_storage": untyped_storage,
    **{name: _of_sparse(name) for name in ("coalesce", "indices", "is_coalesced", "values")},
}  # fmt: skip
