"""Large products whose operands' lines are no whole pieces of 16 bytes, as those of a vocabulary of 50257 are: padded.

Matrix cores are fed by copies of 16 bytes, and libraries too have slow kernels for lines that begin elsewhere: on an
H200 both products of BERT's gradient of logits (30522 wide) took twice their time. So an axis along which an operand
lies is padded by zeros to whole pieces. What computes the operand stores it with gaps between its lines, so that mostly
nothing is copied but weights, and what the result has too much of is sliced off.
"""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import Region
from pyflame.core.state import mode
from pyflame.ir import OPS, F, Node, apply
from pyflame.ir.graph import Graph

PIECE = 16  # bytes
LEAST_FLOPS = 1 << 33  # a few microseconds of the fastest GPUs: padding takes as long
LEAST_SIZE = 64  # of every axis of a product that waits for multiplications


def align_products(graph: Graph, target: Target) -> Graph:
    """For GPUs with matrix cores."""
    if not target.matrix_core or not target.is_gpu or OPS["matmul"] not in graph.ops:
        return graph
    known: dict[tuple[Node, int], Node] = {}
    return graph.rewritten(lambda node: _aligned(node, known) if _counts(node) else node)


def _counts(node: Node) -> bool:
    """Whether matrix cores do it and it takes long."""
    if node.op.name != "matmul":
        return False
    a, b = node.srcs
    dtype, n, k = a.dtype, node.shape[-1], a.shape[-1]
    m = prod(node.shape[:-1]) if b.ndim == 2 else node.shape[-2]
    cores = dtype.is_float and (dtype.itemsize == 2 or (dtype.itemsize == 4 and tf32_allowed()))
    return a.dtype is b.dtype and cores and min(m, n, k) >= LEAST_SIZE and 2 * prod(node.shape) * k >= LEAST_FLOPS


def _aligned(node: Node, known: dict[tuple[Node, int], Node]) -> Node:
    a, b = node.srcs
    piece = PIECE // a.dtype.itemsize
    m, n, k = (-(-size // piece) * piece for size in (*node.shape[-2:], a.shape[-1]))
    if k != a.shape[-1] and (not _turned(a) or _turned(b)):
        a, b = _padded(a, -1, k, known), _padded(b, -2, k, known)
    if _turned(a):
        a = _padded(a, -2, m, known)
    if not _turned(b):
        b = _padded(b, -1, n, known)
    if (a, b) == node.srcs:
        return node
    with mode(line=node.line):
        product = apply(node.op, (a, b), node.attrs)
    if product.shape == node.shape:
        return product
    return F.slice(product, tuple((0, 1, size) for size in node.shape))


def _turned(node: Node) -> bool:
    """Whether it is a matrix that lies along its columns."""
    order = range(node.ndim)
    return node.op.name == "permute" and node.attrs[0] == (*order[:-2], order[-1], order[-2])


def _padded(node: Node, axis: int, size: int, known: dict[tuple[Node, int], Node]) -> Node:
    """With zeros behind the end of an axis (-1 or -2); once for all that see the same memory in other ways."""
    if size == node.shape[axis]:
        return node
    if _turned(node):
        return F.permute(_padded(node.srcs[0], -3 - axis, size, known), node.attrs[0])
    below = node.srcs[0] if node.op.name == "reshape" else node
    if below is not node and axis == -1 and below.shape[-1:] == node.shape[-1:]:
        return F.reshape(_padded(below, axis, size, known), (*node.shape[:-1], size))
    if (node, axis) not in known:
        whole: Region = tuple((0, 1, n) for n in node.shape)
        at = node.ndim + axis
        shape = (*node.shape[:at], size, *node.shape[at + 1 :])
        rest = (*whole[:at], (node.shape[at], 1, size - node.shape[at]), *whole[at + 1 :])
        filled = F.assign(F.uninitialized(shape, node.dtype), node, whole)
        known[node, axis] = F.assign(filled, F.full_const(0, node.dtype), rest)
    return known[node, axis]
