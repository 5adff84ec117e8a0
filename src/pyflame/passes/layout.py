"""Channels last: convolution networks with their channels side by side in memory, as matrix cores want them.

A value's memory order is the order of axes of the node that is stored. So a convolution's result becomes a node with
its channels last, (N, ..., C), and everyone who knows (N, C, ...) sees a permuted view of it, which costs nothing. Ops
behind it are rewritten to work on what is stored: elementwise ops, reductions, movement ops, assignments (which cat and
pad are) and pooling run channels-last throughout, and a network pays for conversions at its edges alone. All others
read the view.

A convolution with one tap is a matrix product then, and so are both of its gradients.

An order that a convolution gives is followed by all who meet it. One that is only found in memory, or that a weight's
gradient has, is followed where no other value in row-major order takes part: an optimiser updates a weight where and
how it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.shape import Shape, contiguous_strides, equal_runs, inverse
from pyflame.core.window import Window
from pyflame.ir import OPS, F, Node, apply
from pyflame.ir.graph import Graph, rebuilt
from pyflame.ir.opdef import ASSIGN, CONST, ELEMENTWISE, GATHER, IOTA, LEAF, MOVEMENT, REDUCE
from pyflame.passes.convolutions import ONES, SWAPPED, TURNED, channels_last, is_product, is_weight_gradient

Order = tuple[int, ...]
DATA: Order = (0, 3, 4, 5, 1, 2)  # (N, G, C, S0, S1, S2), channels last
GRADIENT: Order = (1, 2, 3, 4, 5, 0)  # of a weight, as a convolution: (C, G, O, K0, K1, K2) -> (G, O, K0, K1, K2, C)
POOLS = ("max_pool", "max_pool_backward", "avg_pool", "avg_pool_backward")


class Laid(NamedTuple):
    """A value as it is stored: `node` has its axes in memory order, of which axis i is the value's axis `order[i]`."""

    node: Node
    order: Order
    strong: bool  # whether others follow it


def lay_out(graph: Graph, target: Target, pinned: Collection[Node] = ()) -> Graph:
    """The graph with its convolutions channels-last where `channels_last` says so.

    `pinned`: outputs that must lie in row-major order, since they take the place of something that does.
    """
    convolution = OPS["conv_general"]
    if convolution not in graph.ops or not any(n.op is convolution and channels_last(n, target) for n in graph.order):
        return graph
    layouts = _Layouts(target)
    for node in graph.order:
        layouts.visit(node)
    moved = [o in pinned and o in layouts.laid for o in graph.outputs]
    outputs = [layouts.plain(o) for o in graph.outputs]
    return Graph([F.contiguous(o) if dense else o for o, dense in zip(outputs, moved, strict=True)])


