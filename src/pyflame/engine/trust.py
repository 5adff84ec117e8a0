"""Whether captured graphs of a plan are used: what the driver is known for, what the user says, what comparing shows.

The first replay of a function's first graph is compared with its launches one by one (`engine/graph_check.py`). If it
differs, no graph of that function is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyflame.core import knobs
from pyflame.core.errors import DeviceError, DeviceFaultError, OutOfMemoryError
from pyflame.engine.binding import Written
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.graph_check import compare
from pyflame.runtime.gpu.driver import KernelArguments

WATCHED = 256  # replays between comparisons where the driver is known to have erred


class Refused(Exception):
    """A graph could not be captured, or is not trusted. The launches need none."""


@contextmanager
def refusals() -> Iterator[None]:
    """What a capture may fail with, as Refused: nothing was launched then."""
    try:
        yield
    except DeviceFaultError:
        raise
    except (DeviceError, OutOfMemoryError) as error:
        raise Refused(f"they could not be captured as a graph: {error}") from error


def policy(executable: GpuRunner) -> tuple[str, int]:
    """Why a plan shall not be replayed; empty: it shall. And after how many replays a graph is compared: -1: never, 0:
    at the first alone."""
    wanted, checks = knobs.GRAPHS.choice("checked", "trusted", "off"), knobs.GRAPH_CHECKS.integer()
    if wanted == "off":
        return f"{knobs.GRAPHS.name}=off", -1
    device = executable.device
    troubles = device.driver.graph_troubles(device.index)
    serious = [t for t in troubles if t.off and len(executable.plan.launches) >= t.launches]
    if serious and not wanted:
        return f"{serious[0].symptom} ({serious[0].source}); {knobs.GRAPHS.name}=checked replays it all the same", -1
    return "", -1 if wanted == "trusted" else checks or (WATCHED if troubles else 0)


@dataclass
class Trust:
    """After how many replays graphs of a plan are compared: -1: never, 0: the first of them, at its first replay. That
    one tells for all, which differ in where arguments lie; comparing takes as long as copying all state."""

    checks: int

    def compare(self, runner: GpuRunner, graph: Any, written: Sequence[Written], kernel_args: KernelArguments) -> None:
        """Run a plan by its launches, and see whether a replay of its graph does the same; Refused if it does not."""
        differs = compare(runner.device, written, graph.replay, lambda: runner.launch(kernel_args))
        if differs == "":
            self.checks = self.checks or -1
        elif differs is None:  # there is no memory for it
            graph.replay()
        else:
            launches = len(runner.plan.launches)
            why = f"a captured graph of {launches} launches gave other results than these one by one in {differs}"
            warnings.warn(
                f"{why}, on {runner.device.id}. The function is launched kernel by kernel from here on; the driver is "
                f"at fault, {runner.device.driver.version()}. PYFLAME_GRAPHS=off does without graphs altogether",
                RuntimeWarning,
                stacklevel=2,
            )
            raise Refused(why)
