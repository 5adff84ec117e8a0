"""The events of a profile by kernel and by range: how often, how long, how fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyflame.core.trace import DEVICE_KINDS, TraceEvent
from pyflame.profiling.timeline import kind_of

_COMPUTING = ("matmul", "convolution", "attention")  # kinds of work that memory's speed does not bound


@dataclass(eq=False)
class KernelTime:
    """All launches of one kernel on one device."""

    device: str
    kind: str  # kernel, graph, copy, fill
    name: str
    ops: tuple[str, ...]
    implementation: str
    why: str
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    calls: int = 0
    untimed: int = 0  # calls whose time is not known
    seconds: float = 0.0
    shortest: float = float("inf")
    longest: float = 0.0
    bytes: int = 0
    flops: int = 0

    def add(self, event: TraceEvent) -> None:
        self.shapes.add(event.shape)
        self.calls += 1
        if event.seconds is None:
            self.untimed += 1
            return
        self.seconds += event.seconds
        self.shortest = min(self.shortest, event.seconds)
        self.longest = max(self.longest, event.seconds)
        self.bytes += event.nbytes
        self.flops += event.flops

    @property
    def mean(self) -> float:
        return self.seconds / max(1, self.calls - self.untimed)

    @property
    def gb_per_second(self) -> float | None:
        return self.bytes / self.seconds / 1e9 if self.seconds and self.bytes else None

    @property
    def tflop_per_second(self) -> float | None:
        """None where hardly anything is computed."""
        return self.flops / self.seconds / 1e12 if self.seconds and self.flops > self.bytes else None

    @property
    def bound_by_memory(self) -> bool:
        """Whether the speed of memory is what it should be compared with. Copies from and to the host are not."""
        if self.kind in ("copy", "fill"):
            return "host" not in self.name and " to " not in self.name
        return self.kind == "kernel" and bool(self.bytes) and kind_of(self.ops) not in _COMPUTING

    def of_limit(self, limit: float) -> float | None:
        """Its bytes per second as a share of what memory can do, where that is a fair comparison."""
        rate = self.gb_per_second
        return rate * 1e9 / limit if limit and rate is not None and self.bound_by_memory else None


def by_kernel(events: Iterable[TraceEvent], shapes: bool = False) -> list[KernelTime]:
    """What devices did, by kernel (and by shape of its result), the longest first."""
    found: dict[tuple[object, ...], KernelTime] = {}
    for e in events:
        if e.kind in DEVICE_KINDS:
            key = (e.device, e.kind, e.name, e.ops, e.implementation, e.shape if shapes else None)
            if key not in found:
                found[key] = KernelTime(e.device, e.kind, e.name, e.ops, e.implementation, e.why)
            found[key].add(e)
    return sorted(found.values(), key=lambda k: -k.seconds)


@dataclass(eq=False)
class RangeTime:
    """All passes through one range of `pf.annotate`, by the ranges around it."""

    path: tuple[str, ...]
    calls: int = 0
    host_seconds: float = 0.0
    device_seconds: float = 0.0
    launches: int = 0


def by_range(events: Iterable[TraceEvent]) -> list[RangeTime]:
    """Time of the host inside of each range, and time of the devices on what was launched there."""
    found: dict[tuple[str, ...], RangeTime] = {}
    for e in events:
        if e.kind == "range":
            one = found.setdefault((*e.ranges, e.name), RangeTime((*e.ranges, e.name)))
            one.calls += 1
            one.host_seconds += e.seconds or 0.0
        elif e.kind in DEVICE_KINDS:
            for depth in range(1, len(e.ranges) + 1):
                one = found.setdefault(e.ranges[:depth], RangeTime(e.ranges[:depth]))
                one.device_seconds += e.seconds or 0.0
                one.launches += 1
    return [found[path] for path in sorted(found)]


def device_seconds(events: Iterable[TraceEvent]) -> dict[str, float]:
    """How long each device was at work, the longest first."""
    total: dict[str, float] = {}
    for e in events:
        if e.kind in DEVICE_KINDS:
            total[e.device] = total.get(e.device, 0.0) + (e.seconds or 0.0)
    return dict(sorted(total.items(), key=lambda pair: -pair[1]))
