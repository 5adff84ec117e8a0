"""Parameter: a tensor that a module learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentTypeError, ShapeError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, empty
from pyflame.tensor.modes import eval as evaluate
from pyflame.tensor.views import share


def settle(tensors: Iterable[Tensor]) -> None:
    """Compute these tensors now, together.

    A model's first step then has the same graph as every later one, so it is planned and compiled once.
    """
    if state.tracer is None:
        evaluate(list(tensors))


class Parameter(Tensor):
    """A leaf tensor that requires grad. A module finds those that are assigned to it.

    It takes over the values of `data` (a tensor, an array or nested lists), not its tape. A tensor and its parameter
    share memory, as in PyTorch.

    >>> nn.Parameter(pf.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        if data is None:
            raise ArgumentTypeError("[Parameter] expected a tensor but got None; write Parameter(pf.empty(shape))")
        given = as_tensor(data)
        super().__init__(given._snapshot()._node)
        if given is data:
            share(self, given)
        if given._node.op.name != "uninitialized":  # pf.empty: no values yet that could be computed
            settle([self])
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __copy__(self) -> Parameter:
        out = type(self)(self, self.requires_grad)
        out.__dict__.update(self.__dict__)
        out.grad = self.grad
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        known: Parameter | None = memo.get(id(self))
        if known is not None:
            return known
        out = memo[id(self)] = type(self)(self._snapshot(), self.requires_grad)
        out.__dict__.update(self.__dict__)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        meta = self._node.meta
        device = str(meta.device) if meta.committed else None
        return _restored, (type(self), np.array(self.numpy()), device, self.requires_grad), self.__dict__ or None


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to, saved with it if `persistent`.

    It shares memory with `data`, as a Parameter does.

    >>> layer = nn.Module(); layer.mean = nn.Buffer(pf.zeros(2)); layer.scale = nn.Buffer(pf.ones(2), persistent=False)
    >>> [name for name, _ in layer.named_buffers()], list(layer.state_dict())
    (['mean', 'scale'], ['mean'])
    """

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        given = as_tensor(empty(0) if data is None else data)
        super().__init__(given._snapshot()._node)
        if given is data:
            share(self, given)
        self.persistent = persistent
        self.requires_grad_(given.requires_grad)


def _restored(kind: type[Parameter], array: np.ndarray[Any, Any], device: str | None, requires_grad: bool) -> Parameter:
    return kind(as_tensor(array, device=device), requires_grad)


def new_parameter(*shape: int, device: object = None, dtype: object = None) -> Parameter:
    """A parameter without values yet: its module's `reset_parameters` fills it."""
    return Parameter(empty(shape, dtype=dtype, device=device))


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The arguments among `kwargs` that functions such as pf.empty take; any other one raises.

    >>> nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": pf.float64}})
    {'dtype': pyflame.float64, 'device': 'cpu'}
    """
    own = dict(kwargs or {})
    found = dict(own.pop("factory_kwargs", {}))
    for name, value in own.items():
        if name not in ("device", "dtype", "memory_format") or name in found:
            why = "it once" if name in found else "device, dtype, memory_format or factory_kwargs"
            raise ArgumentTypeError(f"[factory_kwargs] expected {why} but got {name!r}{' twice' * (name in found)}")
        found[name] = value
    return found


def replace(cell: Tensor, value: Tensor) -> None:
    """Give a parameter or buffer another value, which may have another dtype or device. The cell stays the same."""
    if value.shape != cell.shape:
        raise ShapeError(f"[in-place] expected a value of shape {cell.shape} but got {value.shape}")
    cell.data = value


def convert(cells: Iterable[Tensor], change: Callable[[Tensor], Tensor]) -> None:
    """Replace each cell's value and gradient by what `change` makes of them, and compute all of them together."""
    changed = []
    for cell in cells:
        before = cell._snapshot()
        value = change(before)
        if value is not before:
            replace(cell, value._snapshot())  # a cell that shares memory with `before` is not the one jit would see
            changed.append(cell)
        if cell.grad is not None:
            cell.grad = change(cell.grad)._snapshot()
            changed.append(cell.grad)
    settle(changed)
