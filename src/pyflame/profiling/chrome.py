"""Events as a trace file in the JSON format that Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process row for the host with a track per thread, one for each device with a track per stream (on the CPU: per
thread that launched), and a counter of the memory in use. Arrows lead from a launch on the host to what ran. Written
here, not by a library: it is a list of dicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyflame.core.trace import DEVICE_KINDS, TraceEvent

HOST = 1  # its process number; devices follow

Row = dict[str, Any]


def chrome_trace(events: Iterable[TraceEvent], begin: float, threads: Mapping[int, str], facts: Row) -> Row:
    """The file's content. `begin`: the time that becomes 0; `threads`: their names; `facts` are shown beside it."""
    return _Writer(begin, threads).write(list(events), facts)


class _Writer:
    def __init__(self, begin: float, threads: Mapping[int, str]) -> None:
        self.begin = begin
        self.names = threads
        self.rows: list[Row] = []
        self.processes: dict[str, int] = {}
        self.tracks: dict[tuple[int, Any], int] = {}
        self.busy: dict[tuple[int, int], int] = {}  # when a device's track is free again
        self.arrows = 0

    def write(self, events: list[TraceEvent], facts: Row) -> Row:
        self.process("host", HOST)
        for event in sorted(events, key=lambda e: (e.begin, -(e.seconds or 0.0))):
            if event.kind == "memory":
                self.counter(event)
            elif event.kind in DEVICE_KINDS:
                self.device_slice(event)
            else:
                track = self.track(HOST, event.thread, self.thread_name(event.thread))
                start, end = self.at(event.begin), self.at(event.begin + (event.seconds or 0.0))
                self.slice(event.kind, f"{event.kind} {event.name}", HOST, track, start, end, {})
        order = {"M": 0, "C": 1, "X": 1, "s": 2, "f": 3}
        rows = sorted(self.rows, key=lambda r: (order[r["ph"]] > 0, r.get("ts", 0), order[r["ph"]], -r.get("dur", 0)))
        return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": facts}

    def at(self, seconds: float) -> int:
        """Nanoseconds since the begin. Whole ones: slices that touch or nest stay so when they are rounded."""
        return max(0, round((seconds - self.begin) * 1e9))

    def process(self, name: str, number: int) -> None:
        self.processes[name] = number
        self.meta("process_name", number, 0, {"name": name})
        self.meta("process_sort_index", number, 0, {"sort_index": number})

    def track(self, process: int, key: Any, name: str) -> int:
        if (process, key) not in self.tracks:
            number = 1 + sum(p == process for p, _ in self.tracks)
            self.tracks[process, key] = number
            self.meta("thread_name", process, number, {"name": name})
            self.meta("thread_sort_index", process, number, {"sort_index": number})
        return self.tracks[process, key]

    def thread_name(self, thread: int) -> str:
        return self.names.get(thread, f"thread {thread}")

    def device(self, name: str) -> int:
        if name not in self.processes:
            self.process(name, HOST + len(self.processes))
        return self.processes[name]

    def counter(self, event: TraceEvent) -> None:
        row = {"ph": "C", "name": "memory in use", "cat": "memory", "pid": self.device(event.device), "tid": 0}
        self.rows.append({**row, "ts": self.at(event.begin) / 1e3, "args": {"bytes": event.nbytes}})

    def device_slice(self, event: TraceEvent) -> None:
        process = self.device(event.device)
        key: Any
        if event.given is None:
            key, name = event.thread, f"launched by {self.thread_name(event.thread)}"
        else:
            key = ("stream", event.stream)
            name = f"stream {sum(p == process for p, _ in self.tracks)}"
        track = self.track(process, key, name)
        # A stream does one thing at a time; that its events are read to half a microsecond must not show as an overlap.
        start = max(self.at(event.begin), self.busy.get((process, track), 0))
        end = self.busy[process, track] = max(start, self.at(event.begin + (event.seconds or 0.0)))
        self.slice(event.kind, event.name, process, track, start, end, _about(event))
        if event.given is not None:
            given, took = event.given
            host = self.track(HOST, event.thread, self.thread_name(event.thread))
            give, gave = self.at(given), self.at(given + took)
            self.slice("launch", f"launch {event.name}", HOST, host, give, gave, {})
            self.arrows += 1
            arrow = {"name": "launch", "cat": "launch", "id": self.arrows}
            self.rows.append({**arrow, "ph": "s", "ts": give / 1e3, "pid": HOST, "tid": host})
            self.rows.append({**arrow, "ph": "f", "bp": "e", "ts": start / 1e3, "pid": process, "tid": track})

    def slice(self, kind: str, name: str, process: int, track: int, start: int, end: int, about: Row) -> None:
        row = {"ph": "X", "name": name, "cat": kind, "ts": start / 1e3, "dur": (end - start) / 1e3}
        self.rows.append({**row, "pid": process, "tid": track, "args": about})

    def meta(self, name: str, process: int, track: int, args: Row) -> None:
        self.rows.append({"ph": "M", "name": name, "pid": process, "tid": track, "args": args})


def _about(event: TraceEvent) -> Row:
    """What is shown of a slice that somebody clicks on."""
    about: Row = {"bytes": event.nbytes}
    if event.seconds is None:
        about["time"] = "not known"
    elif event.seconds and event.nbytes:
        about["GB/s"] = round(event.nbytes / event.seconds / 1e9, 3)
    if event.flops:
        about["operations"] = event.flops
        if event.seconds:
            about["TFLOP/s"] = round(event.flops / event.seconds / 1e12, 6)
    if event.ops:
        about["ops"] = " ".join(event.ops)
    if event.shape:
        about["result"] = "x".join(map(str, event.shape))
    if event.implementation:
        about["implementation"] = f"{event.implementation}: {event.why}"
    if event.ranges:
        about["ranges"] = " / ".join(event.ranges)
    return about
