"""Functions that make tensors from numbers, lists, arrays and rules.

`device=` commits a tensor to that device; without it the tensor is uncommitted and follows the ops that use it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pyflame.core.device import CPU, DeviceId, parse_device
from pyflame.core.dtype import DType, as_dtype, bool_, complex_of, default, float64, int64, uint64
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, type_name
from pyflame.core.shape import Shape, check_shape
from pyflame.core.state import state
from pyflame.engine.devices import cpu, get_device
from pyflame.engine.value import Value, share_numpy
from pyflame.ir import OPS, F, Meta, Node, as_number, cast, const, copy_to, is_complex_number, is_number, signature
from pyflame.tensor.out import into
from pyflame.tensor.tensor import Tensor, read

# --- nodes without sources --------------------------------------------------------------------------------------------


def leaf(value: Value, shape: Shape, dtype: DType, device: DeviceId | None, committed: bool) -> Node:
    """A Node over evaluated data."""
    meta = Meta(shape, dtype, device, committed)
    return Node(OPS["leaf"], (), (), meta, signature("leaf", meta, value.strides), value)


def target_of(device: object) -> DeviceId:
    """The device that `device=` names, opened; the current one for None."""
    if device is None:
        return state.device
    target = parse_device(device)
    get_device(target)
    return target


def _source(
    name: str, srcs: tuple[Node, ...], attrs: tuple[Any, ...], shape: Shape, dtype: DType, device: object
) -> Node:
    """A Node that computes from nothing, on a device that it may be committed to: what is computed from it follows."""
    meta = Meta(shape, dtype, target_of(device), device is not None)
    state.pending += 1
    return Node(OPS[name], srcs, attrs, meta, signature(name, attrs, meta))


def positions(shape: Shape, device: object) -> Node:
    """The row-major position of each element, as int64."""
    return _source("iota", (), (shape,), shape, int64, device)


def constant(value: Any, dtype: DType, shape: Shape, device: object) -> Node:
    """One number under a shape."""
    # A constant is at home anywhere; the clone gives it a device.
    if dtype.is_complex:
        parts = [constant(part, dtype.real, shape, device) for part in (complex(value).real, complex(value).imag)]
        return F.complex(*parts)
    return F.expand(_source("clone", (const(value, dtype),), (), (), dtype, device), shape)


def shape_of(op: str, shape: tuple[Any, ...]) -> Shape:
    """zeros(2, 3) and zeros((2, 3)) are the same."""
    return check_shape(op, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)


def finish(node: Node, requires_grad: bool) -> Tensor:
    out = Tensor(node)
    return out.requires_grad_() if requires_grad else out


def number_for(op: str, value: Any, dtype: DType) -> Any:
    """A number that this dtype can hold, or an error that says why it cannot."""
    if isinstance(value, Tensor):
        value = value.item()
    if not is_number(value) and not (dtype.is_complex and is_complex_number(value)):
        raise DTypeError(f"[{op}] expected a real number but got {value!r}")
    number = as_number(value)
    if dtype.is_int:
        _check_integer(op, np.asarray(number), dtype)
        return int(number)
    return number


Fn = TypeVar("Fn", bound=Callable[..., Tensor])


def torch_options(fn: Fn) -> Fn:
    """Let a function that makes tensors take PyTorch's `out`, `layout`, `pin_memory` and `memory_format` too.

    `out` says the dtype and device; `layout` and `pin_memory` change nothing: engines and loaders see to memory here.
    """

    @functools.wraps(fn)
    def make(
        *args: Any, layout: Any = None, pin_memory: bool = False, memory_format: Any = None, out: Any = None,
        **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        if isinstance(out, Tensor):
            kwargs = {"dtype": out.dtype, "device": out.device, **kwargs}
        made = into(fn.__name__, out, fn(*args, **kwargs))
        return made if memory_format is None else made.contiguous(memory_format=memory_format)  # type: ignore[no-any-return]

    return make  # type: ignore[return-value]


# --- from data --------------------------------------------------------------------------------------------------------


def _array(data: Any, dtype: object = None) -> np.ndarray[Any, Any]:
    """What a user gave as data, as an array with the dtype PyTorch would choose if none is asked for."""
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        from pyflame.tensor.dlpack import array_from_dlpack  # here: that makes tensors with this module

        array = array_from_dlpack(data)
    else:
        try:
            array = np.array(data)
        except ValueError as error:
            raise ShapeError(f"[tensor] expected nested lists of equal lengths but got ragged data: {error}") from None
        except OverflowError:
            raise ArgumentError("[tensor] expected integers that fit in 64 bits but got a larger one") from None
        if array.dtype == np.uint64 and dtype is None:
            raise ArgumentError(
                f"[tensor] expected integers that fit in int64 but got {_short(data)}; pass dtype=pf.uint64"
            )
        if array.dtype == np.float64 and dtype is not None and as_dtype(dtype) is uint64:
            array = _as_uint64(data, array)
        if dtype is None and array.dtype in (np.float64, np.complex128):
            wanted = default.float if array.dtype == np.float64 else complex_of(default.float)
            array = array.astype(wanted.numpy)
    if array.dtype.kind == "O" or array.dtype.kind in "USMm":
        raise DTypeError(
            f"[tensor] expected numbers but got an array of {array.dtype}: {_short(data)}; convert it to a numeric "
            "dtype first"
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _as_uint64(data: Any, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Lists of whole numbers below and above 2**63 are float64 to NumPy, which rounds them."""
    exact = np.array(data, object)
    return exact.astype(np.uint64) if all(isinstance(v, int) and 0 <= v < 1 << 64 for v in exact.flat) else array


