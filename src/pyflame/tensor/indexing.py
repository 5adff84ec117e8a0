"""Reading and assigning parts of a tensor: x[...] and x[...] = value, with NumPy's rules, but for integers beside
index arrays: as in PyTorch they are taken first, so that x[0, :, [1, 2]] has the shape (n, 2).

Integers, slices, None and Ellipsis make a view. Index tensors and lists read and write at computed positions; what is
out of range is found at once in numbers and lists, in tensors when they are evaluated. A boolean mask is evaluated at
once, since the shape of the result depends on it; only `x[mask] = value`, with a value that does not depend on how many
elements are chosen, needs no evaluation.
"""

from __future__ import annotations

import builtins
import operator
import warnings
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, int64, uint8
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError, type_name
from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.core.shape import Shape, broadcast_shapes
from pyflame.core.state import mode, state
from pyflame.engine.on_demand import evaluate
from pyflame.engine.value import share_numpy
from pyflame.ir import OPS, F, Node, as_node, is_number
from pyflame.tensor.basic_index import learn, plain_key, read_known, read_region, region_of
from pyflame.tensor.creation import on_device, tensor
from pyflame.tensor.dispatch import FUNCTIONS as OP_FUNCTIONS
from pyflame.tensor.dispatch import call
from pyflame.tensor.known_calls import CALLS, learned
from pyflame.tensor.known_views import READS
from pyflame.tensor.overrides import CLASSES, ask, overriding
from pyflame.tensor.paths import path_between
from pyflame.tensor.tensor import Tensor, read

Part = tuple[int, int, int]  # start, step, count
_GATHER = OPS["gather_region"]
_NO_NAMES: dict[str, Any] = {}


