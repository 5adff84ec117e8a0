"""Compare: measurements as a table, a row for each statement and a column for each description."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence

from pyflame.core.errors import ArgumentError
from pyflame.utils.benchmark.measurement import Measurement, select_unit, trim_sigfig, unit_to_english

_BEST, _GOOD, _BAD, _VERY_BAD, _BOLD, _END = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m"
Cell = Measurement | None


class Colorize(enum.Enum):
    """What times are compared with for their colour."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """A table of measurements for each label; those of one TaskSpec are taken as one.

    >>> spec = pf.utils.benchmark.TaskSpec("f(x)", "pass", label="f", description="old")
    >>> print(pf.utils.benchmark.Compare([pf.utils.benchmark.Measurement(1, [0.002], spec)]))
    [------ f -------]
                |  old
    1 threads: -------
          f(x)  |  2.0
    <BLANKLINE>
    Times are in milliseconds (ms).
    <BLANKLINE>
    """

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trimmed = False
        self._colorize = Colorize.NONE
        self._warned = False

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ArgumentError(f"[Compare] expected Measurements but got {type(r).__name__}")
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Show only digits that can be trusted."""
        self._trimmed = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour times by how they compare with the best of their column, or row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark times that vary much."""
        self._warned = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        groups: dict[str | None, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.label, []).append(m)
        return "\n".join(self._table(group) for group in groups.values())

    def _table(self, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in results))
        columns = list(dict.fromkeys(m.description for m in results))
        rows: dict[tuple[int, str, str], list[Cell]] = {}
        for m in sorted(results, key=lambda m: (m.num_threads, m.env or "")):
            row = rows.setdefault((m.num_threads, m.env or "", m.as_row_name), [None] * len(columns))
            row[columns.index(m.description)] = m
        by_column = list(zip(*rows.values(), strict=True))
        digits = [self._digits(column, scale) for column in by_column]
        texts = [[self._text(m, scale, d) for m, d in zip(row, digits, strict=True)] for row in rows.values()]
        many_envs = len({env for _, env, _ in rows}) > 1
        names = [f"  ({env or 'Unspecified env'})  {name}" if many_envs else f"      {name}" for _, env, name in rows]
        first = max(len(name) for name in names)
        widths = [max(len(description or ""), *(len(row[i]) for row in texts)) for i, description in enumerate(columns)]
        head = [" " * first, *((c or "").center(w) for c, w in zip(columns, widths, strict=True))]
        lines = ["  |  ".join(head).rstrip()]
        width, threads = len("  |  ".join(head)), 0
        for (count, *_), name, row, cells in zip(rows, names, rows.values(), texts, strict=True):
            if count != threads:
                lines.append(f"{count} threads: ".ljust(width, "-"))
                threads = count
            shown = [cell.center(w) for cell, w in zip(cells, widths, strict=True)]
            coloured = [
                self._coloured(s, m, row, by_column[i]) for i, (s, m) in enumerate(zip(shown, row, strict=True))
            ]
            lines.append("  |  ".join([name.ljust(first), *coloured]).rstrip())
        label = "[" + f" {results[0].label or ''} ".center(width - 2, "-") + "]"
        noisy = self._warned and any(m.has_warnings for m in results)
        note = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n" if noisy else ""
        return "\n".join([label, *lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", note])

    def _digits(self, column: Sequence[Cell], scale: float) -> int:
        """Digits behind the point, for all times of a column."""
        if not self._trimmed:
            return 1
        return min(max(m.significant_figures - math.ceil(math.log10(m.median / scale)), 0) for m in column if m)

    def _text(self, m: Cell, scale: float, digits: int) -> str:
        if m is None:
            return ""
        value = m.median / scale
        shown = f"{trim_sigfig(value, m.significant_figures) if self._trimmed else value:.{digits}f}"
        return f"{shown} (! {m.iqr / m.median * 100:.0f}%)" if self._warned and m.has_warnings else shown

    def _coloured(self, text: str, m: Cell, row: Sequence[Cell], column: Sequence[Cell]) -> str:
        if m is None or self._colorize is Colorize.NONE:
            return text
        peers = (
            row if self._colorize is Colorize.ROWWISE else [c for c in column if c and c.num_threads == m.num_threads]
        )
        best = min(p.median for p in peers if p)
        if m.median <= best * 1.01 or m.median <= best + 1e-7:
            return f"{_BEST}{_BOLD}{text}{_END}"
        if m.median <= best * 1.1:
            return f"{_GOOD}{_BOLD}{text}{_END}"
        if m.median >= best * 5:
            return f"{_VERY_BAD}{_BOLD}{text}{_END}"
        return f"{_BAD}{text}{_END}" if m.median >= best * 2 else text