def _short(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_integer(op: str, array: np.ndarray[Any, Any], dtype: DType) -> None:
    """Refuse what an integer dtype cannot hold: NaN, infinity and numbers out of range."""
    if array.size == 0 or array.dtype.kind == "b":
        return
    if array.dtype.kind not in "iu" and not np.isfinite(array).all():
        raise ArgumentError(f"[{op}] expected finite numbers for {dtype.name} but got NaN or infinity")
    limits = np.iinfo(dtype.numpy)
    low, high = array.min(), array.max()
    if int(low) < limits.min or int(high) > limits.max:
        raise ArgumentError(
            f"[{op}] expected numbers in [{limits.min}, {limits.max}] for {dtype.name} but got {int(low)} to "
            f"{int(high)}"
        )


@torch_options
def tensor(data: Any, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of the data: a number, nested lists, a NumPy array, another tensor (a torch one too).

    >>> pf.tensor([[1, 2], [3, 4]], dtype=pf.float32)
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(data, Tensor):
        node = cast(F.clone(read(data)), as_dtype(dtype) if dtype is not None else read(data).meta.dtype)
        return finish(copy_to(node, target_of(device), commit=True) if device is not None else node, requires_grad)
    array = _array(data, dtype)
    wanted = as_dtype(dtype) if dtype is not None else as_dtype(array.dtype)
    if wanted.is_int and array.dtype != wanted.numpy:
        _check_integer("tensor", array, wanted)
    block = cpu().allocate(array.size * wanted.itemsize)
    flat: np.ndarray[Any, Any] = np.ndarray(
        array.shape, wanted.numpy, buffer=block.memory, offset=block.address - block.memory.ctypes.data
    )
    with np.errstate(all="ignore"):
        flat[...] = array
    return on_device(Value(block), array.shape, wanted, device, requires_grad)


def on_device(value: Value, shape: Shape, dtype: DType, device: object, requires_grad: bool) -> Tensor:
    """A tensor over host memory, moved to where it is wanted."""
    target = target_of(device)
    node = leaf(value, shape, dtype, CPU, device is not None and target == CPU)
    return finish(copy_to(node, target, commit=device is not None), requires_grad)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over the array's own memory, without a copy. It is never written to: an in-place op copies.

    >>> pf.from_numpy(np.arange(3, dtype=np.float32))
    tensor([0., 1., 2.])
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"[from_numpy] expected a NumPy array but got {type(array).__name__}; use pf.tensor")
    array = _array(array)
    return on_device(share_numpy(array), array.shape, as_dtype(array.dtype), None, False)


def as_tensor(data: Any, dtype: object = None, device: object = None) -> Tensor:
    """The data as a tensor, copied only where it must be: a tensor of that dtype is returned as it is.

    >>> pf.as_tensor([1, 2, 3])
    tensor([1, 2, 3])
    """
    if isinstance(data, Tensor):
        out = data
    elif isinstance(data, np.ndarray):
        out = from_numpy(data)
    elif hasattr(data, "__dlpack__") and not isinstance(data, np.generic):
        out = from_numpy(_array(data))
    else:
        return tensor(data, dtype, device)
    if dtype is not None or device is not None:
        out = out.to(device=device, dtype=dtype)
    return out


# --- filled -----------------------------------------------------------------------------------------------------------


@torch_options
def full(
    size: Any, fill_value: Any, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """A tensor filled with one number.

    >>> pf.full((2,), 7.0)
    tensor([7., 7.])
    """
    shape = shape_of("full", (size,))
    if dtype is not None:
        wanted = as_dtype(dtype)
    elif isinstance(fill_value, Tensor):
        wanted = fill_value.dtype
    else:
        wanted = (
            bool_
            if isinstance(fill_value, (bool, np.bool_))
            else int64
            if isinstance(fill_value, (int, np.integer))
            else complex_of(default.float)
            if is_complex_number(fill_value)
            else default.float
        )
    return finish(constant(number_for("full", fill_value, wanted), wanted, shape, device), requires_grad)


@torch_options
def zeros(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros.

    >>> pf.zeros(2, 3).shape
    (2, 3)
    """
    return full(shape_of("zeros", size), 0, dtype=dtype or default.float, device=device, requires_grad=requires_grad)


@torch_options
def ones(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones.

    >>> pf.ones(2)
    tensor([1., 1.])
    """
    return full(shape_of("ones", size), 1, dtype=dtype or default.float, device=device, requires_grad=requires_grad)


@torch_options
def empty(*size: Any, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """A tensor whose values are whatever was in memory.

    >>> pf.empty(2, 3).shape
    (2, 3)
    """
    shape = shape_of("empty", size)
    wanted = as_dtype(dtype or default.float)
    return finish(_source("uninitialized", (), (shape, wanted), shape, wanted, device), requires_grad)


def place_of(input: Tensor, device: object) -> object:
    """`device=` of a tensor made like another: where that one is committed to, unless another is named."""
    if not isinstance(input, Tensor):
        raise DTypeError(f"[like] expected a tensor but got {type_name(input)}")
    meta = input._node.meta
    return meta.device if device is None and meta.committed else device


@torch_options
def full_like(
    input: Tensor, fill_value: Any, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """One number, with the shape, dtype and device of another tensor.

    >>> pf.full_like(pf.zeros(2), 3)
    tensor([3., 3.])
    """
    place = place_of(input, device)
    return full(input.shape, fill_value, dtype=dtype or input.dtype, device=place, requires_grad=requires_grad)


@torch_options
def zeros_like(input: Tensor, *, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """Zeros with the shape, dtype and device of another tensor."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


@torch_options
def ones_like(input: Tensor, *, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """Ones with the shape, dtype and device of another tensor."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


@torch_options
def empty_like(input: Tensor, *, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """Uninitialised memory with the shape, dtype and device of another tensor."""
    place = place_of(input, device)
    return empty(input.shape, dtype=dtype or input.dtype, device=place, requires_grad=requires_grad)


# --- by rule ----------------------------------------------------------------------------------------------------------


def _bound(op: str, value: Any) -> float | int:
    if isinstance(value, Tensor):
        value = value.item()
    if not is_number(value):
        raise DTypeError(f"[{op}] expected real numbers but got {value!r}")
    number = as_number(value)
    if not math.isfinite(number):
        raise ArgumentError(f"[{op}] expected finite numbers but got {number}")
    return int(number) if isinstance(number, bool) else number


def _line(at: Node, start: float | int, step: float | int) -> Node:
    """start + step * position. In float64 for floats, so that 1e6 steps of 0.1 end where they should."""
    kind = int64 if isinstance(start, int) and isinstance(step, int) else float64
    return cast(at, kind) * const(step, kind) + const(start, kind)


@torch_options
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from start (0) up to but without end, a step apart. int64 if all three are integers, else float32.

    >>> pf.arange(5, 0, -2)
    tensor([5, 3, 1])
    """
    if end is None:
        start, end = None, start
    if end is None:
        raise ArgumentTypeError("[arange] expected an end but got none; write arange(3) or arange(0, 3)")
    start = 0 if start is None else start
    first, last, by = (_bound("arange", v) for v in (start, end, step))
    if dtype is not None and as_dtype(dtype) is int64:  # PyTorch rounds the ends, then counts
        first, last, by = int(first), int(last), int(by)
    if by == 0:
        raise ArgumentError("[arange] expected a step other than 0 but got 0")
    if (last - first) * by < 0:
        raise ArgumentError(
            f"[arange] expected an end that the step leads to but got start={first}, end={last}, step={by}"
        )
    integers = all(isinstance(v, int) for v in (first, last, by))
    count = -((first - last) // by) if integers else math.ceil((last - first) / by)
    if integers and any(not -(1 << 63) <= v < (1 << 63) for v in (first, last, by)):
        raise ArgumentError(f"[arange] expected integers of 64 bits but got start={first}, end={last}, step={by}")
    shape = check_shape("arange", (int(count),))
    wanted = as_dtype(dtype) if dtype is not None else int64 if integers else default.float
    if wanted.is_int:
        first, by = int(first), int(by)
    return finish(cast(_line(positions(shape, device), first, by), wanted), requires_grad)


@torch_options
def linspace(
    start: Any, end: Any, steps: int, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """`steps` numbers from start to end, both included, evenly apart.

    >>> pf.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    wanted = as_dtype(dtype or default.float)
    first, last = float(_bound("linspace", start)), float(_bound("linspace", end))
    if wanted.is_int:  # PyTorch rounds the ends first
        first, last = float(int(first)), float(int(last))
    (n,) = check_shape("linspace", (steps,))
    step = (last - first) / (n - 1) if n > 1 else 0.0
    at = positions((n,), device)
    # The second half counts from the end, so that the last number is exactly `end`.
    back = last - (n - 1.0 - cast(at, float64)) * step
    values = F.where(at < (n + 1) // 2, _line(at, first, step), back)
    return finish(cast(values, wanted), requires_grad)


@torch_options
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from base**start to base**end, a constant factor apart.

    >>> pf.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    first, last = _bound("logspace", start), _bound("logspace", end)
    if as_dtype(dtype or default.float).is_int:  # PyTorch rounds the ends first
        first, last = int(first), int(last)
    exponents = linspace(first, last, steps, dtype=float64, device=device)
    return finish(
        cast(F.pow(float(_bound("logspace", base)), exponents._node), as_dtype(dtype or default.float)), requires_grad
    )


@torch_options
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: object = None, device: object = None) -> Tensor:
    """Rows and columns of the elements of a matrix's lower triangle, up to a diagonal.

    >>> pf.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle("tril_indices", row, col, lambda row, col: col - row <= offset, dtype, device)


@torch_options
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: object = None, device: object = None) -> Tensor:
    """Rows and columns of the elements of a matrix's upper triangle, from a diagonal on.

    >>> pf.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _triangle("triu_indices", row, col, lambda row, col: col - row >= offset, dtype, device)


def _triangle(op: str, row: int, col: int, inside: Callable[[Any, Any], Any], dtype: object, device: object) -> Tensor:
    rows, columns = check_shape(op, (row, col))
    grid = np.ogrid[0:rows, 0:columns]
    return tensor(np.stack(np.nonzero(inside(*grid))), dtype or int64, device)


@torch_options
def eye(
    n: int, m: int | None = None, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere.

    >>> pf.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    rows, columns = check_shape("eye", (n, n if m is None else m))
    row = F.reshape(positions((rows,), device), (rows, 1))
    return finish(cast(F.eq(row, positions((columns,), device)), as_dtype(dtype or default.float)), requires_grad)
