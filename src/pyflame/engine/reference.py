"""Evaluation by NumPy references: for machines without a C compiler, and as the oracle of compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.engine.value import to_numpy
from pyflame.ir import Node
from pyflame.ir.opdef import CONST, LEAF

Arrays = dict[Node, "np.ndarray[Any, Any]"]


def compute(order: Sequence[Node], given: Arrays | None = None) -> Arrays:
    """Each node in order. `given`: values of leaves and constants, where they are not the nodes' own."""
    arrays: Arrays = dict(given or {})
    for node in order:
        if node in arrays:
            continue
        if node.op.kind == LEAF:
            arrays[node] = to_numpy(node.data, node.shape, node.dtype)
        elif node.op.kind == CONST:
            arrays[node] = np.asarray(node.data, node.dtype.numpy)
        else:
            arrays[node] = _one(node, [arrays[s] for s in node.srcs])
    return arrays


def _one(node: Node, sources: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """One op. Small floats are computed in float32, as kernels do."""
    assert node.op.reference is not None, node.op.name
    wide = [
        s.astype(np.float32) if d.dtype.compute is not d.dtype else s for s, d in zip(sources, node.srcs, strict=True)
    ]
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(node.op.reference(*wide, *node.attrs))
    except IndexError as error:
        raise PyFlameIndexError(f"[{node.op.name}] {error}; called at {node.line}") from None
    if result.shape != node.shape:
        result = np.broadcast_to(result, node.shape)
    return result.astype(node.dtype.numpy, copy=False)
