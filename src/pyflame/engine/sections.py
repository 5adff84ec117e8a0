"""Tables as data: a command prints them in colour, everything else as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A titled table.

    >>> print(Section("mix", ("family", "count"), [("SALU", "12")], "lr"))
    mix
    family  count
    SALU       12
    """

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    sides: str = ""  # per column l or r; the first is left and the others right unless told
    note: str = ""

    def left(self, column: int) -> bool:
        return self.sides[column] == "l" if self.sides else column == 0

    def __str__(self) -> str:
        cells = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(widths[n]) if self.left(n) else cell.rjust(widths[n]) for n, cell in enumerate(row)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines, *([self.note] if self.note else [])])


def percent(share: float) -> str:
    """A share in percent: three digits are enough.

    >>> percent(1.0), percent(0.03125), percent(0.0004)
    ('100%', '3.1%', '0.04%')
    """
    value = 100 * share
    return f"{value:.0f}%" if value >= 99.95 else f"{value:.1f}%" if value >= 0.1 or value == 0 else f"{value:.2g}%"
