"""Writing at computed positions: the other direction of gather.py, in index order.

base[f_0(o), ..., f_r(o)] = values[o], into a strided region of the base: an axis in `axes` takes its position from an
index tensor (which broadcasts to the values), every other axis a takes axis `dims[a]` of the values, or has one
position in the region where that is -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError, type_name
from pyflame.core.shape import Region, Shape, broadcast_shapes, normalize_axis
from pyflame.ir import F, Meta, Node, Sample, cast, composite, is_number, primitive
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import _slices, along_axis, index_arrays, want_elements, want_integers

_X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
_CUBE = np.linspace(-1.0, 1.0, 30).reshape(2, 5, 3)

_AT: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scatter_reference(base: Any, values: Any, *rest: Any) -> Any:
    axes, dims, region, mode = rest[-4:]
    out = base.copy()
    view = out[tuple(_slices(region))]
    at = index_arrays(axes, dims, values.shape, rest[:-4])
    if mode == "assign":
        view[at] = values
    else:
        _AT[mode](view, at, values)
    return out


def _scatter_grad(
    g: Node, rest: tuple[Node, ...], values_meta: Meta, axes: Shape, dims: Shape, region: Region, mode: str
) -> tuple[Any, ...]:
    # add: out = base + sum(values); assign: out = values where written, base elsewhere
    shape = values_meta.shape
    base = g if mode == "add" else F.scatter_at(g, F.full_const(0, g.dtype, shape), rest, axes, dims, "assign", region)
    return (base, F.gather_region(g, rest, axes, dims, region, shape), *[None for _ in rest])


def _scatter_reduce_grad(
    g: Node,
    base: Node,
    values: Node,
    rest: tuple[Node, ...],
    out: Node,
    axes: Shape,
    dims: Shape,
    region: Region,
    mode: str,
) -> tuple[Any, ...]:
    def read(x: Node) -> Node:
        return F.gather_region(x, rest, axes, dims, region, values.shape)

    def add(to: Node, what: Node) -> Node:
        return F.scatter_at(to, what, rest, axes, dims, "add", region)

    def product(start: Node, factors: Node) -> Node:
        return F.scatter_reduce_at(start, factors, rest, axes, dims, "mul", region)

    none = [None for _ in rest]
    if mode != "mul":
        # all that equal the extreme share the gradient evenly
        mine, theirs = cast(F.eq(base, out), g.dtype), cast(F.eq(values, read(out)), g.dtype)
        share = g / add(mine, theirs)
        return (mine * share, theirs * read(share), *none)
    # out = base * prod(values): each factor's gradient is the product of the others; a lone 0 is left out of it
    zero = F.eq(values, 0.0)
    nonzero = F.where(zero, 1.0, values)
    zeros = add(F.full_const(0, g.dtype, base.shape), cast(zero, g.dtype))
    others = F.where(F.eq(read(zeros), 1.0), read(g * product(base, nonzero)), 0.0)
    grad = F.where(zero, others, read(g * out) / nonzero)
    return (g * product(F.full_const(1, g.dtype, base.shape), values), grad, *none)


def _scatter(name: str, grad: Callable[..., Any], modes: tuple[str, ...], doc: str) -> None:
    """Declare a scatter. There are two: the gradient of a product or an extreme keeps values that a sum's does not."""

    def fn(
        base: Node,
        values: Node,
        indices: tuple[Node, ...],
        axes: Shape,
        dims: Shape,
        mode: str,
        region: Region | None = None,
    ) -> Any:
        if mode not in modes:
            raise ArgumentError(f"[{name}] expected a mode of {modes} but got {mode!r}")
        region = tuple((0, 1, size) for size in base.shape) if region is None else region
        want_elements("scatter", tuple(count for _, _, count in region), axes, values.size)
        if values.size == 0:
            return F.with_nothing(base, values)
        # 16-bit sums and products are kept in float32
        if mode in ("add", "mul") and base.dtype.compute is not base.dtype:
            wide = F.cast(base, base.dtype.compute)
            return F.cast(getattr(F, name)(wide, values, indices, axes, dims, mode, region), base.dtype)
        if values.dtype.compute is not base.dtype:
            values = cast(values, base.dtype)
        return (base, values, *[cast(i, int64) for i in indices]), (axes, dims, region, mode)

    fn.__doc__ = doc
    primitive(
        KERNEL,
        infer=lambda base, *rest: (base.shape, base.dtype),
        attrs=("axes", "dims", "region", "mode"),
        srcs=("base", "values"),
        reference=_scatter_reference,
        grad=grad,
        name=name,
        alias=0,
        checked=True,
        public=False,
    )(fn)