class _Layouts:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.laid: dict[Node, Laid] = {}
        self.made: dict[Node, Node] = {}  # values in the order of their own axes
        self.neutral: set[Node] = set()  # values that are in no memory: numbers, positions, what is broadcast
        self.weights: dict[Node, Node] = {}
        self.dense: dict[Node, Node] = {}
        self.rules: dict[str, Callable[[Node], Laid | None]] = {
            LEAF: self.leaf, ELEMENTWISE: self.elementwise, GATHER: self.gather, REDUCE: self.reduce,
            ASSIGN: self.assign, "permute": self.permute, "reshape": self.reshape, "expand": self.expand,
            "slice": self.slice, "conv_general": self.convolution, **dict.fromkeys(POOLS, self.pool),
        }  # fmt: skip

    def visit(self, node: Node) -> None:
        rule = self.rules.get(node.op.name) or self.rules.get(node.op.kind)
        found = rule(node) if rule is not None else None
        if found is not None:
            self.laid[node] = found
        if found is not None or node in self.made:
            return
        self.made[node] = rebuilt(node, tuple([self.plain(s) for s in node.srcs]))
        if self.is_neutral(node):
            self.neutral.add(node)

    def is_neutral(self, node: Node) -> bool:
        if node.op.kind in (CONST, IOTA) or node.op.name == "uninitialized":
            return True
        if node.op.name == "expand" and node.size > node.srcs[0].size:
            return True
        return node.op.kind in (ELEMENTWISE, MOVEMENT) and all(s in self.neutral for s in node.srcs)

    def plain(self, node: Node) -> Node:
        """The value with its axes in their own order."""
        if node not in self.made:
            found = self.laid[node]
            self.made[node] = F.permute(found.node, inverse(found.order))
        return self.made[node]

    def ordered(self, node: Node, order: Order) -> Node:
        """A value, or one that broadcasts to a rank, with its axes in an order."""
        found = self.laid.get(node)
        if found is not None and found.order == order:
            return found.node
        value = self.plain(node)
        if not value.ndim:
            return value
        return F.permute(F.reshape(value, (*[1] * (len(order) - value.ndim), *value.shape)), order)

    def followed(self, srcs: Sequence[Node]) -> Laid | None:
        """Whose order to take, of values of one shape."""
        found = [self.laid[s] for s in srcs if s in self.laid]
        strong = next((f for f in found if f.strong), None)
        if strong is None and all(s in self.laid or s in self.neutral for s in srcs):
            return next(iter(found), None)
        return strong

    # --- what is computed -------------------------------------------------------------------------------------------

    def leaf(self, node: Node) -> Laid | None:
        """What lies densely in memory, but not in the order of its axes."""
        strides = node.data.strides
        if strides is None or node.ndim < 3:
            return None
        order = tuple(sorted(range(node.ndim), key=lambda a: (-strides[a], a)))
        shape = tuple(node.shape[a] for a in order)
        dense = contiguous_strides(shape)
        if any(size > 1 and strides[a] != step for a, size, step in zip(order, shape, dense, strict=True)):
            return None
        self.made[node] = node
        return Laid(F.permute(node, order), order, strong=False)

    def elementwise(self, node: Node) -> Laid | None:
        if node.op.name == "contiguous":  # in memory as its axes say, which is what it is for
            return None
        found = self.followed([s for s in node.srcs if s.shape == node.shape])
        return None if found is None else self.again(node, found, node.attrs)

    def again(self, node: Node, like: Laid, attrs: tuple[object, ...], srcs: Sequence[Node] | None = None) -> Laid:
        """The same op on values in another order."""
        given = [self.ordered(s, like.order) for s in node.srcs] if srcs is None else srcs
        made = apply(node.op, tuple(given), attrs)
        made.line = node.line
        return Laid(made, like.order, like.strong)

    def gather(self, node: Node) -> Laid | None:
        axes, dims, shape = node.attrs
        found = self.laid.get(node.srcs[0])
        if found is None or dims != tuple(range(len(shape))):
            return None
        order = found.order
        srcs = [found.node, *(self.ordered(s, order) for s in node.srcs[1:])]
        return self.again(node, found, (tuple(order.index(a) for a in axes), dims, _picked(shape, order)), srcs)

    def reduce(self, node: Node) -> Laid | None:
        found = self.laid.get(node.srcs[0])
        if found is None:
            return None
        axes = node.attrs[0]
        made = apply(node.op, (found.node,), (tuple(i for i, a in enumerate(found.order) if a in axes),))
        kept = [a for a in found.order if a not in axes]
        return self.unless_plain(made, tuple(sorted(kept).index(a) for a in kept), found.strong, node)

    def unless_plain(self, made: Node, order: Order, strong: bool, node: Node) -> Laid | None:
        """A value as it is stored; None where that is the order of its own axes."""
        if _seen(order, made) != sorted(_seen(order, made)):
            return Laid(made, order, strong)
        self.made[node] = F.reshape(made, node.shape)
        return None

    def assign(self, node: Node) -> Laid | None:
        base, value = node.srcs
        (region,) = node.attrs
        found = self.laid.get(base)
        if found is None and base in self.neutral and value.shape == tuple(count for _, _, count in region):
            found = self.laid.get(value)
        if found is None or node.data is not None:
            return None
        if base.op.name == "uninitialized":
            start = F.uninitialized(_picked(base.shape, found.order), base.dtype)
        else:
            start = self.ordered(base, found.order)
        return self.again(node, found, (_picked(region, found.order),), (start, self.ordered(value, found.order)))

    def pool(self, node: Node) -> Laid | None:
        """Pooling over (height, width) of (N, 1, height, width, channels): over windows of one channel each."""
        windows, *rest = node.attrs
        source = self.followed([s for s in node.srcs if s in self.laid])
        trivial = Window(1, 1)
        if source is None or windows[0] != trivial:
            return None
        channels = node.shape[1]
        last = (0, 2, 3, 4, 1)

        def seen(s: Node) -> Node:
            n, c, _, height, width = s.shape
            return F.reshape(self.channels_last(s, last), (n, 1, height, width, c))

        attrs = ((*windows[1:], Window(channels, channels)), *rest)
        made = apply(node.op, tuple(seen(s) for s in node.srcs), attrs)
        return Laid(F.reshape(made, _picked(node.shape, last)), last, strong=True)

    # --- what is moved ----------------------------------------------------------------------------------------------

    def permute(self, node: Node) -> Laid | None:
        source = node.srcs[0]
        found = self.laid.get(source)
        if found is None and source.op.name == "contiguous" and source.ndim > 2:  # as .to(memory_format=...) makes it
            found = Laid(self.plain(source), tuple(range(source.ndim)), strong=False)
        if found is None:
            return None
        axes = node.attrs[0]
        return self.unless_plain(found.node, tuple(axes.index(a) for a in found.order), found.strong, node)

    def reshape(self, node: Node) -> Laid | None:
        found = self.laid.get(node.srcs[0])
        if found is None:
            return None
        order = reshaped_order(node.srcs[0].shape, node.shape, found.order)
        if order is None:
            return None
        return self.unless_plain(F.reshape(found.node, _picked(node.shape, order)), order, found.strong, node)

    def expand(self, node: Node) -> Laid | None:
        found = self.laid.get(node.srcs[0])
        if found is None or node.size > node.srcs[0].size:
            return None
        new = node.ndim - node.srcs[0].ndim
        order = (*range(new), *(a + new for a in found.order))
        return Laid(F.expand(found.node, _picked(node.shape, order)), order, found.strong)

    def slice(self, node: Node) -> Laid | None:
        found = self.laid.get(node.srcs[0])
        if found is None:
            return None
        return Laid(F.slice(found.node, _picked(node.attrs[0], found.order)), found.order, found.strong)

    # --- convolutions -----------------------------------------------------------------------------------------------

    def convolution(self, node: Node) -> Laid | None:
        if not channels_last(node, self.target):
            return None
        if is_weight_gradient(node):
            return self.weight_gradient(node)
        x, w = node.srcs
        stride, pad, _, lhs, _ = node.attrs
        data = self.channels_last(x, DATA)
        if w.shape[0] == 1 and w.shape[3:] == stride == lhs == ONES and not any(pad) and node.shape[3:] == x.shape[3:]:
            taps = F.permute(F.reshape(self.plain(w), w.shape[1:3]), (1, 0))
            made = F.matmul(F.reshape(data, (*data.shape[:4], x.shape[2])), taps)
            return Laid(F.reshape(made, _picked(node.shape, DATA)), DATA, strong=True)
        made = rebuilt(node, (F.permute(data, inverse(DATA)), self.weight(w)))
        return Laid(F.contiguous(F.permute(made, DATA)), DATA, strong=True)

    def weight_gradient(self, node: Node) -> Laid:
        x, g = (s.srcs[0] for s in node.srcs)
        data, grad = self.channels_last(x, DATA), self.channels_last(g, DATA)
        if x.shape[1] == 1 and is_product(node):
            rows = node.srcs[0].size // x.shape[2]
            made = F.matmul(F.permute(F.reshape(grad, (rows, g.shape[2])), (1, 0)), F.reshape(data, (rows, x.shape[2])))
            return Laid(F.reshape(made, _picked(node.shape, GRADIENT)), GRADIENT, strong=False)
        views = [F.permute(F.permute(v, inverse(DATA)), p) for v, p in ((data, SWAPPED), (grad, TURNED))]
        made = rebuilt(node, tuple(views))
        return Laid(F.contiguous(F.permute(made, GRADIENT)), GRADIENT, strong=False)

    def channels_last(self, node: Node, order: Order) -> Node:
        """A value as a dense node in an order, copied where it is none."""
        found = self.laid.get(node)
        shape = _picked(node.shape, order)
        if found is not None and _seen(found.order, found.node) == _seen(order, shape) and not _spaced(found.node):
            return F.reshape(found.node, shape)
        if found is None and _is_row_major(node) and _seen(order, shape) == sorted(_seen(order, shape)):
            return F.reshape(self.plain(node), shape)  # a weight of one tap lies both ways
        if node not in self.dense:
            self.dense[node] = F.contiguous(F.permute(self.plain(node), order))
        return self.dense[node]

    def weight(self, node: Node) -> Node:
        """A weight, which may be seen through movement ops, over a copy of it whose second axis lies last."""
        chain: list[Node] = []
        root = node
        while root.op.kind == MOVEMENT:
            chain.append(root)
            root = root.srcs[0]
        if root.ndim < 3:
            return self.plain(node)
        if root not in self.weights:
            self.weights[root] = self.weight_copy(root)
        seen = self.weights[root]
        for moved in reversed(chain):
            seen = rebuilt(moved, (seen,))
        return seen

    def weight_copy(self, root: Node) -> Node:
        """A leaf may be a view already, of taps that run backwards or of channels that have changed places."""
        strides = (root.data.strides if root.op.kind == LEAF else None) or contiguous_strides(root.shape)
        turned = root.ndim == 6 and 0 < strides[1] < strides[2]
        last = (0, *range(2, root.ndim), 1) if root.ndim < 6 else (0, 2, 3, 4, 5, 1) if turned else (0, 1, 3, 4, 5, 2)
        flips = tuple((n - 1, -1, n) if s < 0 else (0, 1, n) for n, s in zip(root.shape, strides, strict=True))
        if all(step > 0 for _, step, _ in flips):
            return F.permute(self.channels_last(root, last), inverse(last))
        return F.slice(F.permute(F.contiguous(F.permute(F.slice(root, flips), last)), inverse(last)), flips)


