"""Recordings of what runs: begun and ended here, filled by whoever launches something, read by profiling.

One recording serves all that look at it: each window on it begins with the events that are yet to come. All threads
are recorded. At both ends of a window the host waits for the GPUs, so that their work lies inside or outside of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace

from pyflame.core import trace
from pyflame.core.device import DeviceId
from pyflame.core.errors import PyFlameError
from pyflame.core.locks import rlock
from pyflame.core.trace import Recording, TraceEvent
from pyflame.engine.compile_stats import CompileStats, compile_stats
from pyflame.engine.devices import opened
from pyflame.engine.events import note_memory
from pyflame.runtime.base import GpuDevice

_lock = rlock()
_windows: list[Window] = []


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a device's pool in use when a window began and ended, and the most meanwhile."""

    before: int
    after: int
    peak: int


@dataclass(eq=False)
class Window:
    """What was recorded between `begin` and `end`."""

    graphs: bool
    first: int  # of the recording's events
    before: CompileStats
    memory_before: dict[DeviceId, int]
    peaks: dict[DeviceId, int] = field(default_factory=dict)
    begin: float = 0.0
    seconds: float = 0.0
    events: list[TraceEvent] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    compile: CompileStats | None = None
    memory: dict[str, MemoryUse] = field(default_factory=dict)
    bandwidth: dict[str, float] = field(default_factory=dict)  # bytes per second that a device's memory allows, if told
    notes: list[str] = field(default_factory=list)


def begin(graphs: bool) -> Window:
    """Record from here on. `graphs`: captured graphs are replayed as such, not launch by launch."""
    with _lock:
        for gpu in _gpus():
            gpu.stream.synchronize()
        _fold_peaks()
        if trace.recording is None:
            trace.recording = Recording()
        window = Window(graphs, len(trace.recording.events), compile_stats(), _in_use())
        _windows.append(window)
        trace.recording.graphs = all(w.graphs for w in _windows)
        for device in opened():
            note_memory(device)
        window.begin = time.perf_counter()
    return window


def end(window: Window, failed: bool = False) -> None:
    """Close a window and fill it in. `failed`: an error is on its way already, and a device's must not hide it."""
    with _lock:
        recording = trace.recording
        assert recording is not None, "a window lives in a recording"
        clocks, errors = list(recording.clocks), list[PyFlameError]()
        for step in ("wait", "resolve"):
            for clock in clocks:
                try:
                    getattr(clock, step)()
                except PyFlameError as error:  # the device broke: other devices have times to tell
                    errors.append(error)
            if step == "wait":
                window.seconds = time.perf_counter() - window.begin
        for device in opened():
            note_memory(device)
        window.events = [_inside(event, window.begin) for event in recording.events[window.first :]]
        window.threads = dict(recording.threads)
        window.compile = _difference(compile_stats(), window.before)
        window.notes = [*recording.notes, *dict.fromkeys(f"times are missing: {error}" for error in errors)]
        _fold_peaks()
        after = _in_use()
        window.memory = {
            str(name): MemoryUse(window.memory_before.get(name, 0), after[name], peak)
            for name, peak in window.peaks.items()
        }
        window.bandwidth = {str(d.id): d.properties.peak_bandwidth for d in _gpus() if d.properties.peak_bandwidth}
        _windows.remove(window)
        recording.graphs = all(w.graphs for w in _windows)
        if not _windows:
            trace.recording = None
    if errors and not failed:
        raise errors[0]


def _gpus() -> list[GpuDevice]:
    """GPUs that work."""
    return [gpu for d in opened() if (gpu := d.gpu) is not None and gpu.fault is None]


def _in_use() -> dict[DeviceId, int]:
    return {d.id: d.pool.stats.allocated for d in opened() if d.pool is not None}


def _fold_peaks() -> None:
    """What was in use since the last fold counts for every window that is open."""
    for device in opened():
        if device.pool is not None:
            peak = device.pool.take_recent_peak()
            for window in _windows:
                window.peaks[device.id] = max(window.peaks.get(device.id, 0), peak)


def _inside(event: TraceEvent, begin: float) -> TraceEvent:
    """The part of an event that lies behind a window's begin."""
    late = begin - event.begin
    return replace(event, begin=begin, seconds=max(0.0, (event.seconds or 0.0) - late)) if late > 0 else event


def _difference(now: CompileStats, before: CompileStats) -> CompileStats:
    return CompileStats(*[getattr(now, f.name) - getattr(before, f.name) for f in fields(CompileStats)])
