"""The graph: Nodes, op declarations and Plans. Immutable; knows no device driver and no Tensor."""

from pyflame.ir.declare import (
    as_node,
    as_number,
    cast,
    common_dtype,
    composite,
    const,
    elementwise,
    is_complex_number,
    is_number,
    primitive,
)
from pyflame.ir.node import Meta, Node
from pyflame.ir.opdef import OPS, F, OpDef, Sample, apply, copy_to, placed, signature

__all__ = [
    "OPS",
    "F",
    "Meta",
    "Node",
    "OpDef",
    "Sample",
    "apply",
    "as_node",
    "as_number",
    "cast",
    "common_dtype",
    "composite",
    "const",
    "copy_to",
    "elementwise",
    "is_complex_number",
    "is_number",
    "placed",
    "primitive",
    "signature",
]
