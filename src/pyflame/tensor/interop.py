"""Tensors to and from torch, __cuda_array_interface__, pickle and copy. DLPack is in `tensor/dlpack.py`."""

from __future__ import annotations

import copy as copies
from typing import Any

import numpy as np

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType
from pyflame.core.errors import DTypeError, GradientError, type_name
from pyflame.core.optional import optional
from pyflame.engine.memory import gpu_of
from pyflame.ir import Node
from pyflame.tensor.creation import from_numpy, tensor
from pyflame.tensor.dlpack import dlpack, dlpack_device, from_dlpack
from pyflame.tensor.modes import eval as compute
from pyflame.tensor.tensor import Tensor, read


def from_torch(source: Any) -> Tensor:
    """A torch tensor as ours, over the same memory, which is never written to: on the CPU, or on a GPU behind what
    torch's current stream was given. It is a leaf: torch's tape stays in torch.

    >>> pf.from_torch(torch.arange(3))  # doctest: +SKIP
    tensor([0, 1, 2])
    """
    if type_name(source) not in ("torch.Tensor", "torch.Parameter"):
        raise DTypeError(f"[from_torch] expected a torch tensor but got {type_name(source)}; use pf.tensor")
    plain = source.detach()
    return from_dlpack(plain.resolve_conj().resolve_neg() if plain.dtype.is_complex or plain.is_neg() else plain)


def to_torch(self: Tensor) -> Any:
    """A torch tensor with this tensor's values, over the same memory, on the CPU or the same GPU: read it, or
    `.clone()` it to write. Torch's current stream waits for what computes it, the host does not. What is on a device
    that torch has not is copied to the CPU.

    >>> pf.arange(3).to_torch()  # doctest: +SKIP
    tensor([0, 1, 2])
    """
    torch = optional("torch", "torch", "to_torch")
    kind = self.device.partition(":")[0]
    there = kind == "cpu" or (torch.cuda.is_available() and kind == ("rocm" if torch.version.hip else "cuda"))
    return torch.from_dlpack(self.detach() if there else self.detach().cpu())


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """A GPU's memory for Numba, CuPy and others, without a copy. `stream` is the one that computes it: whoever takes
    the memory waits for that, as the interface asks."""
    if self.device.partition(":")[0] not in ("cuda", "rocm"):
        raise AttributeError(f"[__cuda_array_interface__] expected a tensor on a GPU but this one is on {self.device}")
    compute(self)
    node, device = self._node, parse_device(self.device)
    if node.dtype.numpy.isbuiltin != 1:
        raise AttributeError(
            f"[__cuda_array_interface__] expected a dtype that NumPy has but got {node.dtype.name}; cast it first"
        )
    strides = node.data.strides
    return {
        "version": 3,
        "shape": tuple(node.shape),
        "typestr": node.dtype.numpy.str,
        "data": (node.data.address, True),
        "strides": strides and tuple(s * node.dtype.itemsize for s in strides),
        "stream": gpu_of("__cuda_array_interface__", device).chosen.handle or 1,  # 1: the default stream
    }


def array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy's functions of a tensor give: a tensor over the array that they made, as in PyTorch; a mask is of
    uint8 there, too.

    >>> np.add(pf.ones(2), 1)
    tensor([2., 2.])
    """
    return from_numpy(array.astype(np.uint8) if array.dtype == np.bool_ else array)


# --- copies -----------------------------------------------------------------------------------------------------------


def _restored(
    array: np.ndarray[Any, Any], dtype: DType, device: str | None, requires_grad: bool, kind: type = Tensor
) -> Tensor:
    made = tensor(array, dtype=dtype, device=device, requires_grad=requires_grad)
    return made if kind is Tensor else _of_class(kind, made._node).requires_grad_(requires_grad)


def _of_class(kind: type, node: Node) -> Any:
    """A tensor of a subclass, whose own __new__ and __init__ may want what is not known here."""
    made: Any = object.__new__(kind)
    Tensor.__init__(made, node)
    return made


def reduce(self: Tensor) -> tuple[Any, ...]:
    """Pickle: the values, and the device it is committed to."""
    _check_leaf(self, "pickle")
    meta = self._node.meta
    array = self._snapshot().numpy()
    args = np.array(array), self.dtype, str(meta.device) if meta.committed else None, self.requires_grad
    return (_restored, args) if type(self) is Tensor else (_restored, (*args, type(self)), vars(self))


def copy(self: Tensor) -> Tensor:
    """Another cell with the same value: part of the same tape, or a leaf of its own."""
    out = self.detach().requires_grad_(self.requires_grad) if self.is_leaf else Tensor(read(self), self._tape)
    out.grad = self.grad
    return out


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """An independent tensor. It may share memory until one of both is changed in place."""
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    _check_leaf(self, "deepcopy")
    out = self._snapshot()
    out = memo[id(self)] = out if type(self) is Tensor else _of_class(type(self), out._node)
    out.requires_grad_(self.requires_grad)
    if hasattr(self, "__dict__"):
        vars(out).update(copies.deepcopy(vars(self), memo))
    if self.grad is not None:
        out.grad = deepcopy(self.grad, memo)
    return out


def _check_leaf(self: Tensor, op: str) -> None:
    if not self.is_leaf:
        raise GradientError(
            f"[{op}] expected a leaf tensor but this one was computed and holds a tape; use .detach() first"
        )


METHODS = {
    "__array_wrap__": array_wrap,
    "__copy__": copy,
    "__cuda_array_interface__": property(cuda_array_interface, doc=cuda_array_interface.__doc__),
    "__deepcopy__": deepcopy,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__reduce__": reduce,
    "to_torch": to_torch,
}
