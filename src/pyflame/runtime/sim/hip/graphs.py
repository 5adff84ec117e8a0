"""The simulated HIP: captures and graphs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from pyflame.runtime.sim.hip.arguments import Handle, address_of
from pyflame.runtime.sim.hip.capture import Capture, Graph, Node
from pyflame.runtime.sim.hip.state import HipState, Refused, hip
from pyflame.runtime.sim.hip.types import (
    hipError_t,
    hipGraphExecUpdateResult,
    hipGraphNodeType,
    hipStreamCaptureMode,
    hipStreamCaptureStatus,
)


class GraphCalls(HipState):
    """Functions of captures and graphs."""

    # --- captures -----------------------------------------------------------------------------------------------------

    @hip()
    def hipStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        found = self.stream(stream)
        if found.null:
            raise Refused(hipError_t.hipErrorStreamCaptureUnsupported, "the null stream cannot be captured")
        if found.capture is not None:
            raise Refused(hipError_t.hipErrorIllegalState, "the stream is being captured already")
        try:
            kind = hipStreamCaptureMode(int(mode))
        except ValueError:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{mode!r} is no mode of capture") from None
        self.captures.append(Capture(next(self._numbers), found, kind))

    @hip(1)
    def hipStreamEndCapture(self, stream: Any) -> Handle:
        found = self.stream(stream)
        capture = found.capture
        if capture is None:
            raise Refused(hipError_t.hipErrorIllegalState, "the stream is not being captured")
        if capture.origin is not found:
            raise Refused(hipError_t.hipErrorStreamCaptureUnmatched, "the capture was begun on another stream")
        relaxed = capture.mode == hipStreamCaptureMode.hipStreamCaptureModeRelaxed
        if not relaxed and capture.thread != threading.get_ident():
            raise Refused(hipError_t.hipErrorStreamCaptureWrongThread, "the capture was begun in another thread")
        capture.leave()
        self.captures.remove(capture)
        for event in self.events.values():
            if event.capture is capture:
                event.capture = event.work = None
        self.valid(capture)
        if not capture.joined():
            raise Refused(
                hipError_t.hipErrorStreamCaptureUnjoined,
                "another stream was given work in the capture and the first one did not wait for an event behind it",
            )
        return self._keep(capture.graph)

    @hip(1)
    def hipStreamIsCapturing(self, stream: Any) -> hipStreamCaptureStatus:
        return self._capture_status(stream)[0]

    @hip(2)
    def hipStreamGetCaptureInfo(self, stream: Any) -> tuple[hipStreamCaptureStatus, int]:
        return self._capture_status(stream)

    def _capture_status(self, stream: Any) -> tuple[hipStreamCaptureStatus, int]:
        capture = self.stream(stream).capture
        if capture is None:
            return hipStreamCaptureStatus.hipStreamCaptureStatusNone, 0
        if not capture.valid:
            return hipStreamCaptureStatus.hipStreamCaptureStatusInvalidated, capture.number
        return hipStreamCaptureStatus.hipStreamCaptureStatusActive, capture.number

    # --- graphs -------------------------------------------------------------------------------------------------------

    def _keep(self, graph: Graph) -> Handle:
        made = self.handle()
        self.graphs[made] = graph
        return made

    def _graph(self, given: Any) -> Graph:
        found = self.graphs.get(address_of(given))
        if found is None:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{address_of(given):#x} is no graph, or was destroyed")
        return found

    def _executable(self, given: Any) -> Graph:
        found = self.executables.get(address_of(given))
        if found is None:
            raise Refused(
                hipError_t.hipErrorInvalidValue, f"{address_of(given):#x} is no executable graph, or was destroyed"
            )
        return found

    @hip(1)
    def hipGraphCreate(self, flags: int) -> Handle:
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags must be 0 but are {flags}")
        return self._keep(Graph())

    @hip()
    def hipGraphDestroy(self, graph: Any) -> None:
        self._graph(graph)
        del self.graphs[address_of(graph)]

    @hip(1)
    def hipGraphClone(self, originalGraph: Any) -> Handle:
        return self._keep(self._graph(originalGraph).copy())

    @hip(3)
    def hipGraphInstantiate(self, graph: Any, bufferSize: int) -> tuple[Handle, None, str]:
        return self._instantiate(graph), None, ""

    @hip(1)
    def hipGraphInstantiateWithFlags(self, graph: Any, flags: int) -> Handle:
        if not 0 <= flags < 16:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags {flags} mean nothing")
        return self._instantiate(graph)

    def _instantiate(self, graph: Any) -> Handle:
        made = self.handle()
        self.executables[made] = self._graph(graph).copy()
        return made

    @hip()
    def hipGraphLaunch(self, graphExec: Any, stream: Any) -> None:
        """Its nodes run in any order that its edges allow, behind what the stream was given."""
        graph, found = self._executable(graphExec), self.stream(stream)
        if found.capture is not None:
            capture = self.valid(found.capture)
            behind = capture.tails[found]
            made: dict[Node, Node] = {}
            for node in graph.nodes:
                leaders = [made[n] for n in node.behind] or behind
                made[node] = capture.graph.add(node.kind, node.device, node.what, node.run, leaders, node.handle)
            capture.tails[found] = list(made.values()) or behind
            return
        options = {"run": self._without_acquire} if "replay" in self.modes else {}
        found.tail = graph.launch(self.scheduler, found.device, self.leaders(found), **options)

    def _without_acquire(self, node: Node) -> Callable[[], None] | None:
        """What a node of a replay does: kernels do not look for what was written before it; copies in it are seen."""
        run, machine = node.run, self.gpus[node.device].machine
        if run is None or node.kind == hipGraphNodeType.hipGraphNodeTypeKernel:
            return run and functools.partial(run, acquire=False)

        def copy() -> None:
            run()
            machine.acquire()

        return copy

    @hip()
    def hipGraphUpload(self, graphExec: Any, stream: Any) -> None:
        self._executable(graphExec)
        self.stream(stream)

    @hip()
    def hipGraphExecDestroy(self, graphExec: Any) -> None:
        """What was launched still runs."""
        self._executable(graphExec)
        del self.executables[address_of(graphExec)]

    @hip(1)
    def hipGraphExecUpdate(self, hGraphExec: Any, hGraph: Any, hErrorNode_out: Any) -> hipGraphExecUpdateResult:
        """Put the nodes of a graph of the same shape in place of an executable one's."""
        old, new = self._executable(hGraphExec), self._graph(hGraph)
        if _shape(old) != _shape(new):
            raise Refused(hipError_t.hipErrorGraphExecUpdateFailure, "the graphs differ in more than parameters")
        self.executables[address_of(hGraphExec)] = new.copy()
        return hipGraphExecUpdateResult.hipGraphExecUpdateSuccess


def _shape(graph: Graph) -> list[tuple[int, int, list[int]]]:
    """Kinds, devices and edges of a graph."""
    places = {node: n for n, node in enumerate(graph.nodes)}
    return [(int(n.kind), n.device, [places[b] for b in n.behind]) for n in graph.nodes]
