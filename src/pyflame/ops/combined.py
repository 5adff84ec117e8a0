"""Names of PyTorch that are short combinations of other ops: sums of products, assembled and changed matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.ir import F, Node, Sample, cast, common_dtype, composite
from pyflame.ops.base import want_tensors, want_whole
from pyflame.ops.matrix import add_product

_M = np.sin(np.arange(12.0) * 7.1).reshape(3, 4)
_V, _W = np.cos(np.arange(3.0)), np.sin(np.arange(4.0) + 1)
_CUBE = np.sin(np.arange(24.0) * 3.3).reshape(2, 3, 4)

# --- sums of products -----------------------------------------------------------------------------------------------


@composite(
    torch="addmv",
    samples=lambda: [Sample((_V, _M, _W)), Sample((_V[:1], _M, _W), {"beta": 0.5, "alpha": 2.0})],
)
def addmv(input: Node, mat: Node, vec: Node, *, beta: float = 1, alpha: float = 1) -> Node:
    """beta * input + alpha * (mat @ vec).

    >>> pf.addmv(pf.ones(2), pf.eye(2), pf.tensor([1.0, 2.0]))
    tensor([2., 3.])
    """
    return add_product("addmv", input, F.mv(mat, vec), beta, alpha)


@composite(
    torch="addr",
    samples=lambda: [Sample((_M, _V, _W)), Sample((_M, _V, _W), {"beta": 0.5, "alpha": 2.0})],
)
def addr(input: Node, vec1: Node, vec2: Node, *, beta: float = 1, alpha: float = 1) -> Node:
    """beta * input + alpha * outer(vec1, vec2).

    >>> pf.addr(pf.zeros(2, 2), pf.ones(2), pf.tensor([1.0, 2.0]))
    tensor([[1., 2.],
            [1., 2.]])
    """
    product = F.outer(vec1, vec2)
    if input.dtype is product.dtype is bool_:  # sums of truth values: or
        product = F.logical_and(product, bool(alpha))
        return F.expand(F.logical_or(F.logical_and(input, bool(beta)), product), product.shape)
    return add_product("addr", input, product, beta, alpha)


@composite(
    torch="addbmm",
    samples=lambda: [
        Sample((_M, _CUBE[..., :2], _CUBE[:, :2])),
        Sample((_M, _CUBE[..., :2], _CUBE[:, :2]), {"beta": 0.5, "alpha": 2.0}),
    ],
)
def addbmm(input: Node, batch1: Node, batch2: Node, *, beta: float = 1, alpha: float = 1) -> Node:
    """beta * input + alpha * the sum of the products of two batches of matrices.

    >>> pf.addbmm(pf.zeros(2, 2), pf.ones(3, 2, 4), pf.ones(3, 4, 2))
    tensor([[12., 12.],
            [12., 12.]])
    """
    return add_product("addbmm", input, F.sum(F.bmm(batch1, batch2), 0), beta, alpha)


@composite(
    torch=lambda torch, x, y, p=2: torch.dist(x, y, p),
    samples=lambda: [Sample((_M, _M[::-1] * 2 + 1)), Sample((_M, _W, 1)), Sample((_M, _W, float("inf")))],
)
def dist(x: Node, y: Node, p: float = 2) -> Node:
    """The p-norm of x - y.

    >>> pf.dist(pf.tensor([3.0, 0.0]), pf.tensor([0.0, 4.0]))
    tensor(5.)
    """
    return F.norm(x - y, p)


# --- matrices put together ------------------------------------------------------------------------------------------


@composite(
    torch="diagflat",
    samples=lambda: [Sample((_V,)), Sample((_M, 1)), Sample((_V, -2)), Sample((np.array(2.0),))],
)
def diagflat(x: Node, offset: int = 0) -> Node:
    """A matrix with these elements, flattened, on a diagonal.

    >>> pf.diagflat(pf.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return F.diag_embed(F.reshape(x, (-1,)), offset)


@composite(
    torch="block_diag",
    samples=lambda: [Sample((_M, _V, _M[:1])), Sample((np.array(2.0), _M)), Sample((np.arange(3), _M))],
    method=False,
)
def block_diag(*tensors: Node) -> Node:
    """Matrices along the diagonal of a larger one, zeros elsewhere; vectors count as rows, numbers as 1 x 1.

    >>> pf.block_diag(pf.ones(1, 2), pf.tensor(3.0))
    tensor([[1., 1., 0.],
            [0., 0., 3.]])
    """
    if not tensors:
        raise ArgumentError("[block_diag] expected at least one tensor but got none")
    want_tensors("block_diag", **{f"tensor {n}": t for n, t in enumerate(tensors)})
    if any(t.ndim > 2 for t in tensors):
        raise ShapeError(f"[block_diag] expected at most two axes but got {[t.shape for t in tensors]}")
    blocks = [F.reshape(t, (1,) * (2 - t.ndim) + t.shape) for t in tensors]
    dtype = common_dtype("block_diag", tensors)
    out = F.full_const(0, dtype, (sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)))
    row = column = 0
    for block in blocks:
        rows, columns = block.shape
        out = F.assign(out, block, ((row, 1, rows), (column, 1, columns)))
        row, column = row + rows, column + columns
    return out


