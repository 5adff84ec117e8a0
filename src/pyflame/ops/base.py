"""What graphs are made of below the arithmetic: buffers, constants, positions, casts, copies and assignments."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, int64
from pyflame.core.shape import Shape
from pyflame.ir import F, Meta, Node, Sample, composite, const, primitive
from pyflame.ir import cast as cast_node
from pyflame.ir.opdef import ASSIGN, CONST, COPY, ELEMENTWISE, IOTA, KERNEL, LEAF, OpDef, register

Region = tuple[tuple[int, int, int], ...]  # (start, step, count) per axis

register(OpDef("leaf", LEAF, lambda: None, "An evaluated buffer.", public=False, differentiable=False))
register(OpDef("const", CONST, lambda: None, "A number.", public=False, differentiable=False))
register(
    OpDef(
        "copy_to", COPY, lambda x: x, "The same value on another device.", infer=lambda m: (m.shape, m.dtype),
        reference=lambda x: x, srcs=("x",), public=False,
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
    samples=lambda: [Sample((np.array([-2.7, 0.0, 3.9, 1e-8], np.float32), "int32")), Sample((np.array([[0, 1], [2, 300]]), "float32"))],
)
def cast(x: Node, dtype: object) -> Any:
    """Convert to another dtype.

    >>> pf.cast(pf.tensor([1.5, 2.5]), pf.int32)
    tensor([1, 2], dtype=int32)
    """
    return cast_node(x, as_dtype(dtype)) if x.op.kind == CONST or x.dtype is as_dtype(dtype) else ((x,), (as_dtype(dtype),))


@primitive(
    ELEMENTWISE,
    infer=lambda m: (m.shape, m.dtype),
    reference=lambda x: x.copy(),
    c="{x}",
    grad=lambda g: (g,),
    torch="clone",
    samples=lambda: [Sample((np.arange(6.0).reshape(2, 3),))],
)
def clone(x: Node) -> Any:
    """A copy with memory of its own."""
    return (x,), ()


@primitive(
    ELEMENTWISE,
    infer=lambda m: (m.shape, m.dtype),
    reference=np.ascontiguousarray,
    c="{x}",
    grad=lambda g: (g,),
    torch=lambda torch, x: x.contiguous(),
    samples=lambda: [Sample((np.arange(6.0).reshape(2, 3).T,))],
)
def contiguous(x: Node) -> Any:
    """The same values in row-major memory.

    >>> pf.ones(2, 3).T.contiguous().shape
    (3, 2)
    """
    return (x,), ()


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


def _assign_grad(g: Node, base_meta: Meta, value_meta: Meta, region: Region) -> tuple[Node, Node]:
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
