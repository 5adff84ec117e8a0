"""An RMS norm that only linear layers over few rows read: each takes it along, where a kernel of the target can.

y = W (x g / r) with r = sqrt(mean(x^2) + eps) is (W (x g)) / r. A layer of few rows reads all of x for every line of
its weight, so it can add up the squares beside, and the norm's own launch, which mostly waits, is saved.
"""

from __future__ import annotations

from pyflame.core.state import mode
from pyflame.ir import OPS, F, Node, apply
from pyflame.ir.graph import Graph, rebuilt
from pyflame.ir.implementation import Table
from pyflame.passes.legalise import decomposed

LAYERS = ("linear", "encoded_linear")


def fuse_norms(graph: Graph, implemented: Table) -> Graph:
    """`implemented`: the ways to run ops on the target."""
    if OPS["rms_norm"] not in graph.ops or "norm_linear" not in implemented:
        return graph
    if OPS["multihead"] in graph.ops:
        # attention with several heads begins with linear layers
        graph = graph.rewritten(lambda n: decomposed(n) if n.op.name == "multihead" else n)
    readers: dict[Node, list[Node]] = {n: [] for n in graph.order if n.op.name == "rms_norm" and _plain(n)}
    for node in graph.order:
        for source in node.srcs:
            if source in readers:
                readers[source].append(node)
    fused: set[Node] = set()
    kept = set(graph.outputs)
    for norm, layers in readers.items():
        if norm not in kept and all(_takes(layer, norm, implemented) for layer in layers):
            fused.update(layers)
    if not fused:
        return graph
    done: dict[Node, Node] = {}
    for node in graph.order:
        done[node] = rebuilt(node, tuple([done[s] for s in node.srcs]))
        if node in fused:
            done[node] = _with_norm(done[node])
    return Graph([done[o] for o in graph.outputs])


def _plain(norm: Node) -> bool:
    """Over the last axis, with a weight of the input's dtype."""
    x, *weight = norm.srcs
    return norm.attrs[0] == (x.ndim - 1,) and [w.dtype for w in weight] == [x.dtype]


def _takes(layer: Node, norm: Node, implemented: Table) -> bool:
    if layer.op.name not in LAYERS or norm in layer.srcs[1:]:
        return False
    product = _product(layer)
    return any(way.prior(product) > 0 for way in implemented["norm_linear"])


def _with_norm(layer: Node) -> Node:
    with mode(line=layer.line):
        product = _product(layer)
        return F.add(product, layer.srcs[2]) if len(layer.srcs) > 2 else product


def _product(layer: Node) -> Node:
    norm, weight = layer.srcs[:2]
    (x, scale), eps = norm.srcs, norm.attrs[1]
    return apply(OPS["norm_linear"], (x, weight, scale), (*(layer.attrs or (None, x.shape[-1], 16)), eps))
