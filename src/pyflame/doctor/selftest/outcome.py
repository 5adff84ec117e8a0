"""What a self-test found: a table by family, and a report to attach to a bug."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core import knobs
from pyflame.core.atomic import write_atomic
from pyflame.core.errors import PyFlameError
from pyflame.doctor.selftest.bench import Result

SHOWN = 10  # failing cases of a report


@dataclass
class Row:
    """A family's results."""

    family: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    ulp: float = 0.0
    error: float = 0.0
    seconds: float = 0.0


@dataclass
class Outcome:
    """The results of all cases that were tried, in the order in which they ended. `cases`: that there are. `broken`:
    why the device can do no more."""

    device: str
    seed: int
    seconds: float
    cases: int
    results: list[Result] = field(default_factory=list)
    spent: float = 0.0
    broken: str = ""

    @property
    def failures(self) -> list[Result]:
        return [r for r in self.results if r.failures]

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def unreached(self) -> int:
        return self.cases - len(self.results)

    def rows(self) -> list[Row]:
        """One for each family, those that failed first."""
        found: dict[str, Row] = {}
        for r in self.results:
            row = found.setdefault(r.family, Row(r.family))
            row.passed += r.passed
            row.failed += bool(r.failures)
            row.skipped += bool(r.skipped)
            row.ulp, row.error = max(row.ulp, r.ulp), max(row.error, r.error)
            row.seconds += r.seconds
        return sorted(found.values(), key=lambda row: row.failed == 0)

    def repeat(self, result: Result) -> str:
        """The command that runs one case again."""
        case = f"{result.family}/{result.name}"
        quoted = f'"{case}"' if " " in case else case
        return f"pyflame selftest --device {self.device} --seed {self.seed} --case {quoted}"

    def summary(self) -> str:
        passed = sum(r.passed for r in self.results)
        skipped = sum(bool(r.skipped) for r in self.results)
        why = self.broken or f"--seconds {self.seconds:.0f} were over"
        left = f"; {self.unreached} not reached, {why}" if self.unreached else f"; {self.broken}" if self.broken else ""
        return (
            f"{passed} cases passed, {self.failed} failed, {skipped} do not apply, on {self.device} "
            f"in {self.spent:.0f} s{left}"
        )

    def report(self) -> str:
        """Machine, versions, device and the first failures with the commands that repeat them, as plain text."""
        about = [f"{name:12} {value}" for name, value in machine(self.device).items()]
        lines = ["PyFlame self-test", self.summary(), "", *about, ""]
        for r in self.failures[:SHOWN]:
            lines += [f"FAILED {r.family}/{r.name}", *[f"  {f}" for f in r.failures], f"  {self.repeat(r)}", ""]
        if self.failed > SHOWN:
            lines += [f"and {self.failed - SHOWN} more", ""]
        lines += [f"{note} ({r.family}/{r.name})" for r in self.results for note in r.notes]
        return "\n".join(lines).rstrip() + "\n"

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary(),
            "machine": machine(self.device),
            "seed": self.seed,
            "seconds": self.seconds,
            "failed": self.failed,
            "unreached": self.unreached,
            "broken": self.broken,
            "families": [row.__dict__ for row in self.rows()],
            "results": [{**r.to_json(), "repeat": self.repeat(r)} for r in self.results],
        }

    def save(self, path: str | Path) -> Path:
        """All of it as JSON."""
        # infinity is no number of JSON, and no case keeps one: see Bench.check
        write_atomic(path, json.dumps(self.to_json(), indent=1, allow_nan=False))
        return Path(path)


def machine(device: str) -> dict[str, str]:
    """This machine, versions and the device, for a report."""
    import pyflame

    found = {
        "pyflame": pyflame.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "device": device,
    }
    try:
        told = {k: v for k, v in pyflame.device_info(device).items() if v not in (None, "")}
        found |= {f"device {k}": str(v).partition("\n")[0] for k, v in told.items()}
    except PyFlameError as error:  # the report says so: it is what the reader must know first
        found["device"] = f"{device}: {error}"
    set_here = [f"{k.name}={k.text()}" for k in knobs.ALL if k.text() != k.default]
    return {**found, "knobs": " ".join(set_here) or "none is set"}
