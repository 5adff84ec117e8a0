"""Where the arrays of a batch are made.

Usually NumPy's memory. A worker process makes them in memory that its parent sees too; `pin_memory` makes them in
page-locked memory of the current device (`data.pinning`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.device import CPU
from pyflame.core.state import mode, state
from pyflame.engine.value import to_numpy
from pyflame.ir import Node
from pyflame.ir.opdef import COPY, LEAF
from pyflame.tensor import Tensor

Allocator = Callable[[tuple[int, ...], Any], "np.ndarray[Any, Any]"]


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised array for a part of a batch."""
    allocate: Allocator = state.allocator or np.empty
    return allocate(shape, dtype)


def allocating(allocator: Allocator) -> mode:
    """Make the arrays of batches this way, in this thread, within a `with` block."""
    return mode(allocator=allocator)


def host_leaf(tensor: Tensor) -> Node | None:
    """The data of a tensor that lies in host memory and is tied to no device; None where it was or will be computed.

    Where the current device is a GPU such a tensor is a copy that was not made yet, and need not be to read it.
    """
    node = tensor._node
    if node.op.kind == COPY and not node.meta.committed:
        node = node.srcs[0]
    here = node.op.kind == LEAF and node.meta.device == CPU and not node.meta.committed
    return node if here and node.data.storage is not None else None


def host_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values, by way of its device only where they lie there."""
    leaf = host_leaf(tensor)
    return tensor.numpy() if leaf is None else to_numpy(leaf.data, leaf.meta.shape, leaf.meta.dtype)
