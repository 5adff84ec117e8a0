"""Many samples in a few numbers, kept up to date with each one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pyflame.doctor.monitor.sample import Gpu, Sample


def size(count: float | None) -> str:
    """Bytes for people.

    >>> size(3 << 30), size(None)
    ('3.0 GB', '-')
    """
    if count is None:
        return "-"
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


@dataclass
class Mean:
    """A mean and a maximum."""

    total: float = 0.0
    count: int = 0
    most: float | None = None

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1
            self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over a time. Use in percent, memory in bytes, power in W, energy in J (power over time)."""

    bus: str
    name: str
    mean_use: float | None
    peak_memory: int | None
    mean_power: float | None
    max_power: float | None
    energy: float | None
    max_temperature: float | None
    throttled: float | None  # share of samples

    def __str__(self) -> str:
        parts = [f"use {self.mean_use:.0f}%" if self.mean_use is not None else "", f"memory {size(self.peak_memory)}"]
        parts += [f"power {self.mean_power:.0f} W"] if self.mean_power is not None else []
        parts += [f"energy {self.energy:.0f} J"] if self.energy is not None else []
        parts += [f"{self.max_temperature:.0f} °C"] if self.max_temperature is not None else []
        parts += [f"throttled {100 * self.throttled:.0f}% of the time"] if self.throttled else []
        return f"{self.name}: {', '.join(part for part in parts if part)}"


@dataclass(frozen=True)
class Summary:
    """What a time of watching saw. `failures` counts samples that went wrong, `error` says how the last one did."""

    seconds: float
    samples: int
    gpus: tuple[GpuSummary, ...]
    mean_cpu_use: float | None
    peak_host_memory: int | None
    failures: int = 0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        cpu = "" if self.mean_cpu_use is None else f", CPU {self.mean_cpu_use:.0f}%"
        lines = [f"{self.samples} samples in {self.seconds:.1f} s{cpu}, host memory {size(self.peak_host_memory)}"]
        lines += [f"gpu {number}  {gpu}" for number, gpu in enumerate(self.gpus)]
        return "\n".join(lines)


@dataclass
class _Watched:
    name: str
    use: Mean = field(default_factory=Mean)
    memory: Mean = field(default_factory=Mean)
    power: Mean = field(default_factory=Mean)
    temperature: Mean = field(default_factory=Mean)
    throttled: Mean = field(default_factory=Mean)
    energy: float | None = None
    last: tuple[float, float] | None = None  # when, W

    def add(self, gpu: Gpu, time: float) -> None:
        self.use.add(gpu.use)
        self.memory.add(gpu.memory_used)
        self.power.add(gpu.power)
        self.temperature.add(gpu.temperature)
        self.throttled.add(None if gpu.throttled is None else float(bool(gpu.throttled)))
        if gpu.power is not None:
            if self.last is not None:
                then, watts = self.last
                self.energy = (self.energy or 0.0) + (watts + gpu.power) / 2 * max(0.0, time - then)
            self.last = time, gpu.power


class Totals:
    """Samples in, a summary out.

    >>> totals = Totals()
    >>> totals.add(Sample(0.0, Host(50.0)), 0.0)
    >>> totals.summary().mean_cpu_use
    50.0
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Watched] = {}
        self._cpu, self._memory = Mean(), Mean()
        self._begun: float | None = None
        self._ended = 0.0
        self.samples = 0

    def add(self, sample: Sample, now: float) -> None:
        """A sample, and when it was taken on a clock that is never set back."""
        self._begun = now if self._begun is None else self._begun
        self._ended = now
        self.samples += 1
        self._cpu.add(sample.host.cpu_use)
        self._memory.add(sample.host.memory_used)
        for gpu in sample.gpus:
            self._gpus.setdefault(gpu.bus, _Watched(gpu.name)).add(gpu, now)

    def summary(self, failures: int = 0, error: str = "") -> Summary:
        gpus = tuple(
            GpuSummary(
                bus, w.name, w.use.mean, None if w.memory.most is None else int(w.memory.most), w.power.mean,
                w.power.most, w.energy, w.temperature.most, w.throttled.mean,
            )
            for bus, w in self._gpus.items()
        )  # fmt: skip
        most = self._memory.most
        seconds = 0.0 if self._begun is None else self._ended - self._begun
        return Summary(
            seconds, self.samples, gpus, self._cpu.mean, None if most is None else int(most), failures, error
        )
