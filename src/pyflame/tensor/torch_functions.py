"""Functions of `torch` itself that are made of others: copies of views, products, differences, combinations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import bool_, complex128, float32, float64
from pyflame.core.errors import ArgumentError, NotSupportedError, ShapeError
from pyflame.core.shape import is_contiguous, normalize_axis
from pyflame.ir.opdef import OPS
from pyflame.tensor.creation import as_tensor, empty, ones_like, tensor, zeros_like
from pyflame.tensor.dispatch import FUNCTIONS, call
from pyflame.tensor.linalg import lu_solve as _lu_solve
from pyflame.tensor.linalg import matrix_norm, multi_dot, norm, solve_triangular
from pyflame.tensor.paths import Layout
from pyflame.tensor.tensor import Tensor
from pyflame.tensor.views import layout, links_above, root_of

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


def _copying(name: str) -> Callable[..., Any]:
    """A view op whose results share no memory with its argument."""

    def function(*args: Any, **kwargs: Any) -> Any:
        out = getattr(Tensor, name)(*args, **kwargs)
        return tuple(t.clone() for t in out) if isinstance(out, (tuple, list)) else out.clone()

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__module__ = __name__  # so that it is published, and asks
    function.__doc__ = f"`{name}` in memory of its own."
    return function


detach_copy, diagonal_copy, expand_copy, permute_copy, select_copy, split_copy, squeeze_copy = map(
    _copying, ("detach", "diagonal", "expand", "permute", "select", "split", "squeeze")
)
split_with_sizes_copy = _copying("split_with_sizes")
t_copy, transpose_copy, unbind_copy, unfold_copy, unsqueeze_copy, view_copy = map(
    _copying, ("t", "transpose", "unbind", "unfold", "unsqueeze", "view")
)


def alias_copy(input: Tensor) -> Tensor:
    """The same values in memory of their own."""
    return input.clone()


def detach(input: Tensor) -> Tensor:
    """The same memory, outside of the tape.

    >>> pf.detach(pf.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """What one of two functions gives of the operands. Evaluates `pred`: within jit use pf.where.

    >>> pf.cond(pf.tensor(True), lambda x: x + 1, lambda x: x - 1, (pf.ones(1),))
    tensor([2.])
    """
    return (true_fn if bool(pred) else false_fn)(*operands)


def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor without values whose axes lie in memory in this order, outermost first.

    >>> pf.empty_permuted((2, 3, 5), (1, 2, 0)).stride()
    (1, 10, 2)
    """
    order = [int(axis) for axis in physical_layout]
    if sorted(order) != list(range(len(size))):
        raise ArgumentError(f"[empty_permuted] expected an order of {len(size)} axes but got {physical_layout!r}")
    made = empty([size[axis] for axis in order], dtype=dtype, device=device)
    return made.permute([order.index(axis) for axis in range(len(order))]).requires_grad_(requires_grad)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor without values with these strides, where they leave no gaps in memory.

    >>> pf.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    order = sorted(range(len(size)), key=lambda axis: -stride[axis])
    made = empty_permuted(size, order, dtype=dtype, device=device, requires_grad=requires_grad)
    if any(n > 1 and a != b for n, a, b in zip(size, made.stride(), stride, strict=True)):
        raise NotSupportedError(
            f"[empty_strided] expected strides without gaps or overlap but got {tuple(stride)} for {tuple(size)}; use "
            "as_strided to read another tensor so"
        )
    return made


def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of this shape and dtype with one value everywhere.

    >>> pf.fill(pf.zeros(2), 3)
    tensor([3., 3.])
    """
    return F["where"](zeros_like(input, dtype=bool_), input, as_tensor(value).to(input.dtype))


def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed and conjugated.

    >>> pf.adjoint(pf.ones(2, 3)).shape
    (3, 2)
    """
    return F["conj"](input.transpose(-2, -1))


def isreal(input: Tensor) -> Tensor:
    """Where there is no imaginary part."""
    return input.imag == 0 if input.dtype.is_complex else ones_like(input, dtype=bool_)


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed, not noted."""
    return input


resolve_neg = resolve_conj


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that other libraries take."""
    return tensor.__dlpack__()


def frobenius_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return norm(input, 2 if isinstance(dim, int) else "fro", dim, keepdim)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values."""
    return matrix_norm(input, "nuc", dim, keepdim)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order."""
    return multi_dot(list(matrices))


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = B, with the factor L of A = L Lᵀ (of A = Lᵀ L if `upper`).

    >>> pf.cholesky_solve(pf.ones(2, 1), pf.eye(2) * 2)
    tensor([[0.2500],
            [0.2500]])
    """
    low = adjoint(L) if upper else L
    return solve_triangular(adjoint(low), solve_triangular(low, B, upper=False), upper=True)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = b, with what `linalg.lu_factor` gave for A."""
    return _lu_solve(LU_data, LU_pivots, b)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A = L Lᵀ."""
    return cholesky_solve(F["expand"](tensor(np.eye(L.shape[-1]), dtype=L.dtype, device=L.device), L.shape), L, upper)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """Areas below a curve up to each point but the first.

    >>> pf.cumulative_trapezoid(pf.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    axis = normalize_axis("cumulative_trapezoid", dim, y.ndim)
    count = y.shape[axis]
    heights = (y.narrow(axis, 1, count - 1) + y.narrow(axis, 0, count - 1)) * 0.5
    if x is None:
        return F["cumsum"](heights * (1.0 if dx is None else dx), axis)
    widths = F["diff"](x, dim=0 if x.ndim == 1 else axis)
    widths = widths.reshape([-1 if a == axis else 1 for a in range(y.ndim)]) if x.ndim == 1 else widths
    return F["cumsum"](heights * widths, axis)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements, as rows.

    >>> pf.combinations(pf.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input.ndim != 1 or r < 0:
        raise ShapeError(f"[combinations] expected a vector and r of 0 or more but got {input.shape} and {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    if not r:
        return input.new_empty(0)
    return input[tensor(np.array(rows, np.int64).reshape(-1, r))]


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Positions in a flat tensor as positions along each axis.

    >>> pf.unravel_index(pf.tensor([5]), (2, 3))
    (tensor([1]), tensor([2]))
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in sizes) or indices.dtype.is_float:
        raise ArgumentError(f"[unravel_index] expected integers and sizes from 0 but got {indices.dtype} and {shape}")
    out: list[Tensor] = []
    for n in reversed(sizes):
        out.append(indices % n)
        indices = indices // n
    return tuple(reversed(out))


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy whose diagonal is `src`.

    >>> pf.diagonal_scatter(pf.zeros(2, 2), pf.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    out = input.clone()
    out.diagonal(offset, dim1, dim2).copy_(src)
    return out


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions; special.multigammaln.

    >>> pf.mvlgamma(pf.tensor([2.0]), 1)
    tensor([0.])
    """
    if not isinstance(p, int) or p < 1:
        raise ArgumentError(f"[mvlgamma] expected a p of at least 1 but got {p!r}")
    steps = tensor(np.arange(p) * -0.5, dtype=input.dtype if input.dtype.is_float else float32, device=input.device)
    return F["lgamma"](input.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4.0 * math.log(math.pi)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` positions of elements that are not 0, and fill_value where there are fewer. Evaluates input.

    >>> pf.nonzero_static(pf.tensor([0, 5, 7]), size=3).tolist()
    [[1], [2], [-1]]
    """
    if size < 0:
        raise ArgumentError(f"[nonzero_static] expected a size of at least 0 but got {size}")
    found = input.nonzero()[:size]
    return F["pad"](found, (0, 0, 0, size - len(found)), value=fill_value)


def _memory_of(input: Tensor) -> Tensor:
    """The tensor that holds a view's memory: where as_strided of the view counts, whatever the view has of it."""
    links = list(links_above(input))
    root = root_of(input)
    if root.dtype is not input.dtype:
        raise NotSupportedError(
            f"[as_strided] expected a view of the dtype that its memory has but got {input.dtype.name} over "
            f"{root.dtype.name}; use .clone() first"
        )
    return root if all(link.attached for link in links) else root.detach()


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of these sizes whose neighbours along each axis lie `stride` elements apart. Where elements share places
    in memory it can be read only.

    >>> pf.as_strided(pf.arange(5), (3, 2), (1, 1))
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    sizes, steps = tuple(map(int, size)), tuple(map(int, stride))
    own = layout(input)
    begin = 0 if storage_offset is None else storage_offset - own.offset
    last = begin + sum((n - 1) * s for n, s in zip(sizes, steps, strict=False))
    is_part = any(link.path for link in links_above(input))
    if is_part and (begin < 0 or last >= input.numel() or not is_contiguous(own.shape, own.strides)):
        return as_strided(_memory_of(input), sizes, steps, own.offset + begin)
    out: Tensor = call(OPS["strided"].fn, (input, sizes, steps, begin), {}, input)
    if out._link is not None:
        out._link.layout = Layout(sizes, steps, own.offset + begin, out.dtype)
        places = np.zeros(sizes, np.int64)
        for axis, (n, s) in enumerate(zip(sizes, steps, strict=True)):
            places += (np.arange(n) * s).reshape(-1, *[1] * (len(sizes) - axis - 1))
        out._link.overlaps = len(np.unique(places)) < places.size
    return out


def as_strided_copy(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """`as_strided` in memory of its own."""
    return as_strided(input, size, stride, storage_offset).clone()


def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of input with src where `as_strided` reads.

    >>> pf.as_strided_scatter(pf.zeros(4), pf.ones(2), (2,), (2,))
    tensor([1., 0., 1., 0.])
    """
    out = input.clone()
    as_strided(out, size, stride, storage_offset).copy_(src)
    return out


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
    """Central differences along axes, one-sided at the ends; `spacing`: a step, one for each axis, or coordinates.

    >>> pf.gradient(pf.tensor([1.0, 4.0, 9.0]))
    [tensor([3., 4., 5.])]
    """
    axes = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    spacing = 1.0 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    if edge_order not in (1, 2) or len(steps) != len(axes):
        raise ArgumentError(
            f"[gradient] expected edge_order 1 or 2 and {len(axes)} spacings but got {edge_order} and {spacing!r}"
        )
    axes = [normalize_axis("gradient", a, input.ndim) for a in axes]
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"[gradient] expected each axis once but got {dim!r}")
    return [_differences(input, step, axis, edge_order) for axis, step in zip(axes, steps, strict=True)]


def _differences(x: Tensor, step: Any, axis: int, order: int) -> Tensor:
    n = x.shape[axis]
    if n < order + 1:
        raise ShapeError(f"[gradient] expected at least {order + 1} points along axis {axis} but got {n}")
    dtype = x.dtype if x.dtype.is_float else float64 if x.dtype is complex128 else float32
    at = step if isinstance(step, Tensor) else tensor(np.arange(n) * float(step), dtype=dtype)
    at = at.reshape([-1 if a == axis else 1 for a in range(x.ndim)])

    def part(v: Tensor, first: int, count: int) -> Tensor:
        return v.narrow(axis, first, count)

    gaps, rises = F["diff"](at, dim=axis), F["diff"](x, dim=axis)
    slopes = rises / gaps
    before, after = part(gaps, 0, n - 2), part(gaps, 1, n - 2)
    inner = (part(slopes, 0, n - 2) * after + part(slopes, 1, n - 2) * before) / (before + after)
    first, last = part(slopes, 0, 1), part(slopes, n - 2, 1)
    if order == 2:
        a, b = part(gaps, 0, 1), part(gaps, 1, 1)
        first = first + (first - part(slopes, 1, 1)) * a / (a + b)
        a, b = part(gaps, n - 2, 1), part(gaps, n - 3, 1)
        last = last + (last - part(slopes, n - 3, 1)) * a / (a + b)
    return F["cat"]([first, inner, last], axis)
