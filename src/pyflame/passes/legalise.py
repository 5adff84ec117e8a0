"""Turn the graph into what schedule and kernels can take.

- A composite that no implementation takes whole becomes its decomposition, over and over until none is left.
- Values without elements vanish: nothing is computed for them, and reductions over nothing become their identity.
- An assignment overwrites its base, so the base must be a buffer of its own: where anyone else reads it, it is cloned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from pyflame.core.state import mode
from pyflame.ir import OPS, F, Node, apply, const
from pyflame.ir.graph import rebuilt, rewrite, topological
from pyflame.ir.opdef import COMPOSITE, CONST, IOTA, LEAF, MOVEMENT, REDUCE


def legalise(outputs: Sequence[Node], implemented: Container[str], owned: Container[Node]) -> list[Node]:
    """`implemented`: ops with a kernel on the target; `owned`: leaves whose buffer the plan may overwrite."""
    device = next((n.meta.device for n in topological(outputs) if n.meta.device is not None), None)
    with mode(recorder=None, **({} if device is None else {"device": device})):
        result = rewrite(outputs, lambda n: _expand_composite(n, implemented))
        result = rewrite(result, _drop_empty)
        return _own_assigned(result, owned)


def _expand_composite(node: Node, implemented: Container[str]) -> Node:
    if node.op.kind != COMPOSITE or node.op.name in implemented:
        return node
    assert node.op.decompose is not None
    inner = node.op.decompose(*node.srcs, *node.attrs)
    # The decomposition may hold composites of its own, above sources that are done already.
    return _rewrite_above(inner, set(node.srcs), implemented)


def _rewrite_above(root: Node, stop: set[Node], implemented: Container[str]) -> Node:
    done: dict[Node, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in stop:
            done[node] = node
            stack.pop()
            continue
        missing = [s for s in node.srcs if s not in done]
        if missing:
            stack.extend(missing)
            continue
        done[node] = _expand_composite(rebuilt(node, tuple([done[s] for s in node.srcs])), implemented)
        stack.pop()
    return done[root]


_IDENTITY = {"zero": 0, "one": 1, "lowest": float("-inf"), "highest": float("inf")}


def _drop_empty(node: Node) -> Node:
    if node.op.kind == REDUCE and node.srcs[0].size == 0 and node.size:
        return F.expand(const(_IDENTITY[node.op.identity or "zero"], node.dtype), node.shape)
    if node.size == 0 and node.op.kind != LEAF and node.srcs:
        return apply(OPS["uninitialized"], (), (node.shape, node.dtype))
    if node.op.name == "matmul" and node.srcs[0].shape[-1] == 0:
        return F.expand(const(0, node.dtype), node.shape)
    if node.op.name == "assign" and node.srcs[1].size == 0:
        return node.srcs[0]
    return node


def _own_assigned(outputs: Sequence[Node], owned: Container[Node]) -> list[Node]:
    order = topological(outputs)
    readers = Counter(s for n in order for s in n.srcs)
    readers.update(outputs)
    if not any(n.op.alias is not None for n in order):
        return list(outputs)
    shared = {s for s in readers if readers[s] > 1 or s.op.kind in (CONST, IOTA, MOVEMENT) or (s.op.kind == LEAF and s not in owned)}

    done: dict[Node, Node] = {}
    for node in order:
        srcs = [done[s] for s in node.srcs]
        alias = node.op.alias
        if alias is not None and node.srcs[alias] in shared:
            srcs[alias] = F.clone(srcs[alias])
        done[node] = rebuilt(node, tuple(srcs))
    return [done[o] for o in outputs]
