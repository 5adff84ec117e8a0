"""What graphs are made of below the arithmetic: buffers, constants, positions, casts, copies and assignments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import DType, as_dtype, int64
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, type_name
from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.core.memory_format import order_of
from pyflame.core.shape import Region, Shape, inverse, normalize_axis
from pyflame.ir import F, Meta, Node, Sample, composite, const, is_number, primitive
from pyflame.ir import cast as cast_node
from pyflame.ir.opdef import (
    ASSIGN,
    COLLECTIVE,
    COMPOSITE,
    CONST,
    COPY,
    ELEMENTWISE,
    IOTA,
    KERNEL,
    LEAF,
    OpDef,
    Rule,
    copy_to,
    register,
)


class ValuesIndices(NamedTuple):
    """Elements chosen along an axis, and where they lie."""

    values: Node
    indices: Node


def over(x: Node, y: Node) -> Node:
    """x / y, and 0 where y is 0. So are its gradients there, of which plain division makes NaN."""
    zero = F.eq(y, 0.0)
    return F.where(zero, 0.0, x / F.where(zero, 1.0, y))


def want_tensors(op: str, **args: Any) -> None:
    """Raise for an argument that is no tensor."""
    for name, value in args.items():
        if not isinstance(value, Node):
            got = type_name(value)
            raise DTypeError(f"[{op}] expected a tensor as {name} but got {got}; wrap it in pf.tensor(...)")


def want_number(op: str, name: str, value: Any) -> float:
    """A real number as a float, or an error that names the argument."""
    if not is_number(value):
        raise ArgumentTypeError(f"[{op}] expected a number as {name} but got {value!r}")
    return float(value)


def want_whole(op: str, name: str, value: Any) -> int:
    """A whole number as an int, or an error that names the argument."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"[{op}] expected a whole number as {name} but got {value!r}") from None


def per_axis(op: str, name: str, value: Any, rank: int, least: int) -> Shape:
    """One whole number for all of `rank` axes, or one for each."""
    listed = list(value) if isinstance(value, (tuple, list)) else [value]
    try:
        numbers = tuple(operator.index(v) for v in listed)
    except TypeError:
        raise ArgumentError(
            f"[{op}] expected {name} to be a whole number or {rank} of them but got {value!r}"
        ) from None
    if len(numbers) == 1:
        numbers *= rank
    if len(numbers) != rank or any(n < least for n in numbers):
        raise ArgumentError(f"[{op}] expected {name} of at least {least}, one or {rank} of them, but got {value!r}")
    if max(numbers) >= 1 << 40:
        raise ArgumentError(f"[{op}] expected {name} below 2**40 but got {value!r}")
    return numbers


def want_floats(op: str, dtype: DType) -> None:
    """Raise for a dtype that is not of floating point."""
    if not dtype.is_float:
        raise DTypeError(f"[{op}] expected floating-point values but got {dtype.name}; cast with .to(pf.float32)")


def want_integers(op: str, index: Any) -> None:
    """Raise for what cannot be an index."""
    if not index.dtype.is_int:
        raise DTypeError(f"[{op}] expected an index of integers but got {index.dtype.name}; cast with .to(pf.int64)")


def want_elements(op: str, sizes: Shape, axes: Shape, size: int) -> None:
    """Raise where indices reach into an axis that has no elements: none of them can be right."""
    if size and any(sizes[a] == 0 for a in axes):
        raise PyFlameIndexError(f"[{op}] expected elements to index along axes {axes} but got shape {sizes}")


def pair_samples(number: float | None = 1.5, integers: bool = True) -> Callable[[], list[Sample]]:
    """Two tensors that broadcast, are views, have no axes or no elements, are integers, or hold NaN and infinities."""

    def make() -> list[Sample]:
        rng = np.random.default_rng(5)
        x, y = rng.uniform(-2.0, 2.0, (5, 7)), rng.uniform(0.3, 2.0, (5, 7))
        arrays = [
            (x, y),
            (x.T[::2], y[:, 0]),
            (x[:, None, :3], y[:2, :1]),
            (x[0, 0, ...], y[1, 1, ...]),
            (x[:0], y[:1]),
        ]
        out = [Sample(pair) for pair in arrays]
        if integers:
            out.append(Sample((np.arange(-6, 6), np.full(12, 2))))
        if number is not None:
            out += [Sample((x, number)), Sample((np.arange(5), number))]
        odd = np.array([math.nan, math.inf, -math.inf, 1.0, 0.0, -0.0])
        return [*out, Sample((odd[:, None], odd), grad=False)]

    return make