class Mask:
    """A boolean mask as the positions it chooses."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape: Shape = array.shape
        self.positions = np.nonzero(array)


class Place:
    """Where an index points: a strided region, and index tensors for some of its axes.

    `dims[a]` is the axis of the result that runs along axis a of the tensor, -1 where an index or an integer takes it.
    """

    def __init__(self, shape: Shape, key: Any) -> None:
        self.source = shape
        self.region: list[Part] = []
        self.dims: list[int] = []
        self.axes: list[int] = []  # those with an index
        self.indices: list[Tensor] = []
        self.flags: list[Shape] = []  # (1,) or (0,) for each True or False
        self.after = 0  # axes of the result behind those that the indices share
        result: list[int] = []
        block: list[int] = []  # where in the result each index stands; integers are taken first, as PyTorch does
        breaks = 0  # how often an axis stood between them
        for item in _expanded(key, len(shape)):
            if _has_axes(item):
                breaks += bool(block) and block[-1] != len(result)
                block.append(len(result))
            if item is None:
                result.append(1)
            elif isinstance(item, slice):
                part = _part(item, shape[len(self.region)])
                self.dims.append(len(result))
                self.region.append(part)
                result.append(part[2])
            else:
                self.point(item)
        self.shape: Shape = tuple(result)
        if 0 in result:
            self.check_indices()
        if self.axes or self.flags:
            self.insert(
                broadcast_shapes("index", *[i.shape for i in self.indices], *self.flags),
                0 if breaks or not block else block[0],
            )

    def point(self, item: Any) -> None:
        """An integer, a flag (True or False), an index or the positions of a mask."""
        axis = len(self.region)
        if isinstance(item, bool):
            self.flags.append((int(item),))
            return
        if isinstance(item, int):
            self.region.append((_checked(item, self.source[axis], axis), 1, 1))
            self.dims.append(-1)
            return
        if isinstance(item, Mask) and item.shape != self.source[axis : axis + len(item.shape)]:
            raise PyFlameIndexError(
                f"[index] expected a mask that fits {self.source} from axis {axis} on but got shape {item.shape}"
            )
        for index in item.positions if isinstance(item, Mask) else (item,):
            size = self.source[len(self.region)]
            if isinstance(index, np.ndarray):
                for extreme in (int(index.min()), int(index.max())) if index.size else ():
                    _checked(extreme, size, len(self.region))
                own = np.array(index, np.int64)  # the caller may write to his
                index = on_device(share_numpy(own), own.shape, int64, None, False)
            self.axes.append(len(self.region))
            self.indices.append(index)
            self.region.append((0, 1, size))
            self.dims.append(-1)

    def check_indices(self) -> None:
        """Raise for an index out of range where nothing will be read there, so that no kernel finds it."""
        for axis, index in zip(self.axes, self.indices, strict=True):
            if state.tracer is None and index.numel():
                for extreme in (int(index.min()), int(index.max())):
                    _checked(extreme, self.source[axis], axis)

    def insert(self, shared: Shape, at: int) -> None:
        """Put the axes that all indices share into the result."""
        self.shape = (*self.shape[:at], *shared, *self.shape[at:])
        self.dims = [d + len(shared) if d >= at else d for d in self.dims]
        self.after = len(self.shape) - at - len(shared)

    def nodes(self, indices: tuple[Node, ...]) -> tuple[Node, ...]:
        """Index tensors that broadcast to the result."""
        return tuple(F.reshape(i, (*i.shape, *[1] * self.after)) for i in indices)

    def read(self, x: Node, *indices: Node) -> Node:
        if not self.axes:
            part = F.reshape(F.slice(x, tuple(self.region)), self.unflagged())
            return F.expand(part, self.shape) if self.flags else part
        return F.gather_region(
            x, self.nodes(indices), tuple(self.axes), tuple(self.dims), tuple(self.region), self.shape
        )

    def write(self, x: Node, value: Any, *indices: Node) -> Node:
        value = _fitted(value, self.shape, x.dtype)
        if 0 in self.shape:
            return F.with_nothing(x, value)
        if not self.axes:
            counts = tuple(count for _, _, count in self.region)
            return F.assign(x, F.reshape(value, counts), tuple(self.region))
        return F.scatter_at(
            x, value, self.nodes(indices), tuple(self.axes), tuple(self.dims), "assign", tuple(self.region)
        )

    def unflagged(self) -> Shape:
        """The shape before False made it empty."""
        if not self.flags or 0 in [count for _, _, count in self.region]:
            return self.shape
        return tuple(n or 1 for n in self.shape)


# --- keys -----------------------------------------------------------------------------------------------------------


_LONGEST = 32  # PyTorch takes longer lists for index tensors
_PARTS = (slice, Tensor, list, tuple, range, np.ndarray)


def _is_of_parts(key: Any) -> bool:
    """Whether a list stands for a tuple, as in PyTorch: programs build [slice(None)] * 3, and `x[pairs.tolist()]`."""
    if not isinstance(key, list) or len(key) >= _LONGEST:
        return False
    return any(i is None or i is Ellipsis or isinstance(i, _PARTS) for i in key)


def _expanded(key: Any, rank: int) -> list[Any]:
    """The parts of a key as None, slices, ints, bools, index arrays or tensors and masks, with '...' written out."""
    given = list(key) if isinstance(key, tuple) or _is_of_parts(key) else [key]
    items = [item if item is None or item is Ellipsis or isinstance(item, slice) else _pointer(item) for item in given]
    if builtins.sum(item is Ellipsis for item in items) > 1:
        raise PyFlameIndexError("[index] expected at most one '...' but got several")
    used = builtins.sum(_rank(item) for item in items)
    if used > rank:
        raise PyFlameIndexError(f"[index] expected at most {rank} indices for a tensor with {rank} axes but got {used}")
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    at = next(i for i, item in enumerate(items) if item is Ellipsis)
    items[at : at + 1] = [slice(None)] * (rank - used)
    return items


def _rank(item: Any) -> int:
    """How many axes a part of a key takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return len(item.shape) if isinstance(item, Mask) else 1


def _has_axes(item: Any) -> bool:
    """Whether a part of a key brings axes of its own: an index that is no single number, a mask, True or False."""
    return isinstance(item, (bool, np.ndarray, Mask)) or (isinstance(item, Tensor) and item.ndim > 0)


def is_mask(index: Tensor | np.ndarray[Any, Any]) -> bool:
    """Whether an index chooses elements by what it is true for. Bytes do, too, as in PyTorch: mask.byte()."""
    if index.dtype in (uint8, np.uint8):
        warnings.warn("[index] a mask of uint8: make it one of bools, or an index with .long()", stacklevel=2)
        return True
    return index.dtype in (bool_, np.bool_)


