"""Ops over encoded weights: bytes of blocks (core/encoding.py), which no gradient reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.dtype import FLOAT8, DType, as_dtype, float32, uint8
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.ir import F, Node, Sample, primitive
from pyflame.ir.opdef import COMPOSITE, KERNEL
from pyflame.ops.base import want_whole

if TYPE_CHECKING:
    from pyflame.core.encoding import Encoding


def want_bytes(op: str, data: Node, kind: Encoding) -> None:
    """Raise for what cannot be rows of this encoding."""
    if data.dtype is not uint8:
        raise DTypeError(f"[{op}] expected bytes (uint8) of blocks but got {data.dtype.name}")
    if not data.ndim:
        raise ShapeError(f"[{op}] expected rows of bytes but got a 0-d tensor")
    kind.width(data.shape[-1], op)


def sample_bytes(name: str, *shape: int) -> Any:
    """Numbers of this shape, encoded."""
    return encoding_of(name).encode(np.random.default_rng(3).normal(size=shape).astype(np.float32))


def _samples() -> list[Sample]:
    out = [Sample((sample_bytes(name, 3, 64),), {"encoding": name}) for name in ("q8_0", "q4_0", "q4_1")]
    out += [
        Sample((sample_bytes("q4_0", 2, 3, 96)[:, ::2],), {"encoding": "q4_0"}),
        Sample((sample_bytes("q4_0", 0, 64),), {"encoding": "q4_0"}),
        Sample((sample_bytes("q8_0", 32),), {"encoding": "q8_0"}),
    ]
    return out


@primitive(
    KERNEL,
    infer=lambda m, name, dtype: ((*m.shape[:-1], encoding_of(name).width(m.shape[-1])), dtype),
    attrs=("encoding", "dtype"),
    srcs=("data",),
    reference=lambda data, name, dtype: encoding_of(name).decode(data),
    samples=_samples,
    differentiable=False,
    method=False,
)
def dequantize(data: Node, *, encoding: Any, dtype: object = float32) -> Any:
    """What rows of encoded blocks stand for: bytes (..., row bytes) -> numbers (..., width).

    >>> pf.dequantize(pf.quantize(pf.tensor([[-8.0] * 16 + [7.0] * 16]), "q4_0"))[0, 14:18]
    tensor([-8., -8.,  7.,  7.])
    """
    kind = encoding_of(encoding, "dequantize")
    want_bytes("dequantize", data, kind)
    return (data,), (kind.name, wanted_float("dequantize", as_dtype(dtype)))


def wanted_float(op: str, dtype: DType) -> DType:
    """A dtype that products are computed in."""
    if not dtype.is_float or dtype in FLOAT8:
        raise DTypeError(f"[{op}] expected float32, float64, float16 or bfloat16 but got {dtype.name}")
    return dtype


def want_activation_bits(op: str, bits: object) -> int:
    """How many bits of x count: 8, 16 or all 32."""
    found = want_whole(op, "activation_bits", bits)
    if found not in (8, 16, 32):
        raise ArgumentError(f"[{op}] expected activation_bits to be 8, 16 or 32 but got {bits!r}")
    return found


def _rows(data: Node, kind: str, like: Node) -> Node:
    return F.dequantize(data, encoding=kind, dtype=like.dtype)


def _linear(x: Node, data: Node, *rest: Any) -> Node:
    *bias, kind, _, _ = rest
    return F.linear(x, _rows(data, kind, x), *bias)


def _linear_reference(x: Any, data: Any, *rest: Any) -> Any:
    *bias, kind, _, _ = rest
    return x @ encoding_of(kind).decode(data).astype(x.dtype).T + (bias[0] if bias else 0)


def _linear_grad(g: Node, data: Node, encoding: str, width: int, parents: Sequence[object]) -> tuple[Any, ...]:
    # y = x W^T + b: dx = dy W, db = dy, which the walk sums; W is bytes and has no gradient
    x = F.matmul(g, _rows(data, encoding, g)) if parents[0] is not None else None
    return (x, None, g)[: len(parents)]


def _linear_samples() -> list[Sample]:
    rng = np.random.default_rng(4)
    x, bias = rng.normal(size=(3, 64)), rng.normal(size=5)
    q8, q4 = sample_bytes("q8_0", 5, 64), sample_bytes("q4_0", 5, 64)
    return [
        Sample((x, q8), {"encoding": "q8_0", "width": 64, "activation_bits": 32}),
        Sample((x[0], q4, bias), {"encoding": "q4_0", "width": 64, "activation_bits": 32}),
        Sample((x[:, None], q4, bias), {"encoding": "q4_0", "width": 64, "activation_bits": 32}),
        Sample((x[:0], q4, bias), {"encoding": "q4_0", "width": 64, "activation_bits": 32}),
        Sample(
            (rng.normal(size=(20, 32)), sample_bytes("q4_1", 7, 32)),
            {"encoding": "q4_1", "width": 32, "activation_bits": 32},
        ),
    ]


def want_linear(
    op: str, x: Node, data: Node, bias: Node | None, encoding: Any, width: Any, bits: Any
) -> tuple[Encoding, int, int]:
    """The encoding, the width and the bits of x; raise for what cannot be multiplied. The bias may have any length."""
    kind, wide = encoding_of(encoding, op), want_whole(op, "width", width)
    want_bytes(op, data, kind)
    wanted_float(op, x.dtype)
    if data.ndim != 2 or kind.width(data.shape[1]) != wide or not x.ndim or x.shape[-1] != wide:
        raise ShapeError(
            f"[{op}] expected x (..., {wide}) and rows (out, {kind.row_bytes(wide, op)}) of {kind.name} but got "
            f"{x.shape} and {data.shape}"
        )
    if bias is not None and bias.dtype is not x.dtype:
        raise DTypeError(f"[{op}] expected a bias of {x.dtype.name}, as x, but got {bias.dtype.name}")
    return kind, wide, want_activation_bits(op, bits)


@primitive(
    COMPOSITE,
    infer=lambda x, data, *rest: ((*x.shape[:-1], data.shape[0]), x.dtype),
    attrs=("encoding", "width", "activation_bits"),
    srcs=("x", "data", "bias"),
    reference=_linear_reference,
    decompose=_linear,
    grad=_linear_grad,
    samples=_linear_samples,
    autocast="low",
    method=False,
)
def encoded_linear(
    x: Node, data: Node, bias: Node | None = None, *, encoding: Any, width: Any, activation_bits: int = 16
) -> Any:
    """x @ W.T + bias, with W of shape (out, width) as encoded rows (out, row bytes). Gradients go to x and bias.

    Where the encoding has integer codes the CPU multiplies in integers, with x rounded to `activation_bits`, each group
    of 16 or 32 elements by its largest. 16 makes an error of about 0.004% of the result's norm; 8 makes one of 0.5%, as
    in llama.cpp, and is faster; 32 asks for x as it is, and is slower. With AMX many rows are multiplied in bfloat16,
    of any encoding but float32: 16 makes an error of 0.0005% there, 8 one of 0.25%. GPUs multiply few rows in integers,
    with 16 bits where 8 are asked for too, and more rows in floats.

    >>> w = pf.quantize(pf.ones(4, 32), "q8_0")
    >>> pf.encoded_linear(pf.ones(2, 32), w.data, encoding="q8_0", width=32).shape
    (2, 4)
    """
    kind, wide, bits = want_linear("encoded_linear", x, data, bias, encoding, width, activation_bits)
    if bias is not None and bias.shape != data.shape[:1]:
        raise ShapeError(f"[encoded_linear] expected a bias of shape {data.shape[:1]} but got {bias.shape}")
    return (x, data) if bias is None else (x, data, bias), (kind.name, wide, bits)
