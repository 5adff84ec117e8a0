"""When ops run: `pf.eval` now, `pf.eager()` one by one, and `pf.deterministic()`."""

from __future__ import annotations

from typing import Any

from pyflame.core.state import mode, state
from pyflame.engine.on_demand import evaluate
from pyflame.ir import Node, placed
from pyflame.tensor.tensor import Tensor, exchange


def eager() -> mode:
    """Evaluate every op when it is called, within a `with` block: for debugging, since an error then shows at its op.

    >>> with pf.eager():
    ...     y = pf.ones(3) * 2
    """
    return mode(eager=True)


def deterministic() -> mode:
    """Use only implementations that give the same bits in every run, within a `with` block.

    PyFlame's own kernels do, on the CPU and on GPUs: the order of sums depends on shapes, not on threads. Of vendor
    libraries, hipBLASLt is left out, as nobody promises it; of cuDNN, MIOpen and rocBLAS, with and without this, only
    what does is used. Nor are implementations chosen by measured times, which may be others another day; but MIOpen
    keeps to what its first search on a machine found.

    >>> with pf.deterministic():
    ...     y = pf.ones(3).sum()
    """
    return mode(deterministic=True)


def eval(*values: Any) -> None:
    """Compute these tensors now, together: tensors, or lists, tuples and dicts of them.

    >>> x = pf.ones(3) + 1
    >>> pf.eval(x)
    """
    if state.tracer is not None:
        state.tracer.escaped("eval()")
    nodes: list[Node] = []
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            node = value._node
            nodes.append(exchange(value, node, placed(node)))
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
    if nodes:
        evaluate(nodes)
