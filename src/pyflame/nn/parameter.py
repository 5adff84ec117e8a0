"""Parameter: a tensor that a module learns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pyflame.autograd import Leaf
from pyflame.core.dtype import DType
from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, empty
from pyflame.tensor.modes import eval as evaluate
from pyflame.tensor.overrides import disabled_torch_function
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

    __torch_function__ = staticmethod(disabled_torch_function)

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

    __torch_function__ = staticmethod(disabled_torch_function)

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


def change_each(cells: Iterable[Tensor], change: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Replace each cell's value and gradient by what `change` makes of them; gives those that are others now."""
    changed = []
    for cell in cells:
        if isinstance(cell, UninitializedTensorMixin):
            cell._change(change)
            continue
        before = cell._snapshot()
        value = change(before)
        if value is not before:
            cell.data = value._snapshot()  # a cell that shares memory with `before` is not the one jit would see
            changed.append(cell)
        if cell.grad is not None:
            cell.grad = change(cell.grad)._snapshot()
            changed.append(cell.grad)
    return changed


def convert(cells: Iterable[Tensor], change: Callable[[Tensor], Tensor]) -> None:
    """Replace each cell's value and gradient, and compute all of them together."""
    settle(change_each(cells, change))


# --- without a shape yet ----------------------------------------------------------------------------------------------

_held: Any = Tensor.__dict__["_node"]  # where a tensor keeps its node


class UninitializedTensorMixin:
    """A tensor that has a dtype and a device but no shape yet: `materialize(shape)` gives it one.

    Until then it can be moved, converted, copied and saved, and nothing else.
    """

    cls_to_become: type[Tensor]
    _entry: Any

    def __init__(self, requires_grad: bool = False, device: object = None, dtype: object = None) -> None:
        Tensor.__init__(self, empty(0, device=device, dtype=dtype)._node)  # type: ignore[arg-type]
        self.requires_grad_(requires_grad)

    @property
    def _node(self) -> Any:
        raise ArgumentError(
            f"[{type(self).__name__}] expected a tensor with a shape but this one has none yet; call its module with "
            "an input first, or materialize(shape)"
        )

    @_node.setter
    def _node(self, node: Any) -> None:
        _held.__set__(self, node)

    def _value(self) -> Tensor:
        return Tensor(_held.__get__(self))

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        self._node = change(self._value())._node

    def materialize(self, shape: Any, device: object = None, dtype: object = None) -> None:
        """Get a shape, and memory of any values: the module's reset_parameters fills it.

        >>> weight = nn.UninitializedParameter()
        >>> weight.materialize((2, 3)); type(weight).__name__, weight.shape
        ('Parameter', (2, 3))
        """
        meta = _held.__get__(self).meta
        place = device if device is not None or not meta.committed else meta.device
        wanted = self.requires_grad
        self._node = empty(shape, dtype=meta.dtype if dtype is None else dtype, device=place)._node
        self._entry = None
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._entry = Leaf(_held.__get__(self).meta, weakref.ref(self)) if requires_grad else None
        return self

    @property
    def requires_grad(self) -> bool:
        return self._entry is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    @property
    def dtype(self) -> DType:
        return self._value().dtype

    @property
    def device(self) -> Any:
        return self._value().device

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        meta = _held.__get__(self).meta
        return type(self), (self.requires_grad, str(meta.device) if meta.committed else None, meta.dtype), vars(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            kind, args, own = self.__reduce__()
            memo[id(self)] = kind(*args)
            vars(memo[id(self)]).update(own)
        return memo[id(self)]

    def __copy__(self) -> Any:
        return self.__deepcopy__({})


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet, as lazy modules have them before their first call.

    >>> nn.LazyLinear(3).weight
    <UninitializedParameter>
    """

    cls_to_become = Parameter

    def __init__(self, requires_grad: bool = True, device: object = None, dtype: object = None) -> None:
        super().__init__(requires_grad, device, dtype)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet.

    >>> nn.UninitializedBuffer()
    <UninitializedBuffer>
    """

    cls_to_become = Buffer

    def __init__(
        self, requires_grad: bool = False, device: object = None, dtype: object = None, persistent: bool = True
    ) -> None:
        super().__init__(requires_grad, device, dtype)
        self.persistent = persistent


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet.

    >>> nn.parameter.is_lazy(nn.LazyLinear(3).weight)
    True
    """
    return isinstance(param, UninitializedTensorMixin)
