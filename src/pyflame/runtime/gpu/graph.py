"""A captured graph: work given to a stream once, replayed as one launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyflame.core.errors import DeviceError
from pyflame.core.locks import lock

if TYPE_CHECKING:
    from pyflame.runtime.gpu.device import GpuDevice
    from pyflame.runtime.gpu.stream import Stream


_NAMED = 16


def some(names: Iterable[str]) -> str:
    """The first of these kernels, each once, and how many others there are."""
    kinds = list(dict.fromkeys(names))
    others = f" and {len(kinds) - _NAMED} others" if len(kinds) > _NAMED else ""
    return (", ".join(kinds[:_NAMED]) + others) or "none"


class Graph:
    """What was captured on `stream`. Holds the memory that was allocated meanwhile; replays one at a time."""

    def __init__(self, device: GpuDevice, stream: Stream) -> None:
        self._device = device
        self.stream = stream
        self._lock = lock()
        self._graph = self._executable = 0
        self._kept: list[Any] = []
        self._names: list[str] = []
        self._kernels = ""

    def keep(self, thing: Any) -> None:
        """Hold something for as long as the graph lives: memory whose address was captured."""
        self._kept.append(thing)

    def remember(self, kernel: str) -> None:
        """Note what is captured: a fault of a replay may be its."""
        self._names.append(kernel)

    def finish(self, graph: int) -> None:
        """Make it ready to run."""
        self._graph = graph
        self._kernels = f"a graph of {len(self._names)} ({some(self._names)})"
        self._executable = self._device.guard.graph_instantiate(graph)

    def replay(self) -> None:
        """Give it to the device's stream, like any other work."""
        if not self._executable:
            raise DeviceError("[graph] expected a captured graph but its capture did not end; capture it again")
        device = self._device
        with self._lock:
            device.use()
            device.remember(self._kernels)
            device.guard.graph_launch(self._executable, device.stream.handle)

    def __del__(self) -> None:
        # It may be running, and this may be the middle of another capture: the device destroys it when it is idle.
        if self._graph:
            self._device.retired_graphs.append((self._graph, self._executable))


@contextmanager
def capture(device: GpuDevice, side: Stream) -> Iterator[Graph]:
    """Capture what is given to a stream that nobody else uses. Nothing runs until the graph is replayed."""
    graph = Graph(device, side)
    device.use()
    device.bury()
    stream = side.handle
    device.pool.capturing(True)
    try:
        device.guard.capture_begin(stream)
        try:
            yield graph
        except BaseException:
            _abandon(device, stream)
            raise
        graph.finish(device.guard.capture_end(stream))
    finally:
        device.pool.capturing(False)


def _abandon(device: GpuDevice, stream: int) -> None:
    """End a capture that failed. What failed first is what the user should hear of."""
    try:
        unwanted = device.guard.capture_end(stream)
    except DeviceError:
        return  # the driver has ended it already
    device.guard.graph_destroy(unwanted)
