"""Products of matrices."""

from __future__ import annotations

from pyflame.bridge.onnx.table import Call, operator
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.factorizations import det as determinant


@operator("MatMul")
def matmul(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return F["matmul"](x, y)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    left = a.t() if call.get("transA", 0) else a
    right = b.t() if call.get("transB", 0) else b
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    found = F["matmul"](left, right)
    found = found if alpha == 1 else (found * alpha).to(a.dtype)
    return found if c is None else found + (c if beta == 1 else (c * beta).to(a.dtype))


@operator("Einsum")
def einsum(call: Call, *inputs: Tensor) -> Tensor:
    return F["einsum"](call.get("equation"), *inputs)


@operator("Det")
def det(call: Call, x: Tensor) -> Tensor:
    return determinant(x)
