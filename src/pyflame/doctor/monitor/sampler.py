"""One sample from all sources that work here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyflame.doctor.monitor.amd_smi import AmdSmi
from pyflame.doctor.monitor.host import HostFiles
from pyflame.doctor.monitor.nvidia_smi import NvidiaSmi
from pyflame.doctor.monitor.sample import Gpu, Process, Sample, Source
from pyflame.doctor.monitor.sysfs import AmdgpuFiles


class Sampler:
    """Asks amdsmi, else the driver's files; NVML; and always the host. What does not work is told in `notes`, and a
    source that fails later leaves its GPUs out of that sample.

    >>> with Sampler() as sampler:
    ...     sampler.sample().host.memory_total > 0
    True
    """

    def __init__(self, root: str | Path = "/") -> None:
        self.notes: dict[str, str] = {}  # by source: why it tells nothing, or what went wrong last
        self.failed = ""  # what went wrong in the newest sample
        self._host = HostFiles(root)
        self._sources: list[Source] = []
        # Libraries tell of this machine whatever the root is.
        own = Path(root) == Path("/")
        amd = self._open("amdsmi", AmdSmi) if own else None
        self._sources.append(AmdgpuFiles(root) if amd is None else amd)
        nvidia = self._open("NVML", NvidiaSmi) if own else None
        self._sources += [] if nvidia is None else [nvidia]

    def _open(self, name: str, source: Callable[[], Source]) -> Source | None:
        try:
            return source()
        except Exception as error:  # a library may fail as it likes: the others go on, and the note tells
            self.notes[name] = str(error)
            return None

    def sample(self) -> Sample:
        """What is to be seen now."""
        self.failed = ""
        gpus: list[Gpu] = []
        processes: list[Process] = []
        for source in self._sources:
            try:
                found, running = source.read()
            except Exception as error:  # as above: a GPU may fall off the bus in the middle
                self.failed = self.notes[source.name] = str(error) or type(error).__name__
                continue
            gpus += found
            processes += running
        return Sample(time.time(), self._host.read(), tuple(gpus), tuple(processes))

    def close(self) -> None:
        """Let go of the libraries."""
        for source in self._sources:
            try:
                source.close()
            except Exception as error:
                self.notes[source.name] = str(error)
        self._sources = []

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
