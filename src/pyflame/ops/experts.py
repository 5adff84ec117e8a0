"""Products with one matrix of a stack for each line, as in a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, int64
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import DTypeError, ShapeError
from pyflame.core.shape import Shape
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import want_elements, want_integers, want_tensors
from pyflame.ops.encoded import sample_bytes, want_activation_bits, want_bytes, wanted_float

OP = "expert_linear"


def _stack(data: Node, kind: str | None, dtype: DType) -> Node:
    return data if kind is None else F.dequantize(data, encoding=kind, dtype=dtype)


def _lines(x: Node, ids: Node) -> Node:
    """The line of x that each id multiplies: (lines, width)"""
    rows, wide = prod(x.shape[:-1]), x.shape[-1]
    share = prod(ids.shape[x.ndim - 1 :])
    return F.reshape(F.expand(F.reshape(x, (rows, 1, wide)), (rows, share, wide)), (rows * share, wide))


def _decomposed(x: Node, data: Node, ids: Node, kind: str | None, bits: int) -> Node:
    """Few lines: their matrices are gathered. More: every matrix sees every line."""
    (count, out), each = data.shape[:2], _lines(x, ids)
    lines, wide = each.shape
    flat = F.reshape(ids, (lines,))
    if lines <= count:
        matrices = _stack(F.index_select(data, 0, flat), kind, x.dtype)
        y = F.matmul(F.reshape(each, (lines, 1, wide)), F.permute(matrices, (0, 2, 1)))
    else:
        every = F.matmul(F.reshape(each, (1, lines, wide)), F.permute(_stack(data, kind, x.dtype), (0, 2, 1)))
        index = F.reshape(flat, (lines, 1)), F.reshape(F.iota_like(ids, (lines,)), (lines, 1))
        y = F.gather_at(every, index, (0, 1), (-1, -1, 1), (lines, out))
    return F.reshape(y, (*ids.shape, out))


def _product_reference(x: Any, data: Any, ids: Any, kind: str | None, bits: int) -> Any:
    stack = data if kind is None else encoding_of(kind).decode(data).astype(x.dtype)
    each = x.reshape(*x.shape[:-1], *[1] * (ids.ndim - x.ndim + 1), x.shape[-1])
    return np.einsum("...w,...ow->...o", np.broadcast_to(each, (*ids.shape, x.shape[-1])), stack[ids]).astype(x.dtype)


def _grad(g: Node, x: Node, data: Node, ids: Node, encoding: str | None, parents: Sequence[object]) -> tuple[Any, ...]:
    # y[n] = W[ids[n]] x[n]: dx[n] = W[ids[n]]^T dy[n]; dW[e] = sum over the n with ids[n] = e of dy[n] x[n]^T
    dx = dw = None
    if parents[0] is not None:
        turned = F.permute(_stack(data, encoding, g.dtype), (0, 2, 1))
        dx = F.expert_linear_at(g, turned, ids, None, 32)
        shared = tuple(range(x.ndim - 1, ids.ndim))
        dx = F.reduce_sum(dx, shared) if shared else dx
    if parents[1] is not None:
        (count, out), lines = data.shape[:2], ids.size
        given = F.reshape(F.where(F.lt(ids, 0), ids + count, ids), (1, 1, lines))
        mine = F.eq(given, F.reshape(F.iota_like(ids, (count,)), (count, 1, 1)))
        columns = F.reshape(F.permute(F.reshape(g, (lines, out)), (1, 0)), (1, out, lines))
        dw = F.matmul(F.where(mine, columns, 0.0), _lines(x, ids))
    return dx, dw, None


def _infer(x: Meta, data: Meta, ids: Meta, *attrs: Any) -> tuple[Shape, DType]:
    return (*ids.shape, data.shape[1]), x.dtype


@primitive(
    COMPOSITE,
    infer=_infer,
    attrs=("encoding", "activation_bits"),
    srcs=("x", "data", "ids"),
    reference=_product_reference,
    decompose=_decomposed,
    grad=_grad,
    checked=True,
    public=False,
)
def expert_linear_at(x: Node, data: Node, ids: Node, encoding: str | None, activation_bits: int) -> Any:
    """`expert_linear` with checked arguments and without a bias; ids are int64."""
    return (x, data, ids), (encoding, activation_bits)


# --- the public function --------------------------------------------------------------------------------------------


def _reference(
    x: Any, data: Any, ids: Any, bias: Any = None, *, encoding: Any = None, activation_bits: int = 16
) -> Any:
    return _product_reference(x, data, ids, encoding, activation_bits) + (0 if bias is None else bias[ids])


def _samples() -> list[Sample]:
    rng = np.random.default_rng(6)
    x, stack, bias = rng.normal(size=(3, 64)), rng.normal(size=(4, 5, 64)), rng.normal(size=(4, 5))
    few, many = np.array([2, 0, 2]), np.array([[3, 1], [1, 0], [1, 2]])
    q8, q4 = sample_bytes("q8_0", 4, 5, 64), sample_bytes("q4_0", 4, 5, 64)
    return [
        Sample((x, stack, few)),
        Sample((x, stack, many, bias)),
        Sample((x[:, None], stack, many[:, :1], bias)),
        Sample((x[:, ::2], stack[:, :3, ::-2], many)),
        Sample((x, q8, few), {"encoding": "q8_0", "activation_bits": 32}),
        Sample((x, q4, many, bias), {"encoding": "q4_0", "activation_bits": 32}),
        Sample((x[0], q4, np.array(-1)), {"encoding": "q4_0", "activation_bits": 32}),
        Sample((x[0], stack, many)),
        Sample((x[:0], q4, few[:0]), {"encoding": "q4_0", "activation_bits": 32}),
    ]


def _check(x: Node, data: Node, ids: Node, bias: Node | None, encoding: Any) -> str | None:
    """The encoding's name."""
    wanted_float(OP, x.dtype)
    want_integers(OP, ids)
    if encoding is not None:
        kind = encoding_of(encoding, OP)
        want_bytes(OP, data, kind)
        wide = kind.width(data.shape[-1])
    elif data.dtype is not x.dtype:
        raise DTypeError(f"[{OP}] expected matrices of {x.dtype.name}, as x, or an encoding but got {data.dtype.name}")
    else:
        wide = data.shape[-1] if data.ndim else 0
    if data.ndim != 3 or not x.ndim or x.shape[-1] != wide:
        raise ShapeError(
            f"[{OP}] expected x (..., width) and a stack (count, out, width) but got {x.shape} and {data.shape}"
            + ("" if encoding is None else f", which holds {wide} numbers in each row")
        )
    if ids.shape[: x.ndim - 1] != x.shape[:-1]:
        raise ShapeError(f"[{OP}] expected ids {x.shape[:-1]}, or more axes behind these, but got {ids.shape}")
    want_elements(OP, data.shape, (0,), ids.size)
    if bias is not None and (bias.dtype is not x.dtype or bias.shape != data.shape[:2]):
        raise ShapeError(
            f"[{OP}] expected a bias {data.shape[:2]} of {x.dtype.name} but got {bias.shape} of {bias.dtype.name}"
        )
    return None if encoding is None else kind.name


