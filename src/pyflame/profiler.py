"""torch.profiler by its path, over `pf.profile`: the same program records the same spans, and shows our tables.

Ops are lazy: work counts for the step in which it is evaluated. Names of rows are those of kernels, not of ops.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from pyflame.core.atomic import write_atomic
from pyflame.core.errors import ArgumentError
from pyflame.core.torch_paths import refused
from pyflame.engine.devices import opened
from pyflame.profiling import Profile
from pyflame.profiling import annotate as record_function

EventList = refused("EventList", "profile.key_averages gives a report")  # by which libraries annotate
emit_nvtx = refused("emit_nvtx", "pf.cuda.nvtx has ranges of the program's own")

__all__ = [
    "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """Devices to record. All that work are recorded, whichever are named."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def kineto_available() -> bool:
    """PyTorch's own recorder is not here: False."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """The CPU, and CUDA where a GPU was used."""
    found = {ProfilerActivity.CPU}
    return found | {ProfilerActivity.CUDA} if any(d.gpu is not None for d in opened()) else found


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Steps to leave out, to warm up in, and to record, again and again or `repeat` times.

    >>> [pf.profiler.schedule(wait=1, warmup=1, active=2)(n).name for n in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ArgumentError(
            f"[schedule] expected active of at least 1 and others of at least 0 but got {wait}, {warmup}, {active}, "
            f"{repeat} and {skip_first}"
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ArgumentError(f"[schedule] expected a step of at least 0 but got {step}")
        at = step - skip_first + (wait if skip_first_wait else 0)
        if step < skip_first or (repeat and at // cycle >= repeat):
            return ProfilerAction.NONE
        at %= cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


class Averages:
    """What `key_averages()` gives: launches by kernel."""

    def __init__(self, recorded: Profile, shapes: bool) -> None:
        self.recorded, self.shapes = recorded, shapes

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """Kernels as text, the longest first, whatever `sort_by` says."""
        return self.recorded.table(rows=row_limit if row_limit > 0 else 10**6, shapes=self.shapes)

    def __iter__(self) -> Any:
        return iter(self.recorded.kernels)

    def __len__(self) -> int:
        return len(self.recorded.kernels)

    __str__ = table


class profile:
    """Record what runs in a `with` block, or in those of its steps that a schedule names: see pf.profile.

    `on_trace_ready` is called with this object when a span of recorded steps ends. Options for what PyTorch records
    beside times (`record_shapes`, `profile_memory`, `with_stack`, ...) are taken: shapes and memory always are.

    >>> with pf.profiler.profile() as p, pf.profiler.record_function("work"):
    ...     pf.eval(pf.ones(3).exp())
    >>> len(p.key_averages()) > 0
    True
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
    ) -> None:
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._running: Profile | None = None
        self._recorded: Profile | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, with step 0."""
        self._follow(self.current_action)

    def stop(self) -> None:
        """End; what is being recorded is handed out."""
        if self._running is not None:
            self._end(hand_out=True)

    def step(self) -> None:
        """Say that the next step begins."""
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        if self._running is not None and (
            before is ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDING
        ):
            self._end(hand_out=before is ProfilerAction.RECORD_AND_SAVE)
        self._follow(self.current_action)

    def _follow(self, action: ProfilerAction) -> None:
        if action in _RECORDING and self._running is None:
            self._running = Profile()
            self._running.__enter__()

    def _end(self, hand_out: bool) -> None:
        assert self._running is not None
        self._recorded, self._running = self._running, None
        self._recorded.__exit__(None, None, None)
        if hand_out and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _ended(self) -> Profile:
        if self._recorded is None:
            raise ArgumentError("[profile] expected a span that has ended but none has; read it behind the with block")
        return self._recorded

    def key_averages(self, group_by_input_shape: bool = False, **options: Any) -> Averages:
        """Launches of the last recorded span, by kernel."""
        return Averages(self._ended(), group_by_input_shape)

    def events(self) -> Any:
        """All that was recorded in the last span, in order of time."""
        return self._ended().events

    def export_chrome_trace(self, path: str) -> None:
        """Write the last span for Chrome's and Perfetto's viewers."""
        if str(path).endswith(".gz"):
            self._ended().save(path)
        else:
            write_atomic(Path(path), json.dumps(self._ended().trace()))


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each span into a file of its own in a folder.

    >>> callable(pf.profiler.tensorboard_trace_handler("traces"))
    True
    """

    def handle(found: profile) -> None:
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        os.makedirs(dir_name, exist_ok=True)
        ending = ".pt.trace.json" + (".gz" if use_gzip else "")
        found.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}{ending}"))

    return handle