def along_axis(op: str, x: Node, dim: int, index: Node) -> tuple[Node, int, Node]:
    """Check torch.gather's and torch.scatter's rules of shape; 0-d tensors count as 1-d."""
    want_integers(op, index)
    if x.ndim == 0:
        x = F.reshape(x, (1,))
    if index.ndim == 0:
        index = F.reshape(index, (1,))
    axis = normalize_axis(op, dim, x.ndim)
    fits = index.ndim == x.ndim and all(a == axis or index.shape[a] <= x.shape[a] for a in range(x.ndim))
    if index.size and not fits:
        raise ShapeError(
            f"[{op}] expected an index with as many axes as the tensor, no larger except along dim {axis}, but got "
            f"{index.shape} for {x.shape}; use take_along_axis to broadcast"
        )
    return x, axis, index


def share_among_equals(x: Node, value: Node) -> Node:
    """An element of x, whose gradient goes in equal parts to all elements that equal it; NaN stays NaN."""
    return F.where(F.isnan(value), value, F.amax(F.where(F.eq(x, value), x, -math.inf)))


def index_arrays(axes: Shape, dims: Shape, shape: Shape, indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """NumPy index arrays equivalent to (axes, dims, shape). dims[a] = -1: an axis of size 1 that is always at 0."""
    grid = np.ogrid[tuple(np.s_[0:n] for n in shape)]
    it = iter(indices)
    return tuple(next(it) if axis in axes else grid[dim] if dim >= 0 else 0 for axis, dim in enumerate(dims))


register(OpDef("leaf", LEAF, lambda: None, "An evaluated buffer.", public=False, differentiable=False))
register(OpDef("const", CONST, lambda: None, "A number.", public=False, differentiable=False))
register(
    OpDef(
        "copy_to", COPY, lambda x: x, "The same value on another device.", infer=lambda m: (m.shape, m.dtype),
        reference=lambda x: x, srcs=("x",), public=False,
        # the gradient goes back where the source is
        grad=Rule(lambda g, x_meta: (copy_to(g, x_meta.device or g.meta.device),), ("x",), ()),
    )
)  # fmt: skip

register(
    OpDef(
        "collective", COLLECTIVE, lambda x: x, "What processes make of their values together; `call` tells how.",
        infer=lambda m, call: (m.shape, m.dtype), srcs=("x",), attrs=("call",), public=False, differentiable=False,
    )
)  # fmt: skip


@primitive(
    IOTA,
    infer=lambda shape: (shape, int64),
    attrs=("shape",),
    srcs=(),
    reference=lambda shape: np.arange(np.prod(shape, dtype=np.int64)).reshape(shape),
    public=False,
    differentiable=False,
)
def iota(shape: Shape) -> Any:
    """The row-major position of each element, as int64."""
    return (), (tuple(shape),)


@composite(public=False)
def full_const(value: float | int | bool, dtype: DType, shape: Shape = ()) -> Node:
    """A number, seen under a shape."""
    return F.expand(const(value, dtype), shape)


@primitive(
    KERNEL,
    takes_complex=True,
    infer=lambda shape, dtype: (shape, dtype),
    attrs=("shape", "dtype"),
    srcs=(),
    reference=lambda shape, dtype: np.zeros(shape, dtype.numpy),
    public=False,
    differentiable=False,
)
def uninitialized(shape: Shape, dtype: DType) -> Any:
    """A buffer whose content is undefined until it is assigned to."""
    return (), (tuple(shape), dtype)


def _cast_grad(g: Node, x_meta: Meta) -> tuple[Node]:
    # d/dx cast(x) = 1: the gradient takes the source's dtype
    return (cast_node(g, x_meta.dtype),)


@primitive(
    ELEMENTWISE,
    infer=lambda m, dtype: (m.shape, dtype),
    attrs=("dtype",),
    reference=lambda x, dtype: x.astype(dtype.numpy),
    grad=_cast_grad,
    name="cast",
    torch=lambda torch, x, dtype: x.to(getattr(torch, as_dtype(dtype).name.rstrip("_"))),
    samples=lambda: [
        Sample((np.array([-2.7, 0.0, 3.9, 1e-8], np.float32), "int32")),
        Sample((np.array([[0, 1], [2, 300]]), "float32")),
    ],
)
def cast(x: Node, dtype: object) -> Any:
    """Convert to another dtype.

    >>> pf.cast(pf.tensor([1.5, 2.5]), pf.int32)
    tensor([1, 2], dtype=pyflame.int32)
    """
    return (
        cast_node(x, as_dtype(dtype))
        if x.op.kind == CONST or x.dtype is as_dtype(dtype) or as_dtype(dtype).is_complex
        else ((x,), (as_dtype(dtype),))
    )


@primitive(
    ELEMENTWISE,
    takes_complex=True,
    infer=lambda m: (m.shape, m.dtype),
    reference=lambda x: x.copy(),
    c="{x}",
    grad=lambda g: (g,),
    torch="clone",
    samples=lambda: [Sample((np.arange(6.0).reshape(2, 3),))],
)
def clone(x: Node, *, memory_format: Any = None) -> Any:
    """A copy with memory of its own, in a memory format where one is named."""
    return ((x,), ()) if memory_format is None else _in_order(x, order_of("clone", memory_format, x.ndim))


def _in_order(x: Node, order: Shape | None) -> Node:
    """A copy whose axes lie in an order in memory."""
    if order is None:
        return F.clone(x)
    back = inverse(order)
    return F.permute(F.contiguous(F.permute(x, order)), back)


@primitive(
    ELEMENTWISE,
    takes_complex=True,
    infer=lambda x, other: (x.shape, x.dtype),
    srcs=("x", "other"),
    reference=lambda x, other: x,
    c="{x}",
    grad=lambda g: (g, None),
    public=False,
    samples=lambda: [Sample((np.arange(6.0).reshape(2, 3), np.ones((1, 1))), grad=False)],
)
def after(x: Node, other: Node) -> Any:
    """x, but not before a value of one element is known: what is made from it is made late, and anew."""
    return (x, other), ()


@primitive(
    ELEMENTWISE,
    takes_complex=True,
    infer=lambda m: (m.shape, m.dtype),
    reference=np.ascontiguousarray,
    c="{x}",
    grad=lambda g: (g,),
    torch=lambda torch, x: x.contiguous(),
    samples=lambda: [Sample((np.arange(6.0).reshape(2, 3).T,))],
)
def contiguous(x: Node, memory_format: Any = None) -> Any:
    """The same values in row-major memory, or in another memory format.

    >>> pf.ones(2, 3).T.contiguous().shape
    (3, 2)
    """
    return ((x,), ()) if memory_format is None else _in_order(x, order_of("contiguous", memory_format, x.ndim))


@primitive(
    COMPOSITE,
    infer=lambda base, value: (base.shape, base.dtype),
    reference=lambda base, value: base,
    decompose=lambda base, value: base,
    grad=lambda g, value_meta: (g, F.full_const(0, value_meta.dtype, value_meta.shape)),
    srcs=("base", "value"),
    public=False,
)
def with_nothing(base: Node, value: Node) -> Any:
    """`base` after a write of a value without elements, which has a gradient nevertheless: one without elements."""
    return (base, value), ()


def _assign_reference(base: Any, value: Any, region: Region) -> Any:
    out = base.copy()
    out[tuple(_slices(region))] = value
    return out


def _slices(region: Region) -> list[slice]:
    out = []
    for start, step, count in region:
        stop: int | None = start + step * count
        out.append(slice(start, None if stop is not None and stop < 0 else stop, step) if count else slice(0, 0))
    return out


def _assign_grad(g: Node, region: Region) -> tuple[Node, Node]:
    # out = base outside of the region, value inside of it
    inside = F.slice(g, region)
    zero = F.full_const(0, g.dtype)
    return F.assign(g, zero, region), inside


@primitive(
    ASSIGN,
    infer=lambda base, value, region: (base.shape, base.dtype),
    attrs=("region",),
    srcs=("base", "value"),
    reference=_assign_reference,
    grad=_assign_grad,
    alias=0,
    public=False,
)
def assign(base: Node, value: Node, region: Region) -> Any:
    """`base` with the elements of a strided region replaced by `value`, which broadcasts to the region."""
    return (base, cast_node(value, base.dtype)), (region,)