def _pointer(item: Any) -> Any:
    """An int, a bool, an index (array or tensor) or a mask, which is evaluated here."""
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, Tensor):
        if is_mask(item):
            return Mask(item.numpy() != 0) if item.ndim else bool(item)
        if not item.dtype.is_int:
            raise DTypeError(
                f"[index] expected integers or bools as index but got {item.dtype.name}; cast with .to(pf.int64)"
            )
        return item
    if isinstance(item, (list, tuple, range)) or hasattr(item, "__array__"):  # an array, or another library's tensor
        try:
            array = np.asarray(item)
        except ValueError as error:
            raise ShapeError(f"[index] expected nested lists of equal lengths but got {item!r}") from error
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)
        if is_mask(array):
            return Mask(array != 0) if array.ndim else bool(array)
        if array.dtype.kind in "iu":
            return int(array) if array.ndim == 0 else array
        raise DTypeError(f"[index] expected integers or bools as index but got an array of {array.dtype}")
    try:
        return operator.index(item)
    except TypeError:
        raise PyFlameIndexError(
            f"[index] expected integers, slices, None, '...', integer or boolean tensors but got {type_name(item)} "
            f"{item!r}"
        ) from None


def _checked(index: int, size: int, axis: int) -> int:
    if not -size <= index < size:
        raise PyFlameIndexError(f"[index] expected an index in [{-size}, {size - 1}] for axis {axis} but got {index}")
    return index % size


def _part(item: slice, size: int) -> Part:
    try:
        start, stop, step = item.indices(size)
    except ValueError:
        raise ArgumentError("[index] expected a slice with a step other than 0") from None
    except TypeError:
        raise PyFlameIndexError(f"[index] expected whole numbers in a slice but got {item}") from None
    count = len(range(start, stop, step))
    return (start, step, count) if count else (0, 1, 0)


# --- reading and assigning ------------------------------------------------------------------------------------------


def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key], as NumPy reads it; basic indices make a view without copying."""
    if READS.made is not None and (read := READS.made[0](self, key, state.__dict__)) is not None:
        return read  # type: ignore[no-any-return]
    if CLASSES and (asked := overriding((self, *key) if type(key) is tuple else (self, key))):
        return ask(getitem, asked, (self, key), {})  # type: ignore[no-any-return]
    if (plain := (key,) if type(key) is int else plain_key(key)) is not None:
        out = read_known(self, plain)
        if out is None and (found := region_of(self.shape, plain)) is not None:
            out = call(partial(read_region, *found), (self,), {}, self)
            learn(self, plain, out)
        if out is not None:
            return out
    given = (self, *key) if type(key) is tuple else (self, key)
    if CALLS.made is not None and all(type(t) is Tensor and _is_index(t) for t in given[1:]) and self.numel():
        out = CALLS.made[0](_GATHER, given, _NO_NAMES, state.__dict__, False)
        if out is not None:
            return out if out is not True else learned(_GATHER, _at_indices, given, _NO_NAMES)  # type: ignore[no-any-return]
    place = Place(self.shape, key)
    base = None if place.axes or place.flags else self
    return call(place.read, (self, *place.indices), {}, base)  # type: ignore[no-any-return]


def _is_index(x: Tensor) -> bool:
    """Whether what it chooses follows from its shape: no mask, and something to choose."""
    dtype = x.dtype
    return dtype.is_int and dtype is not uint8 and x.numel() > 0


def _at_indices(x: Tensor, *indices: Tensor) -> Tensor:
    place = Place(x.shape, indices)
    return call(place.read, (x, *place.indices), {})  # type: ignore[no-any-return]


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value. The value broadcasts and is converted; where an index repeats, the last one wins."""
    if CLASSES and (found := overriding((self, value, *key) if type(key) is tuple else (self, value, key))):
        ask(setitem, found, (self, key, value), {})
        return
    item = _value(value)
    chosen = _whole_mask(self, key, item)
    if chosen is not None:
        self._rebind(call(_write_mask, (self, chosen, item), {}))
        return
    place = Place(self.shape, key)
    if _is_read_there(self, place, item):
        return
    with mode(eager=False):  # evaluated, an assignment would not tell a view's base which part was written
        written = call(place.write, (self, item, *place.indices), {})
    self._rebind(written)
    if state.eager and state.tracer is None:
        evaluate([read(self)])


