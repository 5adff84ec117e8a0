"""Convolutions as a target does them best: `conv_general` says what, this says in which parts.

- A convolution of a dilated input, which strided gradients and transposed convolutions are, multiplies zeros for the
  most part. It becomes one ordinary convolution per phase, unless a GPU's kernel or a vendor's library takes it whole.
- One tap with a stride sees every stride-th pixel, and so does its weight's gradient: a slice, which is a view, unless
  channels lie side by side, where the kernel steps over the others and no pixel is copied (but for many channels).
- The weight's gradient of a convolution with one tap is a matrix product per image, which a CPU's GEMM does better.

`layout.py` rewrites those that run channels-last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from pyflame.core import knobs
from pyflame.core.device import Target
from pyflame.core.precision import tf32_allowed
from pyflame.ir import OPS, F, Node
from pyflame.ir.graph import Graph

Triple = tuple[int, ...]
ONES: Triple = (1, 1, 1)
SWAPPED = (2, 1, 0, 3, 4, 5)  # x (N, G, C, S) -> (C, G, N, S): the batch is what a weight's gradient sums over
TURNED = (1, 2, 0, 3, 4, 5)  # and g (N, G, O, P) -> (G, O, N, P)
_MANY = 1024  # channels; measured on an H200
_PHASES, _FEW = 4, 8  # of one launch of conv_gpu.py; up to so many output channels of a group it does otherwise


def lower_convolutions(graph: Graph, target: Target, dilated: Callable[[], bool]) -> Graph:
    """`dilated`: whether somebody takes convolutions of dilated inputs whole."""
    if OPS["conv_general"] not in graph.ops:
        return graph

    def rule(node: Node) -> Node:
        if node.op.name != "conv_general":
            return node
        node = node if channels_last(node, target) and not _worth_a_copy(node) else _sliced(node)
        stride, _, _, lhs_dilation, rhs_dilation = node.attrs
        if lhs_dilation != ONES and stride == rhs_dilation == ONES and node.size:
            return node if _takes_phases(node, target) or dilated() else _by_phases(node)
        if is_weight_gradient(node) and is_product(node) and not channels_last(node, target):
            return _pointwise_weight_gradient(node)
        return node

    return graph.rewritten(rule)


def channels_last(node: Node, target: Target) -> bool:
    """Whether a convolution should find its channels side by side in memory: where matrix cores may do it."""
    wanted = knobs.CONV_LAYOUT.choice("nchw", "nhwc")
    if not target.is_gpu or not node.dtype.is_float or wanted == "nchw":
        return False
    low = node.dtype.itemsize == 2 or (node.dtype.name == "float32" and tf32_allowed())
    return wanted == "nhwc" or bool(low and target.matrix_core)


def _worth_a_copy(node: Node) -> bool:
    """Whether each pixel meets so many channels that a product, which wants pixels side by side, gains more."""
    return is_weight_gradient(node) and node.attrs[2] == ONES and node.shape[2] > _MANY


def _sliced(node: Node) -> Node:
    """A convolution that sees every n-th pixel, in one tap or through one window, as one of a slice of those."""
    x, w = node.srcs
    stride, pad, out, lhs, rhs = node.attrs
    one_tap = w.shape[3:] == ONES
    steps, counts = (stride, out) if one_tap else (rhs, w.shape[3:])
    if steps == ONES or lhs != ONES or any(pad) or not (one_tap or out == ONES):
        return node
    turned = is_weight_gradient(node)
    source = x.srcs[0] if turned else x
    seen = F.slice(source, (*_all(source), *((0, step, n) for step, n in zip(steps, counts, strict=True))))
    return F.conv_general(F.permute(seen, SWAPPED) if turned else seen, w, ONES, pad, out, lhs, ONES)


def _all(node: Node) -> tuple[tuple[int, int, int], ...]:
    """The region of a node's batch, groups and channels."""
    return tuple((0, 1, n) for n in node.shape[:3])


def _takes_phases(node: Node, target: Target) -> bool:
    """Whether a GPU's kernel does all phases of a dilated input in one launch (kernels/conv_gpu.py)."""
    return target.is_gpu and node.shape[2] > _FEW and prod(node.attrs[3]) <= _PHASES


def is_weight_gradient(node: Node) -> bool:
    """Whether a convolution is one of x by a gradient, summed over the batch (ops/convolution.py)."""
    x, g = node.srcs
    return x.op.name == g.op.name == "permute" and x.attrs == (SWAPPED,) and g.attrs == (TURNED,)


def is_product(node: Node) -> bool:
    """Whether each window is the whole input: then it is a matrix product."""
    x, w = node.srcs
    _, pad, out, lhs, rhs = node.attrs
    return out == lhs == rhs == ONES and not any(pad) and x.shape[3:] == w.shape[3:]


def _zip(fn: Callable[..., int], *triples: Sequence[int]) -> Triple:
    return tuple(fn(*values) for values in zip(*triples, strict=True))


def _by_phases(node: Node) -> Node:
    """A convolution of a dilated input, without multiplying the zeros between its elements.

    An output position p = D*q + r meets only taps k = D*j + k0 with k0 = (lo - r) mod D, and those at position
    q + j - (lo - r - k0)/D of the input: for each r an ordinary convolution by every D-th tap gives every D-th output.
    """
    (x, w), (_, pad_lo, out, dilation, _) = node.srcs, node.attrs
    whole = _all(node)
    result = F.uninitialized(node.shape, node.dtype)
    for phase in product(*(range(min(d, size)) for d, size in zip(dilation, out, strict=True))):
        first = _zip(lambda lo, r, d: (lo - r) % d, pad_lo, phase, dilation)
        low = _zip(lambda lo, r, k, d: (lo - r - k) // d, pad_lo, phase, first, dilation)
        size = _zip(lambda n, r, d: -(-(n - r) // d), out, phase, dilation)
        taps = tuple((k, d, max(0, -(-(n - k) // d))) for k, d, n in zip(first, dilation, w.shape[3:], strict=True))
        if all(count for _, _, count in taps):
            part = F.slice(w, (*_all(w), *taps))
            value = F.conv_general(x, part, ONES, low, size, ONES, ONES)
        else:
            value = F.full_const(0, x.dtype)
        region = tuple((r, d, n) for r, d, n in zip(phase, dilation, size, strict=True))
        result = F.assign(result, value, (*whole, *region))
    return result


def _pointwise_weight_gradient(node: Node) -> Node:
    """(O, P) @ (P, C) for each image, summed: (C, G, O, 1, 1, 1)."""
    x, g = (s.srcs[0] for s in node.srcs)
    pixels = prod(g.shape[3:])
    columns = F.permute(F.reshape(x, (*x.shape[:3], pixels)), (0, 1, 3, 2))
    dw = F.reduce_sum(F.matmul(F.reshape(g, (*g.shape[:3], pixels)), columns), (0,))  # (G, O, C)
    return F.reshape(F.permute(dw, (2, 0, 1)), node.shape)
