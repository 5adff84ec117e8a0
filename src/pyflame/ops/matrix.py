"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import DType
from pyflame.core.errors import ShapeError
from pyflame.core.shape import Shape, broadcast_shapes
from pyflame.ir import F, Meta, Node, Sample, cast, common_dtype, primitive
from pyflame.ir.opdef import KERNEL


def _matmul_infer(x: Meta, y: Meta) -> tuple[Shape, DType]:
    batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    return (*batch, x.shape[-2], y.shape[-1]), x.dtype


def _transposed(x: Node) -> Node:
    return F.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@primitive(
    KERNEL,
    infer=_matmul_infer,
    srcs=("x", "y"),
    reference=np.matmul,
    # C = AB: dA = dC B^T, dB = A^T dC; batch axes that were broadcast are summed by the walk
    grad=lambda g, x, y: (F.matmul(g, _transposed(y)), F.matmul(_transposed(x), g)),
    torch="matmul",
    cost=2,
    autocast="low",
    samples=lambda: [Sample((np.ones((3, 4)), np.ones((4, 5)))), Sample((np.ones((2, 1, 3, 4)), np.ones((5, 4, 2))))],
)
def matmul(x: Node, y: Node) -> Any:
    """Matrix product with NumPy's broadcasting: vectors count as a row on the left and a column on the right.

    >>> (pf.ones(2, 3) @ pf.ones(3, 4)).shape
    (2, 4)
    """
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"[matmul] expected tensors with at least one axis but got shapes {x.shape} and {y.shape}; use * for scalars")
    dtype = common_dtype("matmul", (x, y))
    if x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise ShapeError(f"[matmul] expected inner sizes to match but got {x.shape} @ {y.shape}")
    x, y = cast(x, dtype), cast(y, dtype)
    row, column = x.ndim == 1, y.ndim == 1
    if not row and not column:
        return (x, y), ()
    out = F.matmul(F.reshape(x, (1, *x.shape)) if row else x, F.reshape(y, (*y.shape, 1)) if column else y)
    shape = list(out.shape)
    if row:
        del shape[-2]
    if column:
        del shape[-1]
    return F.reshape(out, tuple(shape))
