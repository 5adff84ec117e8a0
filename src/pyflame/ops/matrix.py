"""Matrix products: `matmul` is the one primitive, everything else is views around it. `einsum` lives in einsum.py."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np

from pyflame.core.dtype import FLOAT8, WIDE_UNSIGNED, DType, as_dtype, bool_, float16, int8, int32
from pyflame.core.errors import DTypeError, ShapeError
from pyflame.core.shape import Shape, broadcast_shapes, normalize_axis
from pyflame.core.state import mode, state
from pyflame.ir import F, Meta, Node, Sample, apply, cast, common_dtype, composite, is_number, primitive
from pyflame.ir.opdef import COMPOSITE, KERNEL, OPS
from pyflame.ops.base import want_number, want_tensors, want_whole


def _ranks(op: str, rank: int, **args: Node) -> None:
    want_tensors(op, **args)
    for name, value in args.items():
        if value.ndim != rank:
            raise ShapeError(
                f"[{op}] expected {name} with {rank} axes but got shape {value.shape}; use matmul for other ranks"
            )


def _matmul_infer(x: Meta, y: Meta, dtype: DType, gradient: bool) -> tuple[Shape, DType]:
    batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    return (*batch, x.shape[-2], y.shape[-1]), dtype


def _transposed(x: Node) -> Node:
    rank = len(x.meta.shape)
    return apply(OPS["permute"], (x,), ((*range(rank - 2), rank - 1, rank - 2),))


def _is_transposed(x: Node) -> bool:
    """Whether x is the transpose of a matrix in memory."""
    return x.op.name == "permute" and x.attrs[0][-1] == x.ndim - 2


def _matmul_grad(g: Node, x: Node, y: Node) -> tuple[Node, Node]:
    # C = AB: dA = dC B^T, dB = A^T dC; batch axes that were broadcast are summed by the walk
    g = cast(g, x.dtype)
    left = F.matmul(g, _transposed(y))
    if prod(y.shape[:-2]) != 1:
        return left, F.matmul(_transposed(x), g)
    # One B for all rows of A: (B, T, K) -> (B*T, K), so that dB is one product and not a sum of many.
    rows = prod(x.shape[:-1])
    x, g = F.reshape(x, (rows, x.shape[-1])), F.reshape(g, (rows, g.shape[-1]))
    if _is_transposed(y):  # then dB is wanted in the memory order of B: dB^T = dC^T A
        right = _transposed(F.matmul(_transposed(g), x))
    else:
        right = F.matmul(_transposed(x), g)
    return left, F.reshape(right, y.shape)


_GRID = np.arange(12.0).reshape(3, 4) / 7 - 0.8


def _matmul_samples() -> list[Sample]:
    r = np.random.default_rng(0).standard_normal
    return [
        Sample((r((3, 4)), r((4, 5)))),
        Sample((r((2, 1, 3, 4)), r((5, 4, 2)))),
        Sample((r(4), r(4))),
        Sample((r(4), r((4, 3)))),
        Sample((r((2, 3, 4)), r(4))),
        Sample((r(3), r((2, 3, 1)))),
        Sample((r((2, 7, 5)), r((5, 3)))),
        Sample((r((5, 3)).T, r((7, 5)).T)),
        Sample((r((6, 3, 4))[::2], r((3, 4, 8))[..., ::2])),
        Sample((r((1, 1)), r((1, 1)))),
        Sample((r((2, 0, 3)), r((3, 4)))),
        Sample((r((2, 0)), r((0, 3)))),
        Sample((r((33, 65)), r((65, 17)))),
        Sample((np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4))),
    ]


MAX_RANK = 8  # kernels step through at most six batch axes


def _product(x: Node, y: Node, dtype: DType) -> Node:
    """The product of matrices in this dtype. Many batch axes are run as one.

    One that makes gradients of float16 is marked: they have subnormals, which some GPUs take for zero.
    """
    if len(x.meta.shape) <= MAX_RANK and len(y.meta.shape) <= MAX_RANK:
        return apply(OPS["matmul"], (x, y), (dtype, x.meta.dtype is float16 and state.in_backward))
    batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    flat = [F.reshape(F.expand(v, (*batch, *v.shape[-2:])), (prod(batch), *v.shape[-2:])) for v in (x, y)]
    return F.reshape(_product(flat[0], flat[1], dtype), (*batch, x.shape[-2], y.shape[-1]))


def _numpy_product(x: Any, y: Any, dtype: DType, gradient: bool) -> Any:
    return np.matmul(x.astype(dtype.numpy, copy=False), y.astype(dtype.numpy, copy=False))


@primitive(
    KERNEL,
    infer=_matmul_infer,
    attrs=("dtype", "gradient"),
    srcs=("x", "y"),
    reference=_numpy_product,
    grad=_matmul_grad,
    torch="matmul",
    cost=2,
    autocast="low",
    samples=_matmul_samples,
)
def matmul(x: Node, y: Node) -> Any:
    """Matrix product with NumPy's broadcasting: vectors count as a row on the left and a column on the right.

    >>> (pf.ones(2, 3) @ pf.ones(3, 4)).shape
    (2, 4)
    """
    rows, columns = x.meta.shape, y.meta.shape
    if not rows or not columns:
        raise ShapeError(f"[matmul] expected at least one axis but got shapes {rows} and {columns}; use * for scalars")
    dtype = x.meta.dtype if x.meta.dtype is y.meta.dtype else common_dtype("matmul", (x, y))
    if dtype is bool_ or dtype in FLOAT8:
        raise DTypeError(f"[matmul] expected numbers to add up but got {dtype.name}; cast first, x.to(pf.float32)")
    if rows[-1] != columns[-2 if len(columns) > 1 else 0]:
        raise ShapeError(f"[matmul] expected inner sizes to match but got {rows} @ {columns}; transpose or reshape one")
    x, y = cast(x, dtype), cast(y, dtype)
    if dtype in WIDE_UNSIGNED:  # sums that wrap have the same bits with and without a sign
        signed = as_dtype(dtype.name[1:])
        return F.bitcast(F.matmul(F.bitcast(x, signed), F.bitcast(y, signed)), dtype)
    row, column = len(rows) == 1, len(columns) == 1
    if not row and not column:
        return _product(x, y, dtype)
    out = _product(F.reshape(x, (1, *rows)) if row else x, F.reshape(y, (*columns, 1)) if column else y, dtype)
    shape = list(out.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return F.reshape(out, tuple(shape))


@composite(public=False)
def matmul_wide(x: Node, y: Node) -> Node:
    """The product of 16-bit matrices as it was added up, in float32: for what is not the end of a computation."""
    return _product(x, y, x.dtype.compute)


@composite(
    reference=np.matmul,
    torch="mm",
    samples=lambda: [Sample((_GRID, _GRID.T)), Sample((_GRID[::2], np.ones((4, 1))))],
)
def mm(x: Node, y: Node) -> Node:
    """Product of two matrices.

    >>> pf.mm(pf.ones(2, 3), pf.ones(3, 4)).shape
    (2, 4)
    """
    _ranks("mm", 2, x=x, y=y)
    return F.matmul(x, y)


def _int8_samples() -> list[Sample]:
    r = np.random.default_rng(1).integers
    sizes = [(3, 4, 5), (33, 65, 17), (1, 40, 64), (2, 0, 3)]
    return [Sample((r(-128, 128, (m, k)).astype("int8"), r(-128, 128, (k, n)).astype("int8"))) for m, k, n in sizes]


@composite(
    reference=lambda x, y: np.matmul(x.astype("int32"), y.astype("int32")),
    torch="_int_mm",
    method=False,
    samples=_int8_samples,
)
def _int_mm(x: Node, y: Node) -> Node:
    """Product of two int8 matrices, added up and given in int32, as quantised layers want it.

    >>> pf._int_mm(pf.full((2, 3), 100, dtype=pf.int8), pf.full((3, 2), 100, dtype=pf.int8))
    tensor([[30000, 30000],
            [30000, 30000]], dtype=pyflame.int32)
    """
    _ranks("_int_mm", 2, x=x, y=y)
    if x.dtype is not int8 or y.dtype is not int8:
        raise DTypeError(f"[_int_mm] expected int8 matrices but got {x.dtype.name} and {y.dtype.name}")
    if x.shape[1] != y.shape[0]:
        raise ShapeError(f"[_int_mm] expected inner sizes to match but got {x.shape} @ {y.shape}")
    return _product(x, y, int32)


@composite(
    reference=np.matmul,
    torch="mv",
    samples=lambda: [Sample((_GRID, np.array([1.0, -2.0, 0.5, 3.0]))), Sample((_GRID.T, np.array([1.0, -2.0, 0.5])))],
)
def mv(x: Node, y: Node) -> Node:
    """Product of a matrix and a vector.

    >>> pf.mv(pf.ones(2, 3), pf.ones(3))
    tensor([3., 3.])
    """
    _ranks("mv", 2, x=x)
    _ranks("mv", 1, y=y)
    return F.matmul(x, y)


@composite(
    reference=np.matmul,
    torch="bmm",
    samples=lambda: [
        Sample((np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(16.0).reshape(2, 4, 2) / 5)),
        Sample((np.ones((1, 1, 1)), np.ones((1, 1, 1)))),
        Sample((np.ones((0, 2, 3)), np.ones((0, 3, 2)))),
    ],
)
def bmm(x: Node, y: Node) -> Node:
    """Product of two stacks of matrices, pair by pair.

    >>> pf.bmm(pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """
    _ranks("bmm", 3, x=x, y=y)
    if x.shape[0] != y.shape[0]:
        raise ShapeError(
            f"[bmm] expected as many matrices on both sides but got {x.shape} and {y.shape}; matmul broadcasts"
        )
    return F.matmul(x, y)


@composite(
    reference=np.matmul,
    torch="matmul",
    samples=lambda: [Sample((np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(8.0).reshape(4, 2) / 5))],
)
def batch_matmul(x: Node, y: Node) -> Node:
    """Matrix products over leading batch axes, which broadcast: matmul for tensors with at least two axes.

    >>> pf.batch_matmul(pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError(
            f"[batch_matmul] expected at least two axes but got {x.shape} and {y.shape}; use matmul for vectors"
        )
    return F.matmul(x, y)


def _linear(x: Node, weight: Node, bias: Node | None = None) -> Node:
    out = F.matmul(x, _transposed(weight) if weight.ndim == 2 else weight)
    return out if bias is None else F.add(out, bias)


def _rows(x: Node) -> Node:
    """All of a tensor as one matrix: (..., n) -> (rows, n)."""
    return F.reshape(x, (prod(x.shape[:-1]), x.shape[-1]))


def _product_of_rows(x: Node, y: Node) -> Node:
    with mode(in_backward=True):  # what it is for
        return F.matmul(_transposed(_rows(x)), _rows(y))


@primitive(
    COMPOSITE,
    infer=lambda x, y: ((x.shape[-1], y.shape[-1]), x.dtype),
    srcs=("x", "y"),
    reference=lambda x, y: x.reshape(-1, x.shape[-1]).T @ y.reshape(-1, y.shape[-1]),
    decompose=_product_of_rows,
    public=False,
)
def matmul_of_rows(x: Node, y: Node) -> Any:
    """The sum of the outer products of all rows of x and y: (..., m), (..., n) -> (m, n)."""
    return (x, y), ()


def _linear_grad(g: Node, x: Node, weight: Node, parents: Sequence[object]) -> tuple[Any, ...]:
    # y = x W^T + b: dx = dy W, dW = dy^T x over all rows, db = dy, which the walk sums
    left = F.matmul(g, weight) if parents[0] is not None else None
    right = F.matmul_of_rows(g, x) if parents[1] is not None else None
    return (left, right, g)[: len(parents)]


@primitive(
    COMPOSITE,
    infer=lambda x, weight, bias=None: ((*x.shape[:-1], weight.shape[0]), x.dtype),
    srcs=("x", "weight", "bias"),
    reference=lambda x, weight, bias=None: x @ weight.T if bias is None else x @ weight.T + bias,
    decompose=_linear,
    grad=_linear_grad,
    torch="nn.functional.linear",
    method=False,
    samples=lambda: [
        Sample((_GRID, np.arange(8.0).reshape(2, 4) / 5)),
        Sample((np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(20.0).reshape(5, 4) / 5, np.arange(5.0))),
        Sample((np.arange(4.0), np.arange(20.0).reshape(5, 4) / 5, np.arange(5.0))),
        Sample((np.arange(4.0), np.arange(4.0))),
        Sample((np.ones((2, 0, 4)), np.ones((5, 4)), np.arange(5.0))),
    ],
    autocast="low",
)
def linear(x: Node, weight: Node, bias: Node | None = None) -> Any:
    """x @ weight.T + bias, with weight of shape (out, in) or (in,).

    >>> pf.linear(pf.ones(2, 3), pf.ones(4, 3), pf.zeros(4)).shape
    (2, 4)
    """
    xs, ws, dtype = x.meta.shape, weight.meta.shape, x.meta.dtype
    if len(ws) not in (1, 2) or not xs or xs[-1] != ws[-1]:
        raise ShapeError(f"[linear] expected x (..., in) and weight (out, in) but got {xs} and {ws}")
    if bias is not None and bias.meta.shape != ws[:-1]:
        raise ShapeError(f"[linear] expected a bias of shape {ws[:-1]} but got {bias.meta.shape}")
    srcs = (x, weight) if bias is None else (x, weight, bias)
    if len(ws) == 1 or not dtype.is_float or dtype in FLOAT8 or {s.meta.dtype for s in srcs} != {dtype}:
        return _linear(*srcs)
    return srcs, ()


@composite(
    reference=np.outer,
    torch="outer",
    samples=lambda: [Sample((np.arange(3.0), np.arange(4.0))), Sample((np.ones(1), np.ones(0)))],
)
def outer(x: Node, y: Node) -> Node:
    """All products of an element of x and an element of y.

    >>> pf.outer(pf.ones(2), pf.ones(3)).shape
    (2, 3)
    """
    _ranks("outer", 1, x=x, y=y)
    return F.mul(F.reshape(x, (x.size, 1)), F.reshape(y, (1, y.size)))


_VECTORS = (np.array([1.0, -2.0, 0.5]), np.array([0.25, 3.0, -1.0]))


@composite(reference=np.dot, torch="dot", samples=lambda: [Sample(_VECTORS), Sample((np.ones(0), np.ones(0)))])
def dot(x: Node, y: Node) -> Node:
    """Inner product of two vectors.

    >>> pf.dot(pf.ones(3), pf.ones(3))
    tensor(3.)
    """
    _ranks("dot", 1, x=x, y=y)
    return F.matmul(x, y)


@composite(reference=np.vdot, torch="vdot", samples=lambda: [Sample(_VECTORS)])
def vdot(x: Node, y: Node) -> Node:
    """Inner product of two vectors, of which the first is conjugated.

    >>> pf.vdot(pf.ones(3), pf.ones(3))
    tensor(3.)
    """
    _ranks("vdot", 1, x=x, y=y)
    return F.matmul(F.conj(x), y)


@composite(
    reference=np.inner,
    torch="inner",
    samples=lambda: [Sample(_VECTORS), Sample((_GRID, np.arange(8.0).reshape(2, 4))), Sample((np.array(2.0), _GRID))],
)
def inner(x: Node, y: Node) -> Node:
    """Sum of products over the last axis of both.

    >>> pf.inner(pf.ones(2, 3), pf.ones(4, 3)).shape
    (2, 4)
    """
    return F.mul(x, y) if x.ndim == 0 or y.ndim == 0 else F.tensordot(x, y, ([x.ndim - 1], [y.ndim - 1]))


@composite(
    reference=lambda x, y, dims=2: np.tensordot(x, y, dims),
    torch="tensordot",
    samples=lambda: [
        Sample((np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(60.0).reshape(3, 4, 5) / 9)),
        Sample((np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(30.0).reshape(3, 5, 2) / 9, ([1, 0], [0, 2]))),
        Sample((np.arange(3.0), np.arange(4.0), 0)),
    ],
)
def tensordot(x: Node, y: Node, dims: Any = 2) -> Node:
    """Sum of products over the last `dims` axes of x and the first of y, or over two lists of axes.

    >>> pf.tensordot(pf.ones(2, 3, 4), pf.ones(3, 4, 5)).shape
    (2, 5)
    """
    if isinstance(dims, int) and not isinstance(dims, bool):
        if not 0 <= dims <= min(x.ndim, y.ndim):
            raise ShapeError(f"[tensordot] expected dims in [0, {min(x.ndim, y.ndim)}] but got {dims}")
        pairs: Any = (range(x.ndim - dims, x.ndim), range(dims))
    else:
        pairs = dims
    if not isinstance(pairs, (tuple, list)) or len(pairs) != 2:
        raise ShapeError(f"[tensordot] expected dims to be a number or two lists of axes but got {dims!r}")
    left, right = ([axes] if isinstance(axes, int) else list(axes) for axes in pairs)
    left = [normalize_axis("tensordot", a, x.ndim) for a in left]
    right = [normalize_axis("tensordot", a, y.ndim) for a in right]
    # an axis of size 1 meets any other: what it meets is summed
    pairs = [(a, b, {x.shape[a], y.shape[b]}) for a, b in zip(left, right, strict=False)]
    met = [(a, b) for a, b, both in pairs if 1 in both and len(both) == 2]
    if met:
        x, y = (F.sum(v, axes, keepdims=True) for v, axes in zip((x, y), zip(*met, strict=True), strict=True))
    sizes = [x.shape[a] for a in left], [y.shape[a] for a in right]
    if sizes[0] != sizes[1] or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(
            f"[tensordot] expected pairs of axes of equal size but got {x.shape} over {left} and {y.shape} over {right}"
        )
    rows, columns = [a for a in range(x.ndim) if a not in left], [a for a in range(y.ndim) if a not in right]
    kept = [x.shape[a] for a in rows], [y.shape[a] for a in columns]
    a = F.reshape(F.permute(x, (*rows, *left)), (prod(kept[0]), prod(sizes[0])))
    b = F.reshape(F.permute(y, (*right, *columns)), (prod(sizes[0]), prod(kept[1])))
    return F.reshape(F.matmul(a, b), (*kept[0], *kept[1]))


def add_product(op: str, x: Node, product: Node, beta: Any, alpha: Any) -> Node:
    """beta * x + alpha * product, in the shape of the product. beta = 0 leaves x out, NaN and all, as BLAS does."""
    dtype = common_dtype(op, (x, product))
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if not is_number(factor) and not (isinstance(factor, complex) and dtype.is_complex):
            raise DTypeError(f"[{op}] expected a number as {name} but got {type(factor).__name__}")
    if broadcast_shapes(op, x.shape, product.shape) != product.shape:
        raise ShapeError(f"[{op}] expected an input that broadcasts to {product.shape} but got {x.shape}")
    if not dtype.has_gradient:  # integers stay integers
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else F.mul(product, alpha)
    return product if beta == 0 else F.add(x if beta == 1 else F.mul(x, beta), product)


def _add_matmul(op: str, rank: int, x: Any, left: Any, right: Any, beta: Any, alpha: Any) -> Node:
    _ranks(op, rank, left=left, right=right)
    return add_product(op, x, F.matmul(left, right), beta, alpha)


@composite(
    reference=lambda input, mat1, mat2, beta=1, alpha=1: beta * input + alpha * (mat1 @ mat2),
    torch="addmm",
    samples=lambda: [
        Sample((np.arange(9.0).reshape(3, 3), _GRID, _GRID.T)),
        Sample((np.arange(3.0), _GRID, _GRID.T), {"beta": 0.5, "alpha": 2.0}),
    ],
    autocast="low",
)
def addmm(input: Node, mat1: Node, mat2: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta * input + alpha * (mat1 @ mat2).

    >>> pf.addmm(pf.ones(4), pf.ones(2, 3), pf.ones(3, 4)).shape
    (2, 4)
    """
    return _add_matmul("addmm", 2, input, mat1, mat2, beta, alpha)


@composite(
    reference=lambda input, batch1, batch2, beta=1, alpha=1: beta * input + alpha * (batch1 @ batch2),
    torch="baddbmm",
    samples=lambda: [
        Sample(
            (np.ones((2, 3, 2)), np.arange(24.0).reshape(2, 3, 4) / 9, np.arange(16.0).reshape(2, 4, 2)), {"alpha": 0.5}
        )
    ],
    autocast="low",
)
def baddbmm(input: Node, batch1: Node, batch2: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta * input + alpha * (batch1 @ batch2), over stacks of matrices.

    >>> pf.baddbmm(pf.ones(5, 2, 4), pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """
    return _add_matmul("baddbmm", 3, input, batch1, batch2, beta, alpha)


# --- vectors and tables ---------------------------------------------------------------------------------------------


@composite(
    torch=lambda torch, x, y, axis=None: torch.cross(x, y, axis) if axis is not None else torch.cross(x, y),
    samples=lambda: [
        Sample((np.arange(12.0).reshape(4, 3) % 5, np.arange(12.0).reshape(4, 3) % 7, 1)),
        Sample((np.arange(12.0).reshape(3, 4) % 5, np.arange(12.0).reshape(3, 4) % 7)),
        Sample((np.arange(3.0)[None], np.arange(12.0).reshape(4, 3) % 7, -1)),
        Sample((np.arange(3), np.array([4, 5, 7]), 0)),
    ],
)
def cross(x: Node, y: Node, axis: int | None = None) -> Node:
    """The cross product of vectors of size 3 along an axis; along the first of that size where none is given.

    >>> pf.cross(pf.tensor([1.0, 0.0, 0.0]), pf.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if x.ndim != y.ndim:
        raise ShapeError(f"[cross] expected as many axes in both tensors but got {x.shape} and {y.shape}")
    found = [a for a, n in enumerate(x.shape) if n == 3] if axis is None else [normalize_axis("cross", axis, x.ndim)]
    if not found or not x.ndim or x.shape[found[0]] != 3 or y.shape[found[0]] != 3:
        raise ShapeError(f"[cross] expected an axis of size 3 but got {x.shape} and {y.shape} along axis {axis}")
    at = found[0]
    a, b = ([F.narrow(v, at, i, 1) for i in range(3)] for v in (x, y))
    return F.cat([F.sub(a[i - 2] * b[i - 1], a[i - 1] * b[i - 2]) for i in range(3)], at)


@composite(
    reference=np.kron,
    torch="kron",
    samples=lambda: [
        Sample((_GRID, np.arange(6.0).reshape(2, 3))),
        Sample((np.arange(3.0), _GRID)),
        Sample((_GRID, np.array(2.0))),
        Sample((np.arange(3), np.arange(2))),
    ],
)
def kron(x: Node, y: Node) -> Node:
    """Kronecker's product: y, times each element of x, in place of that element.

    >>> pf.kron(pf.eye(2), pf.ones(2, 3)).shape
    (4, 6)
    """
    rank = max(x.ndim, y.ndim)
    a, b = ((*[1] * (rank - v.ndim), *v.shape) for v in (x, y))
    left = F.reshape(x, tuple(n for size in a for n in (size, 1)))
    right = F.reshape(y, tuple(n for size in b for n in (1, size)))
    return F.reshape(F.mul(left, right), tuple(n * m for n, m in zip(a, b, strict=True)))


@composite(
    reference=lambda x, N=None, increasing=False: np.vander(x, N, increasing),
    torch=lambda torch, x, N=None, increasing=False: (  # torch.vander cannot be differentiated
        x[:, None] ** torch.arange(len(x) if N is None else N).flip(0)
        if not increasing
        else x[:, None] ** torch.arange(N)
    ),
    samples=lambda: [
        Sample((np.array([0.0, 1.0, 2.0, -3.0]),)),
        Sample((np.array([0.5, 1.5]), 4, True)),
        Sample((np.array([2, 3]), 3)),
        Sample((np.array([2.0, 3.0]), 0)),
    ],
    method=False,
)
def vander(x: Node, N: int | None = None, increasing: bool = False) -> Node:
    """The powers of a vector's elements, one column per power: N of them, or as many as there are elements.

    >>> pf.vander(pf.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    _ranks("vander", 1, x=x)
    columns = x.size if N is None else want_whole("vander", "N", N)
    if columns < 0:
        raise ShapeError(f"[vander] expected N of at least 0 but got {columns}")
    powers = F.pow(F.reshape(x, (x.size, 1)), F.iota_like(x, (columns,)))
    return powers if increasing else F.flip(powers, 1)


@composite(
    torch=lambda torch, x1, x2, p=2.0: torch.cdist(x1, x2, p, "donot_use_mm_for_euclid_dist"),
    samples=lambda: [
        *[Sample((_GRID, np.arange(8.0).reshape(2, 4) % 3, p)) for p in (2.0, 1.0, 3.5, 0.0)],
        Sample((_GRID, np.arange(8.0).reshape(2, 4) % 3, inf), grad=False),
        Sample((np.arange(24.0).reshape(2, 3, 4) % 5, np.arange(8.0).reshape(1, 2, 4) % 3)),
        Sample((np.ones((2, 3)), np.ones((2, 3)))),
        Sample((np.ones((2, 0)), np.ones((3, 0))), grad=False),
    ],
    method=False,
    autocast="high",
)
def cdist(x1: Node, x2: Node, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Node:
    """The p-norm distance of each row of x1 to each row of x2, over stacks of matrices. No product is used for p = 2.

    >>> pf.cdist(pf.tensor([[0.0, 0.0]]), pf.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"[cdist] expected rows of one size, (..., P, M) and (..., R, M), but got {x1.shape}, {x2.shape}"
        )
    order = want_number("cdist", "p", p)
    if not order >= 0:
        raise ShapeError(f"[cdist] expected p of at least 0 but got {p}")
    off = F.sub(F.unsqueeze(x1, -2), F.unsqueeze(x2, -3))
    return F.norm(off, order, -1) if x1.shape[-1] else F.sum(off, -1)
