"""Times of a statement, and what they say."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1.0)}
_NOISE = {0.25: "This suggests significant environmental influence.", 0.1: "This could indicate system fluctuation."}


@dataclass(frozen=True)
class TaskSpec:
    """What was measured: Measurements with equal ones are taken as one."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement where there is none."""
        sub = f": {self.sub_label}" if self.sub_label else ""
        if self.label is not None or "\n" not in self.stmt:
            return f"{self.stmt if self.label is None else self.label}{sub}"
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def summarize(self) -> str:
        """Title, description and setup."""
        setup = "" if self.setup in ("", "pass") else f"setup: {self.setup}"
        if "\n" in setup:
            setup = f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return "\n".join(part for part in (self.title, self.description or "", setup) if part)


_FIELDS = tuple(field.name for field in fields(TaskSpec))


@dataclass(repr=False)
class Measurement:
    """Times of a statement, each over `number_per_run` runs. Attributes of its TaskSpec are its own too.

    >>> pf.utils.benchmark.Measurement(10, [0.1, 0.3, 0.2], pf.utils.benchmark.TaskSpec("f(x)", "pass")).median
    0.02
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        return float(np.quantile(self.times, q))

    @property
    def median(self) -> float:
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """How far the quartiles are apart: half of the times lie between."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median can be trusted, from 1 to 4: by the spread of the middle half of the times."""
        count = len(self.raw_times)
        middle = sorted(self.times)[count // 4 : math.ceil(3 * count / 4)]
        interval = max(1.645 * float(np.std(middle)) / math.sqrt(len(middle)), 2.5e-8)
        return min(max(math.floor(math.log10(self.median / interval)), 1), 4)

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the quartiles are closer than this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        return not self.meets_confidence()

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count, one = len(self.raw_times), len(self.raw_times) == 1
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'' if one else 'Median: '}{self.median / scale:.2f} {unit}")
        if count >= 4:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        runs = f"{self.number_per_run} runs {',' if one else 'per measurement,'}"
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        lines.append(f"  {count} measurement{'' if one else 's'}, {runs} {threads}")
        for threshold, text in _NOISE.items():
            if not self.meets_confidence(threshold):
                part = self.iqr / self.median * 100
                lines.append(
                    f"  WARNING: Interquartile range is {part:.1f}% of the median measurement.\n           {text}"
                )
                break
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One for each TaskSpec, with the times of all that have it."""
        found: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            found.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, times, spec) for spec, times in found.items()]


def select_unit(t: float) -> tuple[str, float]:
    """A unit in which a time has few digits, and its seconds.

    >>> pf.utils.benchmark.select_unit(0.002)
    ('ms', 0.001)
    """
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(int(math.log10(t) // 3), "s")
    return unit, UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The name of a unit.

    >>> pf.utils.benchmark.unit_to_english("us")
    'microsecond'
    """
    return UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """A number with n significant digits.

    >>> pf.utils.benchmark.trim_sigfig(123.4, 2)
    120.0
    """
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)