_scatter(
    "scatter_at",
    _scatter_grad,
    ("assign", "add"),
    "Write values at computed positions, in index order: the last wins, or all are added.",
)
_scatter("scatter_reduce_at", _scatter_reduce_grad, ("mul", "max", "min"), "Combine values into computed positions.")


_REDUCE = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _write(base: Node, values: Node, indices: tuple[Node, ...], axes: Shape, dims: Shape, mode: str) -> Node:
    write = F.scatter_at if mode in ("assign", "add") else F.scatter_reduce_at
    return write(base, values, indices, axes, dims, mode)


def _scatter_along(op: str, x: Node, dim: int, index: Node, src: Any, mode: str) -> Node:
    shape = x.shape
    x, axis, index = along_axis(op, x, dim, index)
    if isinstance(src, Node) and src.ndim and src.dtype is not x.dtype:
        raise DTypeError(
            f"[{op}] expected a source of the tensor's dtype {x.dtype.name} but got {src.dtype.name}; "
            "cast it with .to(...)"
        )
    if isinstance(src, Node) and src.ndim:
        if src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape, strict=True)):
            raise ShapeError(
                f"[{op}] expected a source at least as large as the index on every axis but got {src.shape} "
                f"for {index.shape}"
            )
        src = F.slice(src, tuple((0, 1, n) for n in index.shape))
    else:
        if not isinstance(src, Node) and not is_number(src):
            raise DTypeError(f"[{op}] expected a tensor or a number as source but got {type_name(src)}")
        src = F.expand(src if isinstance(src, Node) else F.full_const(src, x.dtype), index.shape)
    return F.reshape(_write(x, src, (index,), (axis,), tuple(range(x.ndim)), mode), shape)


def _numpy_scatter(x: Any, dim: int, index: Any, src: Any, reduce: str | None = None) -> Any:
    out = x.copy()
    at = list(np.ogrid[tuple(np.s_[0:n] for n in index.shape)])
    at[dim] = index
    part = src if np.ndim(src) == 0 else src[tuple(np.s_[0:n] for n in index.shape)]
    if reduce is None:
        out[tuple(at)] = part
    else:
        _AT[_REDUCE[reduce]](out, tuple(at), part)
    return out


