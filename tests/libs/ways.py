"""Every way to run a program's product: our own kernel, then whatever the device's libraries offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyflame.core.shape import contiguous_strides
from pyflame.core.state import state
from pyflame.engine.evaluate import settle_copies
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.libraries import decide as libraries
from pyflame.engine.memory import gpu_of
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_sources
from pyflame.schedule.split import divide
from pyflame.tensor import Tensor


def every_way(tensor: Tensor, op: str = "matmul") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Names and results. `tensor` is pending, and its plan has one launch of `op`."""
    node = tensor._node
    device = gpu_of("test", node.meta.device or state.device)
    settle_copies([node])
    graph = PendingGraph([node])
    inputs, constants = [n.data for n in graph.inputs], [n.data for n in graph.constants]
    plan = draft_plan(graph, device.target)
    (number,) = [n for n, x in enumerate(plan.launches) if x.kernel.anchor and x.kernel.anchor.op.name == op]
    found = libraries.libraries_of(device).of(op)
    offers: list[Any] = [
        None,
        *(o for library in found for o in libraries._offers(plan, number, library, device.target)),
    ]
    for offer in offers:
        own = plan.copy()
        calls = {}
        if offer is not None:
            (product,) = divide(own, {number: offer.way}).values()
            calls[product] = offer.call
        finished = own.finish(gpu_sources(own.launches, device.target, calls))
        value, *_ = GpuRunner(finished, device).run(inputs, constants)  # of a view, also what it shows
        memory = np.empty(node.size, node.dtype.numpy)  # of a view that leaves no element out
        device.download(memory.ctypes.data, value.address, memory.nbytes)
        strides = [s * memory.itemsize for s in value.strides or contiguous_strides(node.shape)]
        out = np.lib.stride_tricks.as_strided(memory, node.shape, strides)
        yield offer.call.name if offer is not None else plan.launches[number].implementation, out
