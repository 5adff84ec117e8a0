"""Replays of a plan on memory that its caller chooses: a graph for places that come back, as a training loop's do.

torch's allocator and our pool give a loop the same memory in every turn, or one of a few. Places that are met a second
time get a graph, whose launches have them inside. It holds no memory: it is replayed while the caller holds the same.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyflame.core import trace
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.trust import Refused, Trust, policy, refusals
from pyflame.runtime.gpu.driver import KernelArguments

MAX_GRAPHS = 4
MAX_MET = 16  # places that are remembered
MAX_WASTED = 8  # graphs that nobody came back to

Places = tuple[int, ...]


@dataclass
class _Placed:
    graph: Any
    replays: int = 0


class PlacedGraphs:
    """Graphs of a plan by the addresses of all its memory. `why`: why there are none; empty: there may be."""

    def __init__(self, runner: GpuRunner) -> None:
        self._runner = runner
        self.why, checks = policy(runner)
        self._trust = Trust(checks)
        self._met: OrderedDict[Places, None] = OrderedDict()
        self._graphs: OrderedDict[Places, _Placed] = OrderedDict()
        self._wasted = 0

    def run(self, places: Places, kernel_args: KernelArguments) -> bool:
        """Replay a graph; False: the launches are to be given one by one."""
        if self.why or trace.recording is not None:
            return False
        found = self._graphs.get(places)
        try:
            if found is None:
                if not self._met_before(places):
                    return False
                found = self._capture(places, kernel_args)
            self._graphs.move_to_end(places)
            found.replays += 1
            if found.replays > 1 or self._trust.checks < 0:
                found.graph.replay()
            else:
                written = self._runner.binding.written(places)
                self._trust.compare(self._runner, found.graph, written, kernel_args)
                self._runner.device.empty_cache()  # what comparing took: others have use for it
        except Refused as refusal:
            self._graphs.clear()
            self.why = str(refusal)
            return False
        return True

    def _met_before(self, places: Places) -> bool:
        if places in self._met:
            return True
        self._met[places] = None
        if len(self._met) > MAX_MET:
            self._met.popitem(last=False)
        return False

    def _capture(self, places: Places, kernel_args: KernelArguments) -> _Placed:
        if len(self._graphs) == MAX_GRAPHS:
            _, oldest = self._graphs.popitem(last=False)
            self._wasted += oldest.replays < 2
            if self._wasted > MAX_WASTED:
                raise Refused("memory lies elsewhere at every call")
        with refusals(), self._runner.device.capture() as graph:
            self._runner.launch(kernel_args)
        made = self._graphs[places] = _Placed(graph)
        return made