def _is_read_there(self: Tensor, place: Place, value: Any) -> bool:
    """Whether a value is the view of that very place: `x[i] += 1` writes to x[i], then assigns it to x[i]."""
    if not isinstance(value, Tensor) or value._link is None or value._link.parent is not self or place.axes:
        return False
    node = read(self)
    with mode(recorder=None):
        return path_between(node, place.read(node)) == value._link.path


def _value(value: Any) -> Tensor | float:
    if isinstance(value, Tensor) or is_number(value):
        return value  # type: ignore[no-any-return]
    return tensor(value)


def _fitted(value: Any, shape: Shape, dtype: DType) -> Node:
    """A value under the shape it is assigned to; more axes than that may only have size 1."""
    node = as_node(value, dtype)
    have = node.shape
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    if len(have) > len(shape) or any(n not in (1, m) for n, m in zip(have[::-1], shape[::-1], strict=False)):
        raise ShapeError(f"[setitem] expected a value that broadcasts to {shape} but got {node.shape}")
    return F.expand(F.reshape(node, have), shape)


def _whole_mask(self: Tensor, key: Any, value: Any) -> Any:
    """The mask, if the key is one and the value does not depend on how many elements it chooses."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if not (isinstance(key, Tensor) and key.dtype is bool_) and not (
        isinstance(key, np.ndarray) and key.dtype == np.bool_
    ):
        return None
    rest = self.ndim - key.ndim
    if not key.ndim or rest < 0 or key.shape != self.shape[: key.ndim]:
        return None
    shape = value.shape if isinstance(value, Tensor) else ()
    return key if len(shape) <= rest or all(n == 1 for n in shape[: len(shape) - rest]) else None


def _write_mask(x: Node, mask: Node, value: Any) -> Node:
    rest = x.shape[mask.ndim :]
    return F.where(F.reshape(mask, (*mask.shape, *[1] * len(rest))), _fitted(value, rest, x.dtype), x)


# --- functions whose result depends on values -----------------------------------------------------------------------


def nonzero(x: Tensor, as_tuple: bool = False) -> Any:
    """Positions of the elements that are not 0, as rows; or one tensor per axis. Evaluates x.

    >>> pf.nonzero(pf.tensor([0, 3, 4]))
    tensor([[1],
            [2]])
    """
    found = np.nonzero(x.numpy()) if x.ndim else np.nonzero(np.atleast_1d(x.numpy()))
    if as_tuple:
        return tuple(tensor(axis) for axis in found)
    rows = np.stack(found, axis=1) if x.ndim else np.zeros((len(found[0]), 0), np.int64)
    return tensor(rows)


def argwhere(x: Tensor) -> Tensor:
    """Positions of the elements that are not 0, as rows. Evaluates x.

    >>> pf.argwhere(pf.tensor([0, 3, 4]))
    tensor([[1],
            [2]])
    """
    return nonzero(x)  # type: ignore[no-any-return]


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask holds, as a vector; x and mask broadcast. Evaluates the mask.

    >>> pf.masked_select(pf.tensor([1, 2, 3]), pf.tensor([True, False, True]))
    tensor([1, 3])
    """
    if not isinstance(mask, Tensor) or mask.dtype is not bool_:
        raise DTypeError("[masked_select] expected a tensor of bools as mask; compare with 0 to make one")
    shape = broadcast_shapes("masked_select", x.shape, mask.shape)
    chosen = np.broadcast_to(mask.numpy(), shape)
    wide = OP_FUNCTIONS["expand"](x, shape)
    return getitem(wide, chosen if shape else bool(chosen))


FUNCTIONS: dict[str, Any] = {"nonzero": nonzero, "argwhere": argwhere, "masked_select": masked_select}
METHODS: dict[str, Any] = {"__getitem__": getitem, "__setitem__": setitem, **FUNCTIONS}