# --- changed ----------------------------------------------------------------------------------------------------------


@composite(
    torch="select_scatter",
    samples=lambda: [Sample((_M, _W * 9, 0, 1)), Sample((_CUBE, _M[:2] * 5, 1, -1))],
)
def select_scatter(x: Node, src: Node, dim: int, index: int) -> Node:
    """x with the slice at one position of an axis replaced.

    >>> pf.select_scatter(pf.zeros(2, 2), pf.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    part = F.select(x, dim, index)
    if part.shape != src.shape:
        raise ShapeError(f"[select_scatter] expected a source of shape {part.shape} but got {src.shape}")
    axis = normalize_axis("select_scatter", dim, x.ndim)
    at = want_whole("select_scatter", "index", index) % x.shape[axis]
    region = tuple((at, 1, 1) if a == axis else (0, 1, n) for a, n in enumerate(x.shape))
    return F.assign(x, F.unsqueeze(src, axis), region)


@composite(
    torch="slice_scatter",
    samples=lambda: [Sample((_M, _M[:2] * 9, 0, 1)), Sample((_M, _M[:, :2] * 5, 1, 0, 4, 2)), Sample((_M, _M))],
)
def slice_scatter(
    x: Node, src: Node, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Node:
    """x with a range of an axis replaced.

    >>> pf.slice_scatter(pf.zeros(3), pf.ones(2), 0, 1)
    tensor([0., 1., 1.])
    """
    axis = normalize_axis("slice_scatter", dim, x.ndim)
    if x.ndim == 0 or step < 1:
        raise ArgumentError(f"[slice_scatter] expected axes and a step of at least 1 but got {x.shape} and {step}")
    first, last, by = slice(start, end, step).indices(x.shape[axis])
    count = len(range(first, last, by))
    region = tuple((first, by, count) if a == axis else (0, 1, n) for a, n in enumerate(x.shape))
    if src.shape != tuple(n for _, _, n in region):
        raise ShapeError(f"[slice_scatter] expected a source of {count} along axis {axis} but got {src.shape}")
    return F.assign(x, src, region)


@composite(torch="msort", samples=lambda: [Sample((_M,)), Sample((_V,)), Sample((np.array([3, 1, 2]),))])
def msort(x: Node) -> Node:
    """The elements in order along the first axis.

    >>> pf.msort(pf.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    """
    order: Any = F.sort(x, 0)
    return order.values  # type: ignore[no-any-return]


@composite(
    torch="ldexp",
    samples=lambda: [
        Sample((_V, np.array([0, 2, 1]))),
        Sample((_V, np.array([0, -2, -1])), grad=False),
        Sample((np.arange(3), np.arange(3))),
    ],
)
def ldexp(x: Node, y: Node) -> Node:
    """x * 2**y.

    >>> pf.ldexp(pf.tensor([1.0]), pf.tensor([3]))
    tensor([8.])
    """
    out = F.mul(x, F.pow(2.0, y))
    return cast(out, x.dtype) if x.dtype.is_float and not y.dtype.is_float else out