@composite(reference=_reference, samples=_samples, autocast="low", method=False)
def expert_linear(
    x: Node, data: Node, ids: Node, bias: Node | None = None, *, encoding: Any = None, activation_bits: int = 16
) -> Node:
    """x @ W[id].T + bias[id] for each id: every line of x by a matrix of its own, as in a mixture of experts.

    W (count, out, width) is of x's dtype or, with an encoding, rows of its bytes. ids have the shape of x without its
    last axis, or more axes behind these: then a line of x is multiplied with several matrices. The result has the shape
    (*ids.shape, out). Gradients go to x, bias, and W where it has no encoding. activation_bits: of encoded
    matrices, as in `encoded_linear`.

    >>> stack = pf.stack([pf.eye(2), 3 * pf.eye(2)])
    >>> pf.expert_linear(pf.tensor([[1.0, 2.0], [3.0, 4.0]]), stack, pf.tensor([1, 0]))
    tensor([[3., 6.],
            [3., 4.]])
    """
    want_tensors(OP, data=data, ids=ids)
    kind = _check(x, data, ids, bias, encoding)
    bits = want_activation_bits(OP, activation_bits)
    y = F.expert_linear_at(x, data, cast(ids, int64), kind, 32 if kind is None else bits)
    return y if bias is None else y + F.take(bias, ids, 0)
