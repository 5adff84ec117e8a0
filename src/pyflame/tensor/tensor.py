"""Tensor: a mutable cell that holds an immutable Node.

Ops build Nodes; nothing runs until a value is needed. Assignment (`x[i] = v`, `x += y`, `add_`) rebinds the cell to a
new Node: other tensors that were computed from the old value keep it, but for its views, which follow (views.py).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.autograd import Entry, Leaf
from pyflame.core.device import CPU
from pyflame.core.dtype import DType, default
from pyflame.core.errors import ArgumentTypeError, DTypeError, GradientError, ShapeError, type_name
from pyflame.core.maker import InC, Maker
from pyflame.core.shape import Size
from pyflame.core.state import mode, state
from pyflame.engine.devices import cpu
from pyflame.engine.host import fetched, number
from pyflame.engine.on_demand import evaluate
from pyflame.engine.value import Value, to_numpy
from pyflame.ir import OPS, Node, apply, copy_to, placed
from pyflame.ir.opdef import LEAF
from pyflame.tensor.catalogue import Catalogue
from pyflame.tensor.devices import device as DeviceName
from pyflame.tensor.devices import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyflame.tensor.views import Link


ITEM = InC("_item", state, "__dict__")  # reads numbers that lie in memory


def alias(node: Node) -> Node:
    """Another Node with the same value and memory.

    The tape knows values by their Node, so a tensor that shares another's value but not its gradient needs its own.
    """
    if node.op.kind != LEAF or node.data is None or state.tracer is not None:  # a leaf that has no memory yet
        with mode(recorder=None):
            return apply(OPS["reshape"], (node,), (node.shape,))
    data = node.data
    return Node(node.op, (), (), node.meta, node.sig, Value(data.storage, data.offset, data.strides))


def read(tensor: Tensor) -> Node:
    """The Node of a cell; a tracer sees which cells a function reads, and knows what they hold in its trace."""
    if state.tracer is not None:
        return state.tracer.read(tensor)  # type: ignore[no-any-return]
    return tensor._node


def exchange(cell: Tensor, node: Node, same: Node) -> Node:
    """Let a cell hold another Node of its value, unless another thread has written to it meanwhile; gives that Node.

    No other thread runs between the look and the store: Python changes threads at calls and at the ends of loops.
    """
    if cell._node is node:
        cell._node = same
    return same


def _of_values(given: tuple[Any, ...]) -> Node:
    """What Tensor(2, 3) and Tensor([1.0, 2.0]) hold, as in PyTorch: memory of these sizes, these values as floats."""
    from pyflame.tensor.creation import empty, tensor  # here: creation makes tensors

    args = [a for a in given if a is not None]
    if len(args) == 1 and not isinstance(args[0], (int, np.integer)):
        return tensor(args[0], dtype=default.float)._node
    return empty(*args or (0,))._node


class Tensor(Catalogue):
    """An n-dimensional array on a device. Make one with `pf.tensor`, `pf.zeros`, `pf.randn`, ...

    >>> pf.Tensor(2, 3).shape, pf.Tensor([1, 2])
    ((2, 3), tensor([1., 2.]))
    """

    __slots__ = ("__dict__", "__weakref__", "_entry", "_grad", "_link", "_node")
    __array_priority__ = 1000

    def __init__(self, node: Any = None, entry: Any = None, *sizes: int) -> None:
        if type(node) is not Node:  # not the engine's call but a program's: Tensor(2, 3), Tensor([1.0, 2.0])
            if hasattr(self, "_node"):  # a subclass has made it in __new__
                return
            node, entry = _of_values((node, entry, *sizes)), None
        self._node: Node = node
        self._entry: Entry | Leaf | None = entry
        self._grad: Tensor | None = None
        self._link: Link | None = None
        if state.tracer is not None:
            state.tracer.known.add(node)

    if TYPE_CHECKING:  # dispatch, methods and indexing install these, from the catalogue

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._node.meta.shape)

    @property
    def dtype(self) -> DType:
        return (self._node if state.tracer is None else state.tracer.read(self)).meta.dtype

    @property
    def ndim(self) -> int:
        return len(self._node.meta.shape)

    def numel(self) -> int:
        """Number of elements."""
        return self._node.meta.size

    @property
    def nbytes(self) -> int:
        return read(self).meta.nbytes

    @property
    def device(self) -> DeviceName:
        return named(read(self).meta.device or state.device)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("[len] expected a tensor with at least one axis but got a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    # --- evaluation -------------------------------------------------------------------------------------------------

    def _evaluated(self, why: str) -> Node:
        """The Node on the host, computed."""
        if state.tracer is not None:
            state.tracer.escaped(why)
        node = self._node
        node = exchange(self, node, placed(node))
        assert node.meta.device is not None
        if node.meta.device.kind != "null":  # whose tensors have no values, as those of meta
            node = copy_to(node, CPU)
        if node.op.kind != LEAF:
            evaluate([node])
        return node

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The values as a read-only NumPy array that shares memory with the tensor; copy it to write.

        A tensor on another device is copied, and one that requires grad is taken as it is, with `force` or without.
        """
        node = self._evaluated("numpy()")
        with cpu().lock:  # a plan may be overwriting it that has begun before somebody held it
            return to_numpy(node.data, node.meta.shape, node.meta.dtype)

    def item(self) -> Any:
        """The value of a tensor with one element, as a Python number."""
        if state.tracer is not None:
            state.tracer.escaped("item()")
        node = self._node
        if node.meta.size != 1:
            raise ShapeError(
                f"[item] expected a tensor with one element but got shape {self.shape}; use .tolist() or .numpy()"
            )
        known = number(node)
        place = node.meta.device
        if known is None and place is not None and place is not CPU and place.computes:
            known = fetched(node)
            if known is None:
                evaluate([node])
                known = fetched(node)
        if known is None:
            node = self._evaluated("item()")
            known = number(node)
        if known is None:
            with cpu().lock:
                value = to_numpy(node.data, node.meta.shape, node.meta.dtype).reshape(()).item()
            known = float(value) if node.meta.dtype.is_float else value
        return known

    def tolist(self) -> Any:
        return (self.numpy().astype(np.float32) if self.dtype.compute is not self.dtype else self.numpy()).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(
                    f"[array] expected a dtype that needs no copy ({array.dtype}) but got {np.dtype(dtype)}"
                )
            return array.astype(dtype)
        return array.copy() if copy else array

    def __bool__(self) -> bool:
        if state.tracer is not None:
            state.tracer.escaped("bool()")
        if self.numel() != 1:
            raise ShapeError(
                f"[bool] expected a tensor with one element but got shape {self.shape}; use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.has_gradient:
            raise DTypeError(f"[index] expected an integer tensor but got {self.dtype.name}")
        return int(self.item())

    def __repr__(self) -> str:
        if state.tracer is not None:
            return f"tensor(traced, shape={self.shape}, dtype={self.dtype.name})"
        from pyflame.tensor.printing import format_tensor

        return format_tensor(self)

    # --- gradients --------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """What backward passes have added up for this tensor; None before the first."""
        return self._grad if state.tracer is None else state.tracer.grad(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        if state.tracer is None:
            self._grad = value
        else:
            state.tracer.write_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _check_grad(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"[grad] expected a tensor or None but got {type_name(value)}")
        if value.shape != self.shape:
            raise ShapeError(f"[grad] expected a gradient of shape {self.shape} but got {value.shape}")
        if value.dtype is not self.dtype:
            raise DTypeError(f"[grad] expected a gradient of {self.dtype.name} but got {value.dtype.name}; use .to")

    @property
    def _tape(self) -> Entry | Leaf | None:
        """Its place on the tape. `_entry` is the same outside of a trace."""
        return self._entry if state.tracer is None else state.tracer.entry(self)

    def _set_tape(self, entry: Entry | Leaf | None) -> None:
        if state.tracer is None:
            self._entry = entry
        else:
            state.tracer.write(self, read(self), entry)

    @property
    def requires_grad(self) -> bool:
        return self._tape is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    @property
    def is_leaf(self) -> bool:
        return not isinstance(self._tape, Entry)

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Ask for gradients with respect to this tensor."""
        tape = self._tape
        if not wanted:
            if isinstance(tape, Entry):
                raise GradientError("[requires_grad_] expected a leaf tensor but this one was computed; use .detach()")
            self._set_tape(None)
        elif tape is None:
            if not self.dtype.has_gradient:
                raise GradientError(
                    f"[requires_grad_] expected a floating-point or complex tensor but got {self.dtype.name}"
                )
            self._set_tape(Leaf(read(self).meta, weakref.ref(self)))
        return self

    def detach(self) -> Tensor:
        """The same value and memory, without its tape: what is written to one is seen by the other.

        >>> x = pf.zeros(2, requires_grad=True)
        >>> _ = x.detach().add_(1)
        >>> x
        tensor([1., 1.], requires_grad=True)
        """
        return views.link_detached(self._snapshot(), self)

    def _snapshot(self) -> Tensor:
        """The value of now, without its tape: later writes change neither of both tensors for the other."""
        return Tensor(alias(read(self)))

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of this tensor to `.grad` of every leaf that requires it, or of the `inputs` alone.

        >>> x = pf.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        """
        from pyflame.tensor.gradients import backward_into_leaves

        backward_into_leaves(self, gradient, retain_graph, create_graph, inputs)

    # --- rebinding --------------------------------------------------------------------------------------------------

    def _rebind(self, value: Tensor) -> Tensor:
        """Take over another tensor's value: what in-place ops do."""
        before, tape = self._tape, value._tape
        if state.grad_enabled and isinstance(before, Leaf) and tape is not before:
            raise GradientError(
                "[in-place] expected a tensor that is not a leaf of the tape but this one requires grad; "
                "use `with pf.no_grad():` to change it, or make a new tensor"
            )
        if value.shape != self.shape:
            raise ShapeError(f"[in-place] expected a value of shape {self.shape} but got {value.shape}")
        entry = tape if state.grad_enabled else before  # without recording the tape does not see the change
        if self._link is not None and self._link.tied:
            views.write(self, read(value), entry)
            return self
        if state.rebinds is not None:
            state.rebinds.note(self)
        self._put(read(value), entry)
        return self

    def _put(self, node: Node, entry: Entry | Leaf | None) -> None:
        """Hold this value, in a trace only there."""
        if state.tracer is not None:
            state.tracer.write(self, node, entry)
        elif entry is self._entry:
            self._node = node
        else:  # in one step: an interrupt may come between two bytecodes
            any(map(setattr, (self, self), ("_node", "_entry"), (node, entry)))


def _made(node: Node, entry: Entry | Leaf | None = None, link: Link | None = None) -> Tensor:
    out = Tensor(node, entry)
    out._link = link
    return out


# Where there is no tracer, which would have to see it.
TENSORS = Maker(Tensor, ("_node", "_entry", "_link", "_grad"), python=_made)

from pyflame.tensor import views  # noqa: E402  at the end: it needs Tensor
