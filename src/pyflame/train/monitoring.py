"""A callback that watches the machine during a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyflame.doctor.monitor import Monitor, Summary
from pyflame.train.callbacks import Callback

if TYPE_CHECKING:
    from pyflame.train.trainer import Trainer


class MachineMonitor(Callback):
    """Watches GPUs and the host in a thread, and adds what they did since the last log to each record: use, peak
    memory, power, temperature and throttling of each GPU. `summary` holds the whole run after it; `log` gets every
    sample.

    >>> Trainer(..., callbacks=[MachineMonitor()], log="run/log.jsonl")
    """

    def __init__(self, interval: float = 1.0, *, log: str | os.PathLike[str] | None = None, root: str = "/") -> None:
        self.monitor = Monitor(interval, log=log, root=root)
        self._options: dict[str, Any] = {"interval": interval, "log": log, "root": root}
        self.summary: Summary | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        self.monitor.stop()  # of a run before that ended by an error
        self.monitor = Monitor(**self._options).start()

    def on_log(self, trainer: Trainer, record: dict[str, Any]) -> None:
        seen = self.monitor.window()
        values: dict[str, float | None] = {"cpu_use": seen.mean_cpu_use}
        for number, gpu in enumerate(seen.gpus):
            values[f"gpu{number}_use"] = gpu.mean_use
            values[f"gpu{number}_peak_memory"] = gpu.peak_memory
            values[f"gpu{number}_power"] = gpu.mean_power
            values[f"gpu{number}_temperature"] = gpu.max_temperature
            values[f"gpu{number}_throttled"] = gpu.throttled
        record.update({name: value for name, value in values.items() if value is not None})

    def on_fit_end(self, trainer: Trainer) -> None:
        self.summary = self.monitor.stop()
