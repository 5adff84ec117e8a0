"""How far a run is: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pyflame.core.sizes import human_bytes
from pyflame.core.state import state
from pyflame.engine.devices import get_device
from pyflame.train.spare import SpareWrites

_REDRAW_SECONDS = 0.1


def memory() -> dict[str, int]:
    """Bytes that tensors hold on the current device, the most that they and running plans ever held, and the size of
    this process; what is not known is left out.

    >>> sorted(memory())
    ['memory_bytes', 'peak_bytes', 'process_bytes']
    """
    found: dict[str, int] = {}
    pool = get_device(state.device).pool  # the null device has no memory
    if pool is not None:
        stats = pool.stats
        found.update(memory_bytes=int(stats.allocated), peak_bytes=int(stats.peak_allocated))
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # Linux alone has it
        found["process_bytes"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return found


# What a bar leaves out first where it has no room.
_LEFT_OUT = ("process_bytes", "peak_bytes", "learning_rate", "memory_bytes")


def describe(record: dict[str, Any], unit: str, width: int | None = None) -> str:
    """The numbers of a log record in words, as many as fit into a width.

    'loss 0.123  4,567 items/s  memory 12 MiB, peak 30 MiB, process 90 MiB'
    """
    for count in range(len(_LEFT_OUT) + 1):
        left_out = _LEFT_OUT[:count]
        parts = []
        if "loss" in record:
            parts.append(f"loss {record['loss']:.4g}")
        if "learning_rate" in record and "learning_rate" not in left_out:
            parts.append(f"lr {record['learning_rate']:.3g}")
        if f"{unit}_per_second" in record:
            parts.append(f"{record[f'{unit}_per_second']:,.0f} {unit}/s")
        sizes = [
            f"{label} {human_bytes(record[key])}"
            for label, key in (("memory", "memory_bytes"), ("peak", "peak_bytes"), ("process", "process_bytes"))
            if key in record and key not in left_out
        ]
        words = "  ".join([*parts, ", ".join(sizes)]).rstrip()
        if width is None or len(words) <= width:
            break
    return words


class Progress:
    """Shows the steps of a run on a console: a bar if it is a terminal, else one line per log record.

    >>> with Progress(total=100) as progress:
    ...     progress.log({"step": 1, "epoch": 0, "loss": 0.5})
    """

    def __init__(self, total: int | None, unit: str = "items", console: Console | None = None) -> None:
        self.console = console or Console()
        self.total = total
        self.unit = unit
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._drawn = 0.0
        self._record: dict[str, Any] = {}
        self._writes = SpareWrites("the progress")
        self._step = 0

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            # Redrawn by hand: a thread that does it would take time from the kernels.
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=self._bar_width()),
                TextColumn("{task.completed:,.0f}{task.fields[of]}"),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(compact=True),
                console=self.console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task("starting", total=self.total, text="", of=self._of())
            with self._writes.step(0):
                self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            with self._writes.step(self._step):
                self._bar.refresh()
                self._bar.stop()
            self._bar = None
        self._writes.report()

    def step(self, step: int, epoch: int) -> None:
        """A step was done. Cheap: nothing is drawn more than ten times a second."""
        self._step = step
        if self._bar is None or time.monotonic() - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = time.monotonic()
        self._bar.update(
            self._task,
            completed=step,
            total=self.total,
            description=f"epoch {epoch + 1}",
            text=describe(self._record, self.unit, self._room(step)),
            of=self._of(),
        )
        with self._writes.step(step):
            self._bar.refresh()

    def _of(self) -> str:
        return f"/{self.total:,}" if self.total else ""

    def _bar_width(self) -> int:
        return 8 if self.console.width < 100 else 24

    def _room(self, step: int) -> int:
        """Columns that epoch, bar, steps and time leave for words."""
        return (
            self.console.width - len("epoch 1  ") - self._bar_width() - len(f" {step:,}{self._of()} ") - len("00:00 ")
        )

    def log(self, record: dict[str, Any]) -> None:
        """Numbers of the last steps."""
        self._record = record
        if self._bar is not None:
            self._drawn = 0.0
            self.step(record["step"], record["epoch"])
        else:
            self._line(
                f"step {record['step']:,}{self._of()}  epoch {record['epoch'] + 1}  {describe(record, self.unit)}"
            )

    def message(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self._bar is not None:
            with self._writes.step(self._step):
                self._bar.console.print(text, highlight=False, markup=False)
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        with self._writes.step(self._step):
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
            self.console.file.flush()  # a log that is read while the run lasts
