"""What was seen at one moment. Sizes in bytes, use in percent; None is what a source does not tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol


@dataclass(frozen=True)
class Gpu:
    """One GPU. `throttled` names what holds its clock down: power, current, temperature, other."""

    bus: str  # PCI address, such as 0000:03:00.0
    name: str
    use: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    gtt_used: int | None = None  # of the host's memory, mapped for the GPU: most of what an APU has
    gtt_total: int | None = None
    power: float | None = None  # W
    power_limit: float | None = None
    clock: float | None = None  # MHz
    temperature: float | None = None  # °C, of the hottest spot where that is told
    throttled: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None

    def filled_from(self, other: Gpu) -> Gpu:
        """With what the other one knows and this one does not.

        >>> Gpu("0", "a", use=3.0).filled_from(Gpu("0", "b", use=5.0, power=70.0)).power
        70.0
        """
        missing = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **missing)


@dataclass(frozen=True)
class Process:
    """A process that has memory of a GPU or works on it."""

    bus: str
    pid: int
    name: str
    memory: int | None = None
    use: float | None = None


@dataclass(frozen=True)
class Host:
    """CPU and memory of the machine."""

    cpu_use: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class Sample:
    """Everything at one moment; `time` in seconds since 1970."""

    time: float
    host: Host
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain dicts and lists, GPUs numbered in the order of their PCI addresses."""
        gpus = [{"gpu": number, **asdict(gpu)} for number, gpu in enumerate(self.gpus)]
        for gpu in gpus:
            gpu["throttled"] = None if gpu["throttled"] is None else list(gpu["throttled"])
        return {
            "time": round(self.time, 3), "host": asdict(self.host), "gpus": gpus,
            "processes": [asdict(process) for process in self.processes],
        }  # fmt: skip


class Source(Protocol):
    """Where GPUs are seen. `read` may raise: the GPUs of that source are then missing from a sample."""

    name: str

    def read(self) -> tuple[list[Gpu], list[Process]]: ...

    def close(self) -> None: ...