def _picked(values: Sequence[object], order: Order) -> tuple[object, ...]:
    return tuple(values[a] for a in order)


def _seen(order: Order, stored: Node | Sequence[object]) -> list[int]:
    """An order without axes of size 1. `stored`: sizes in memory order."""
    shape = stored.shape if isinstance(stored, Node) else stored
    return [a for a, size in zip(order, shape, strict=True) if size != 1]


def _spaced(node: Node) -> bool:
    """Whether a node is part of another one's memory, or broadcast."""
    while node.op.kind == MOVEMENT and node.op.name not in ("slice", "expand"):
        node = node.srcs[0]
    return node.op.kind == MOVEMENT


def _is_row_major(node: Node) -> bool:
    """Whether a node that no other order is known of lies in memory by itself, and in the order of its axes."""
    return node.op.kind != MOVEMENT and (node.op.kind != LEAF or node.data.strides is None)


def reshaped_order(source: Shape, shape: Shape, order: Order) -> Order | None:
    """The memory order of a reshaped value, if its memory stays as it is.

    Axes that are joined or split must lie together.

    >>> reshaped_order((2, 6, 4, 5), (2, 3, 2, 4, 5), (0, 2, 3, 1))
    (0, 3, 4, 1, 2)
    """
    at = {a: i for i, a in enumerate(a for a in order if source[a] != 1)}
    places: list[tuple[int, range]] = []
    for theirs, ours in equal_runs(source, shape):
        seen = [at[a] for a in theirs if a in at]
        if seen and seen != list(range(seen[0], seen[0] + len(seen))):
            return None
        places.append((seen[0] if seen else -1, ours))
    return tuple(a for _, ours in sorted(places, key=lambda place: place[0]) for a in ours)
