"""A norm and the linear layer behind it as one op, which the pass of norms makes for few rows on a GPU."""

from __future__ import annotations

from typing import Any

from pyflame.ir import OPS, F, Node, primitive
from pyflame.ir.opdef import COMPOSITE


def _composed(x: Node, weight: Node, scale: Node, encoding: str | None, width: int, bits: int, eps: float) -> Node:
    unit = F.rms_norm(x, x.shape[-1:], scale, eps)
    if encoding is None:
        return F.linear(unit, weight)
    return F.encoded_linear(unit, weight, encoding=encoding, width=width, activation_bits=bits)


def _reference(x: Any, weight: Any, scale: Any, *attrs: Any) -> Any:
    *kind, eps = attrs
    norm, product = OPS["rms_norm"].reference, OPS["linear" if kind[0] is None else "encoded_linear"].reference
    assert norm is not None and product is not None
    return product(norm(x, scale, (x.ndim - 1,), eps), weight, *(() if kind[0] is None else kind))


@primitive(
    COMPOSITE,
    infer=lambda x, weight, scale, *attrs: ((*x.shape[:-1], weight.shape[0]), x.dtype),
    attrs=("encoding", "width", "activation_bits", "eps"),
    srcs=("x", "weight", "scale"),
    reference=_reference,
    decompose=_composed,
    differentiable=False,
    public=False,
)
def norm_linear(
    x: Node, weight: Node, scale: Node, encoding: str | None, width: int, activation_bits: int, eps: float
) -> Any:
    """linear(rms_norm(x, scale), weight), or encoded_linear of it, whose weight is bytes: (.., in) -> (.., out)."""
    return (x, weight, scale), (encoding, width, activation_bits, eps)
