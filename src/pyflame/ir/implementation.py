"""What the schedule must know of the ways to run a kernel op on a target. The engine fills a table of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Implementation:
    """One candidate: its name, why it was chosen, whether it fuses elementwise consumers and reads strided sources."""

    name: str
    why: str = "the only implementation"
    epilogue: bool = False
    strided: bool = False
