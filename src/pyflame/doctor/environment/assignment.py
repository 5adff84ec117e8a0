"""Where a variable gets its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assignment:
    """A variable, its value (None: only the running program knows it) and where that is written."""

    name: str
    value: str | None
    where: str = ""  # file:line, or nothing for the environment
    late: str = ""  # what was imported before, so that the value comes too late