@composite(
    autocast="promote",
    reference=_numpy_scatter,
    torch=lambda torch, x, dim, index, src, reduce=None: (
        torch.scatter(x, dim, index, src) if reduce is None else torch.scatter(x, dim, index, src, reduce=reduce)
    ),
    samples=lambda: [
        Sample((_X, 1, np.array([[0, 2], [3, 1], [1, 0]]), -_X[:, :2])),
        Sample((_X, 0, np.array([[2, 1, 0, 2]]), _X * 3), grad=False),  # torch wants a source of the index's shape here
        Sample((_X.T, 1, np.array([[2], [0], [1], [1]]), 7.0)),
        Sample((_X, 1, np.array([[0, 0, 0], [3, 3, 1], [1, 0, 0]]), -_X, "add"), grad=False),
        Sample((_CUBE, 1, np.array([[[4, 0, 2]], [[1, 1, 3]]]), _CUBE[:, :1] * 2)),
    ],
)
def scatter(x: Node, dim: int, index: Node, src: Any, reduce: str | None = None) -> Node:
    """x with out[i][index[i][j]] = src[i][j] for dim=1, and alike for other axes; reduce: "add", "multiply".

    >>> pf.scatter(pf.zeros(2, 3), 1, pf.tensor([[0], [2]]), 1.0)
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    if reduce is not None and reduce not in _REDUCE:
        raise ArgumentError(f"[scatter] expected reduce to be one of {sorted(_REDUCE)} or None but got {reduce!r}")
    return _scatter_along("scatter", x, dim, index, src, "assign" if reduce is None else _REDUCE[reduce])


@composite(
    autocast="promote",
    reference=lambda x, dim, index, src: _numpy_scatter(x, dim, index, src, "add"),
    torch="scatter_add",
    samples=lambda: [
        Sample((_X, 1, np.array([[0, 2, 0], [3, 1, 3], [1, 0, 1]]), -_X[:, 1:])),
        Sample((_X, 0, np.array([[2, 1, 0, 2], [2, 1, 1, 1]]), _X[:2, ::-1])),
        Sample((np.zeros(3), 0, np.array([1, 1, 1, 2]), np.arange(4.0))),
    ],
)
def scatter_add(x: Node, dim: int, index: Node, src: Any) -> Node:
    """x with src[i][j] added to out[i][index[i][j]] for dim=1, and alike for other axes.

    >>> pf.scatter_add(pf.zeros(3), 0, pf.tensor([1, 1, 2]), pf.tensor([1.0, 2.0, 3.0]))
    tensor([0., 3., 3.])
    """
    return _scatter_along("scatter_add", x, dim, index, src, "add")


_START = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}


def _start(mode: str, dtype: DType) -> float | int:
    """What combines with a value to that value."""
    if dtype.is_float or mode in ("add", "mul"):
        return _START[mode]
    if dtype is bool_:
        return mode == "min"
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if mode == "max" else limits.max)


def _numpy_scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    start = x
    if not include_self:
        start = _numpy_scatter(x, dim, index, _START["add" if reduce == "mean" else _REDUCE[reduce]])
    out = _numpy_scatter(start, dim, index, src, "add" if reduce == "mean" else reduce)
    if reduce != "mean":
        return out
    count = np.full(x.shape, float(include_self))
    return out / np.maximum(_numpy_scatter(count, dim, index, 1.0, "add"), 1.0)


@composite(
    autocast="promote",
    reference=_numpy_scatter_reduce,
    torch=lambda torch, x, dim, index, src, reduce, include_self=True: torch.scatter_reduce(
        x, dim, index, src, reduce, include_self=include_self
    ),
    samples=lambda: [
        Sample((_X, 1, np.array([[0, 2, 0], [3, 1, 3], [1, 0, 1]]), np.cos(3 * _X[:, 1:]), reduce, keep))
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for keep in (True, False)
    ],
)
def scatter_reduce(x: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool = True) -> Node:
    """As scatter, with values that meet combined: "sum", "prod", "mean", "amax" or "amin", with x's own or without.

    >>> pf.scatter_reduce(pf.zeros(2), 0, pf.tensor([0, 0]), pf.tensor([1.0, 5.0]), "amax")
    tensor([5., 0.])
    """
    if reduce != "mean" and reduce not in _REDUCE:
        raise ArgumentError(
            f"[scatter_reduce] expected reduce to be one of {['mean', *sorted(_REDUCE)]} but got {reduce!r}"
        )
    return _combined(
        lambda base, values, mode: _scatter_along("scatter_reduce", base, dim, index, values, mode),
        x, src, reduce, include_self,
    )  # fmt: skip


def _combined(write: Callable[..., Node], x: Node, src: Node, reduce: str, include_self: bool) -> Node:
    """Values that meet, combined by a function that writes at positions: (base, values or a number, mode)."""
    mode = "add" if reduce == "mean" else _REDUCE[reduce]
    if not include_self:
        x = write(x, F.full_const(_start(mode, x.dtype), x.dtype), "assign")
    out = write(x, src, mode)
    if reduce != "mean":
        return out
    one = F.full_const(1, x.dtype)
    count = write(F.full_const(float(include_self), x.dtype, x.shape), one, "add")
    return F.div(out, F.maximum(count, 1), None if x.dtype.is_float else "floor")


def _index_write(op: str, x: Node, dim: int, index: Node, source: Node, mode: str) -> Node:
    want_integers(op, index)
    if x.ndim == 0:
        return F.reshape(_index_write(op, F.reshape(x, (1,)), dim, index, source, mode), ())
    axis = normalize_axis(op, dim, x.ndim)
    index = F.reshape(index, (-1,))
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    if source.ndim and source.shape != shape:
        raise ShapeError(f"[{op}] expected a source of shape {shape} but got {source.shape}")
    column = F.reshape(index, (-1, *[1] * (x.ndim - axis - 1)))
    dims = tuple(range(x.ndim))
    return _write(x, F.expand(source, shape), (column,), (axis,), dims, mode)


def _numpy_index(x: Any, dim: int, index: Any, source: Any, add: bool) -> Any:
    out = x.copy()
    at = (np.s_[:],) * (dim % x.ndim) + (index,)
    if add:
        np.add.at(out, at, source)
    else:
        out[at] = source
    return out


@composite(
    autocast="promote",
    reference=lambda x, dim, index, source, alpha=1: _numpy_index(x, dim, index, source * alpha, True),
    torch=lambda torch, x, dim, index, source, alpha=1: torch.index_add(x, dim, index, source, alpha=alpha),
    samples=lambda: [
        Sample((_X, 0, np.array([2, 0, 2]), -_X)),
        Sample((_CUBE, -1, np.array([1, 1]), _CUBE[..., :2], 0.5)),
        Sample((_CUBE, 1, np.array([3]), _CUBE[:, ::5])),
    ],
)
def index_add(x: Node, dim: int, index: Node, source: Node, alpha: Any = 1) -> Node:
    """x with slices of `source`, times alpha, added at these positions of one axis.

    >>> pf.index_add(pf.zeros(3), 0, pf.tensor([1, 1]), pf.tensor([1.0, 2.0]))
    tensor([0., 3., 0.])
    """
    return _index_write("index_add", x, dim, index, source if alpha == 1 else source * alpha, "add")


@composite(
    autocast="promote",
    reference=lambda x, dim, index, source: _numpy_index(x, dim, index, source, False),
    torch="index_copy",
    samples=lambda: [Sample((_X, 0, np.array([2, 0]), -_X[:2])), Sample((_CUBE, 1, np.array([3]), _CUBE[:, ::5]))],
)
def index_copy(x: Node, dim: int, index: Node, source: Node) -> Node:
    """x with the slices at these positions of one axis replaced.

    >>> pf.index_copy(pf.zeros(3), 0, pf.tensor([2]), pf.tensor([5.0]))
    tensor([0., 0., 5.])
    """
    return _index_write("index_copy", x, dim, index, source, "assign")


@composite(
    reference=lambda x, dim, index, value: _numpy_index(x, dim, index, value, False),
    torch="index_fill",
    samples=lambda: [
        Sample((_X, 1, np.array([2, 0]), 9.0)),
        Sample((_CUBE, -1, np.array([1]), 0.0)),
        Sample((_CUBE, 1, np.array([4, 0, 4]), np.array(2.0))),
        Sample((_X, 0, np.zeros(0, np.int64), np.array(2.0))),
    ],
)
def index_fill(x: Node, dim: int, index: Node, value: Any) -> Node:
    """x with one number at these positions of an axis.

    >>> pf.index_fill(pf.zeros(3), 0, pf.tensor([2]), 7.0)
    tensor([0., 0., 7.])
    """
    source = cast(value, x.dtype) if isinstance(value, Node) else F.full_const(value, x.dtype)
    if source.ndim:
        raise ShapeError(f"[index_fill] expected a number or a 0-d tensor as value but got shape {source.shape}")
    axis = normalize_axis("index_fill", dim, x.ndim)
    # a mask of the axis: a position that comes twice is one position of the value's gradient too
    size, behind = (x.shape[axis], x.ndim - axis - 1) if x.ndim else (1, 0)
    none = F.full_const(False, bool_, (size,))
    hit = _index_write("index_fill", none, 0, index, F.full_const(True, bool_), "assign")
    return F.where(F.reshape(hit, (size, *[1] * behind) if x.ndim else ()), source, x)


_INDEX_REDUCE = ("prod", "mean", "amax", "amin")


@composite(
    autocast="promote",
    torch=lambda torch, x, dim, index, source, reduce, include_self=True: torch.index_reduce(
        x, dim, index, source, reduce, include_self=include_self
    ),
    samples=lambda: [
        Sample((_CUBE, 1, np.array([3, 0, 3, 3]), np.cos(3 * _CUBE[:, 1:]), reduce), {"include_self": keep})
        for reduce in _INDEX_REDUCE
        for keep in (True, False)
    ],
)
def index_reduce(x: Node, dim: int, index: Node, source: Node, reduce: str, *, include_self: bool = True) -> Node:
    """x with slices of `source` combined into these positions of an axis: "prod", "mean", "amax" or "amin", with x's
    own slices or without.

    >>> pf.index_reduce(pf.ones(2), 0, pf.tensor([0, 0]), pf.tensor([3.0, 5.0]), "prod")
    tensor([15.,  1.])
    """
    if reduce not in _INDEX_REDUCE:
        raise ArgumentError(f"[index_reduce] expected reduce to be one of {_INDEX_REDUCE} but got {reduce!r}")
    if source.dtype is not x.dtype:
        raise DTypeError(
            f"[index_reduce] expected a source of the tensor's dtype {x.dtype.name} but got {source.dtype.name}; "
            "cast it with .to(...)"
        )
    return _combined(
        lambda base, values, mode: _index_write("index_reduce", base, dim, index, values, mode),
        x, source, reduce, include_self,
    )  # fmt: skip


def _numpy_masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    out = np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape)).copy()
    where = np.broadcast_to(mask, out.shape)
    out[where] = source.reshape(-1)[: where.sum()]
    return out


@composite(
    autocast="promote",
    reference=_numpy_masked_scatter,
    torch="masked_scatter",
    samples=lambda: [
        Sample((_X, _X > 0.2, -_X)),
        Sample((_X, _X[0] > 0, np.arange(8.0))),
        Sample((np.ones((2, 1)), np.array([True, False, True]), np.arange(4.0))),
    ],
)
def masked_scatter(x: Node, mask: Node, source: Node) -> Node:
    """x with the elements where a mask holds replaced, in order, by those of a source.

    >>> pf.masked_scatter(pf.zeros(3), pf.tensor([True, False, True]), pf.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """
    if mask.dtype is not bool_:
        raise DTypeError(
            f"[masked_scatter] expected a mask of bools but got {mask.dtype.name}; compare it, e.g. mask != 0"
        )
    shape = broadcast_shapes("masked_scatter", x.shape, mask.shape)
    chosen = F.expand(mask, shape)
    # the number of chosen elements before each one is where its value lies in the source
    order = F.reshape(F.cumsum(F.reshape(cast(chosen, int64), (-1,)), 0), shape) - 1
    if source.size == 0:
        return F.with_nothing(F.expand(x, shape), source)
    picked = F.gather_at(F.reshape(source, (-1,)), (F.where(chosen, order, 0),), (0,), (-1,), shape)
    return F.where(chosen, cast(picked, x.dtype), x)
