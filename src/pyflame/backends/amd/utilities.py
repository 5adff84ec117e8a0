"""HIPUtilities: named streams, events and timed regions of an AMD GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyflame as pf
from pyflame.backends.amd.backend import AMDBackend
from pyflame.core.config import AMDConfig
from pyflame.core.errors import ArgumentError
from pyflame.profiling import annotate


class HostStream:
    """A stream of the CPU, which has one queue: all that it was given is done."""

    def __init__(self, name: str) -> None:
        self.name, self.device = name, "cpu"

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def query(self) -> bool:
        """Whether it has nothing left to do: always."""
        return True

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __repr__(self) -> str:
        return f"HostStream({self.name!r}): the CPU works in order, whatever stream it is told"


class HIPUtilities:
    """Streams by name, and regions whose time is taken where `enable_profiling` says so.

    >>> utils = HIPUtilities(AMDConfig(device="cpu", enable_profiling=True))
    >>> with utils.profile_region("sum"):
    ...     pf.eval(pf.ones(3).sum())
    >>> utils.get_profiling_summary()["regions"]["sum"]["count"]
    1
    """

    def __init__(self, config: AMDConfig | None = None) -> None:
        self.backend = AMDBackend(config)
        self._streams: dict[str, Any] = {}
        self._regions: dict[str, list[float]] = {}

    def create_stream(self, name: str, priority: int = 0) -> Any:
        """A stream by a new name; below 0 a priority is more urgent. On the CPU a HostStream, which orders nothing."""
        if name in self._streams:
            raise ArgumentError(f"[create_stream] expected a new name but got {name!r}; get_stream gives that stream")
        made = pf.Stream(self.backend.id, priority) if self.backend.is_available() else HostStream(name)
        return self._streams.setdefault(name, made)

    def get_stream(self, name: str) -> Any:
        """The stream of a name."""
        if name not in self._streams:
            known = ", ".join(self._streams) or "none was made"
            raise ArgumentError(f"[get_stream] expected the name of a stream ({known}) but got {name!r}")
        return self._streams[name]

    def create_event(self, enable_timing: bool = True) -> pf.Event:
        """An event of the GPU. The CPU has none: it raises DeviceError."""
        return pf.Event(self.backend.id, enable_timing)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.backend.synchronize()

    @contextmanager
    def profile_region(self, name: str) -> Iterator[None]:
        """Take the time of a block, from an idle device to an idle device; name it in profiles (`pf.annotate`).

        Ops of ours are lazy: evaluate in the block what shall count. Without `enable_profiling` it is only named.
        """
        taken = self.backend.config.enable_profiling
        if taken:
            pf.synchronize(self.backend.id)
        started = time.perf_counter()
        with annotate(name):
            yield
            if taken:
                pf.synchronize(self.backend.id)
                self._regions.setdefault(name, []).append(1e3 * (time.perf_counter() - started))

    def get_profiling_summary(self) -> dict[str, Any]:
        """`regions`: count, total_ms, avg_ms, min_ms and max_ms by name. A simulator's times are its own."""
        regions = {
            name: {
                "count": len(times),
                "total_ms": sum(times),
                "avg_ms": sum(times) / len(times),
                "min_ms": min(times),
                "max_ms": max(times),
            }
            for name, times in self._regions.items()
        }
        config = self.backend.config
        return {"enabled": config.enable_profiling, "device": str(self.backend.id), "regions": regions}

    def cleanup(self) -> None:
        """Wait for all streams, forget them and the times."""
        for stream in self._streams.values():
            stream.synchronize()
        self._streams.clear()
        self._regions.clear()
