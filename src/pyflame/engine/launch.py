"""From a plan to what runs it: compiled kernels, NumPy references where there is no compiler, or nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from pyflame.core import trace
from pyflame.core.device import CPU
from pyflame.core.trace import TraceEvent
from pyflame.engine import reference
from pyflame.engine.build import CpuRunner
from pyflame.engine.commit import Commit, write_all
from pyflame.engine.cpu_layout import CpuLayout
from pyflame.engine.devices import cpu
from pyflame.engine.value import Value, share_numpy, to_numpy
from pyflame.ir import Node
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import CONST, LEAF
from pyflame.runtime.base import Device

if TYPE_CHECKING:
    from pyflame.engine.gpu_layout import GpuLayout


Layout: TypeAlias = "CpuLayout | GpuLayout"


class Graph(Protocol):
    """What a runner may need of the graph that was planned."""

    order: list[Node]
    inputs: list[Node]
    constants: list[Node]
    outputs: list[Node]


class Runner(Protocol):
    """Runs a plan.

    `seconds` adds up the time of each launch when `timed`; `donated`: positions of inputs whose buffers
    outputs may take over.
    """

    @property
    def seconds(self) -> np.ndarray[Any, Any]: ...

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]: ...


class PlanRunner(Runner, Protocol):
    """What evaluation runs a plan by, on one device."""

    def known_row(self, sigs: tuple[int, ...]) -> tuple[Any, ...] | None:
        """What C must know to run the plan, whose results have these signatures; None where only Python can."""


class NumpyRunner:
    """Runs a graph as the NumPy references of its ops, one by one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.seconds = np.zeros(0)

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]:
        graph = self.graph
        known = {n: to_numpy(v, n.shape, n.dtype) for n, v in zip(graph.inputs, inputs, strict=True)}
        # behind them stand where assignments begin, which the nodes know
        known |= {n: np.asarray(v, n.dtype.numpy) for n, v in zip(graph.constants, constants, strict=False)}
        began = time.perf_counter()
        arrays = reference.compute(graph.order, known)
        if trace.recording is not None:
            ops = tuple(n.op.name for n in graph.order if n.op.kind not in (LEAF, CONST))
            event = TraceEvent("kernel", "NumPy references", str(CPU), began, time.perf_counter() - began, ops=ops)
            event.implementation, event.why = "reference", "no C compiler; bytes and operations are not counted"
            trace.recording.add(event)
        return [share_numpy(np.require(arrays[n], requirements="O")) for n in graph.outputs]

    def known_row(self, sigs: tuple[int, ...]) -> None:
        """Only Python has NumPy."""


class NullRunner:
    """The null device: outputs without data."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seconds = np.zeros(len(plan.launches))

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]:
        return [Value(None, 0, view.strides) for view in self.plan.outputs]

    def known_row(self, sigs: tuple[int, ...]) -> None:
        """There is nothing to run."""


def run_and_commit(
    runner: Runner,
    inputs: Sequence[Value],
    constants: Sequence[Any],
    commit: Commit,
    timed: bool,
    lines: Sequence[str],
    donated: Sequence[int],
) -> None:
    """Run a plan and take its results. On the CPU that is one step once the plan overwrites what others can see."""
    if isinstance(runner, CpuRunner):
        runner.run(inputs, constants, timed, lines, donated, commit)
    else:
        write_all(commit(runner.run(inputs, constants, timed, lines, donated)))


def on_host(runner: Runner) -> bool:
    """Whether a runner has nothing to do with a GPU, as far as that can be told without the rooms of GPUs."""
    return isinstance(runner, CpuRunner | NumpyRunner | NullRunner)


def runner_for(graph: Graph, plan: Plan, device: Device) -> PlanRunner:
    """What runs a plan on a device."""
    if not device.id.computes:
        return NullRunner(plan)
    if device.gpu is not None:
        from pyflame.engine.gpu import GpuRunner  # the rooms of GPUs cost a fifth of what importing pyflame does

        return GpuRunner(plan, device.gpu)
    return NumpyRunner(graph) if device.interprets else CpuRunner(plan, cpu())


def layout_of(plan: Plan, device: Device) -> Layout:
    """The integers that a runner of a device takes for a plan."""
    if device.gpu is None:
        return CpuLayout(plan, cpu())
    from pyflame.engine.gpu_layout import GpuLayout

    return GpuLayout(plan, device.gpu)


def runner_over(layout: Layout) -> PlanRunner:
    """What runs a plan of which these integers are known."""
    if isinstance(layout, CpuLayout):
        return CpuRunner(layout.plan, layout.device, layout)
    from pyflame.engine.gpu import GpuRunner

    return GpuRunner(layout.plan, layout.device, layout=layout)


def replayed(runner: Runner, arguments: Collection[int]) -> Runner:
    """The runner of a jitted function: on a GPU it replays captured graphs. `arguments`: inputs that change place."""
    if on_host(runner):
        return runner
    from pyflame.engine.capture import CapturedRunner
    from pyflame.engine.gpu import GpuRunner

    return CapturedRunner(runner, arguments) if isinstance(runner, GpuRunner) else runner
