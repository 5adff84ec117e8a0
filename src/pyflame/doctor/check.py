"""What a check is, what it may find, and the walk along the chain of checks.

A check is a function of a `Machine` that yields findings. It is looked at only if the links that it needs are whole:
behind a broken link everything else fails too, and says nothing new.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyflame.doctor.machine import Machine


class Status(enum.IntEnum):
    """How a link is, the worst last."""

    NOTHING = 0  # there is no such part in this machine
    FINE = 1
    UNSEEN = 2  # not looked at
    UNKNOWN = 3  # could not look
    WARNING = 4  # works, but not as it should
    BROKEN = 5


@dataclass(frozen=True)
class Fix:
    """A mend that needs no rights beyond this user's and takes nothing away."""

    text: str
    act: Callable[[], object]


@dataclass(frozen=True)
class Finding:
    """What a check found: how it is, why, and the commands that mend it. `mode` names the failure.

    `mend` is text for a shell: commands, with a comment behind them, or advice as a comment alone.
    """

    status: Status
    text: str
    mend: str = ""
    mode: str = ""
    fix: Fix | None = None


Findings = Iterator[Finding]


def fine(text: str) -> Finding:
    return Finding(Status.FINE, text)


def nothing(text: str) -> Finding:
    return Finding(Status.NOTHING, text)


def unseen(text: str) -> Finding:
    return Finding(Status.UNSEEN, text)


def warning(mode: str, text: str, mend: str = "", fix: Fix | None = None) -> Finding:
    return Finding(Status.WARNING, text, mend, mode, fix)


def broken(mode: str, text: str, mend: str = "", fix: Fix | None = None) -> Finding:
    return Finding(Status.BROKEN, text, mend, mode, fix)


@dataclass(frozen=True)
class Check:
    """One link of a chain. `modes`: what may be wrong, by name; `needs`: the links before it."""

    name: str
    chain: str  # "system", "cpu", "amd", "nvidia", "python"
    looks: str  # at what
    look: Callable[[Machine], Findings]
    modes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A check and what it found."""

    check: Check
    findings: tuple[Finding, ...]
    seconds: float = 0.0
    behind: str = ""  # the broken link because of which it was not looked at

    @property
    def status(self) -> Status:
        return max((f.status for f in self.findings), default=Status.NOTHING)

    def to_json(self) -> dict[str, Any]:
        found = [
            {"status": f.status.name.lower(), "mode": f.mode, "text": f.text, "mend": f.mend} for f in self.findings
        ]
        return {
            "check": self.check.name, "chain": self.check.chain, "status": self.status.name.lower(),
            "seconds": round(self.seconds, 4), "findings": found,
        }  # fmt: skip


def examine(machine: Machine, checks: Iterable[Check]) -> list[Result]:
    """Walk along the chain.

    >>> from pyflame.doctor.checks import python
    >>> [r.status.name for r in examine(Machine(), [python.CHECK])]
    ['FINE']
    """
    results: dict[str, Result] = {}
    for check in checks:
        results[check.name] = _looked(check, machine, results)
    return list(results.values())


def _looked(check: Check, machine: Machine, before: Mapping[str, Result]) -> Result:
    links = [before[name] for name in check.needs if name in before]
    absent = next((r for r in links if r.status is Status.NOTHING), None)
    if absent is not None:
        return Result(check, (nothing(absent.findings[0].text if absent.findings else ""),))
    cut = next((r for r in links if r.status is Status.BROKEN or r.behind), None)
    if cut is not None:
        cause = cut.behind or cut.check.name
        return Result(check, (unseen(f"not looked at: {cause} is broken"),), behind=cause)
    begun = time.perf_counter()
    try:
        found = tuple(check.look(machine))
    except Exception as error:  # a doctor that falls over helps nobody: it says what it could not see and goes on
        found = (Finding(Status.UNKNOWN, f"could not look: {type(error).__name__}: {error}"),)
    return Result(check, found, time.perf_counter() - begun)


def first_broken(results: Iterable[Result]) -> Result | None:
    """The link to mend first."""
    return next((r for r in results if r.status is Status.BROKEN), None)
