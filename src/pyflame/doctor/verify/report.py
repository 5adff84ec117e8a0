"""What verify found: the first op that differs, the worst ones, and all of them as a table, JSON or a page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from pyflame.core.atomic import write_atomic
from pyflame.doctor.closeness import Gap

WORST = 8
NO_GAP = Gap()


@dataclass
class Row:
    """One op on one device. `own`: its error over the reference's values; `total`: over the device's own;
    `whole`: of a result, when the call ran fused."""

    number: int
    op: str
    line: str
    module: str
    shape: tuple[int, ...]
    dtype: str
    terms: int
    allowed: float = 0.0
    allowed_total: float = 0.0
    own: Gap = NO_GAP
    total: Gap = NO_GAP
    failed: str = ""
    whole: Gap | None = None
    allowed_whole: float = 0.0
    whole_failed: str = ""

    @property
    def wrong(self) -> str:
        """Why the device computes it wrongly; empty where it does not."""
        if self.failed:
            return self.failed
        if self.own.error > self.allowed:
            return self.own.words or f"error {self.own.error:.2e}, allowed {self.allowed:.2e}"
        if self.whole_failed:
            return f"alone it is right, but the whole call fails: {self.whole_failed}"
        if self.whole is not None and self.whole.error > self.allowed_whole:
            words = self.whole.words or f"error {self.whole.error:.2e}, allowed {self.allowed_whole:.2e}"
            return f"alone it is right, but not in the whole call, where ops are fused: {words}"
        return ""

    @property
    def drifted(self) -> bool:
        """Right over the same values, but errors before it have grown beyond what rounding explains."""
        return not self.wrong and self.total.error > self.allowed_total

    @property
    def where(self) -> str:
        return "  ".join(filter(None, [self.line, self.module]))

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "1"
        return f"op {self.number}, {self.op} -> {self.dtype} {shape}, {self.where}"


@dataclass
class Comparison:
    """All ops on one device, against the reference."""

    device: str
    rows: list[Row] = field(default_factory=list)
    broken: str = ""  # the device faulted: what comes behind is unknown

    @property
    def wrong(self) -> list[Row]:
        return [r for r in self.rows if r.wrong]

    @property
    def drifted(self) -> list[Row]:
        return [r for r in self.rows if r.drifted]

    @property
    def agrees(self) -> bool:
        return not self.wrong and not self.broken

    def worst(self, count: int = WORST) -> list[Row]:
        """Those whose own error is the largest share of what it may be."""
        return sorted(self.rows, key=lambda r: -share(r))[:count]

    def layers(self) -> dict[str, list[Row]]:
        """The ops of each numbered layer (blk.3, features.0), and those before, between and behind them."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            first, number, *_ = (*row.module.split("."), "")
            found.setdefault(f"{first}.{number}" if number.isdecimal() else first, []).append(row)
        return found

    def lines(self, reference: str) -> list[str]:
        """The verdict in words."""
        if self.broken:
            return [self.broken]
        if self.wrong:
            row = self.wrong[0]
            return [
                f"{self.device} differs from {reference} in {len(self.wrong)} of {len(self.rows)} ops; the first:",
                f"  {row}",
                f"  {row.wrong}",
            ]
        found = [f"{self.device} agrees with {reference} in all {len(self.rows)} ops"]
        if self.drifted:
            row = self.drifted[0]
            grown = row.total.words or f"error {row.total.error:.2e}"
            found += [
                f"  but differences grow beyond what rounding explains from {row}:",
                f"  {grown} where {row.allowed_total:.2e} is usual; each op is right over the same values, so the "
                "model amplifies rounding there",
            ]
        return found


def share(row: Row) -> float:
    """An op's own error as a share of what is allowed."""
    if row.failed:
        return float("inf")
    return row.own.error / row.allowed if row.allowed else (float("inf") if row.own.error else 0.0)


@dataclass
class Report:
    """What `compare` gives. `outputs`: which ops are the call's results."""

    reference: str
    comparisons: list[Comparison]
    outputs: list[int] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether no device computes anything wrongly."""
        return all(c.agrees for c in self.comparisons)

    def __str__(self) -> str:
        return "\n".join(line for c in self.comparisons for line in c.lines(self.reference))

    def to_json(self) -> dict[str, Any]:
        devices = [
            {
                "device": c.device,
                "agrees": c.agrees,
                "broken": c.broken,
                "verdict": c.lines(self.reference),
                "ops": [{**asdict(r), "wrong": r.wrong, "drifted": r.drifted} for r in c.rows],
            }
            for c in self.comparisons
        ]
        found = {"reference": self.reference, "agrees": self.agrees, "outputs": self.outputs, "devices": devices}
        return _plain(found)  # type: ignore[no-any-return]

    def save(self, path: str | Path) -> Path:
        """As a page where the name ends in .html, as JSON otherwise."""
        from pyflame.doctor.verify.page import page  # not at the start: few want one

        text = page(self) if Path(path).suffix == ".html" else json.dumps(self.to_json(), indent=1, allow_nan=False)
        write_atomic(path, text)
        return Path(path)


def _plain(value: Any) -> Any:
    """Numbers that JSON does not have become text."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
