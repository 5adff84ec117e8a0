"""What is known of an environment variable, and what that makes of a value on a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Version = tuple[int, int]
Range = tuple[Version | None, Version | None]  # since, before
ANY: Range = (None, None)


class Verdict(str, Enum):
    """The mildest first."""

    RIGHT = "right"
    NEEDLESS = "needless"
    BUILD = "build-time only"
    UNKNOWN = "unknown"
    DEAD = "dead"
    WRONG = "wrong value"
    LATE = "too late"
    CONTRADICTORY = "contradictory"
    DANGEROUS = "dangerous"

    @property
    def severity(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Machine:
    """What verdicts depend on. None or empty: not known."""

    gpus: tuple[str, ...] = ()
    rocm: Version | None = None
    torch: Version | None = None
    wsl: bool | None = None
    cuda: bool = False  # NVIDIA's: what is said of ROCm is not for it


@dataclass(frozen=True)
class Rule:
    """A verdict and when it is given: for some values, GPUs and versions. What is not known of the machine counts as
    met, unless the rule is for `known` machines only."""

    verdict: Verdict
    why: str
    do: str = ""
    when: Callable[[str, Machine], bool] | None = None
    gpus: tuple[str, ...] = ()
    rocm: Range = ANY
    torch: Range = ANY
    known: bool = False
    source: str = ""

    def holds(self, value: str | None, machine: Machine) -> bool:
        """`value` None: one that only the running program knows."""
        if self.when is not None and (value is None or not self.when(value, machine)):
            return False
        if self.gpus and not (set(machine.gpus) & set(self.gpus) or (not machine.gpus and not self.known)):
            return False
        return self._within(self.rocm, machine.rocm) and self._within(self.torch, machine.torch)

    @property
    def machines(self) -> str:
        """The GPUs and versions that it is for, in words; nothing for all.

        >>> Rule(Verdict.RIGHT, "", gpus=("gfx942",), rocm=((7, 0), None)).machines
        'gfx942; ROCm from 7.0'
        """
        parts = [", ".join(self.gpus)] if self.gpus else []
        for what, (since, before) in (("ROCm", self.rocm), ("torch", self.torch)):
            parts += [f"{what} from {since[0]}.{since[1]}"] if since else []
            parts += [f"{what} before {before[0]}.{before[1]}"] if before else []
        return "; ".join(parts)

    def _within(self, wanted: Range, version: Version | None) -> bool:
        since, before = wanted
        if wanted == ANY:
            return True
        if version is None:
            return not self.known
        return (since is None or version >= since) and (before is None or version < before)


@dataclass(frozen=True)
class Variable:
    """A variable: who reads it, what it means, what it may hold. The first rule that holds gives the verdict; without
    one the default is needless, a value that `pattern` does not match is wrong, and any other is right."""

    name: str
    reader: str
    meaning: str
    values: str = ""
    default: str = ""
    pattern: str = ""
    rules: tuple[Rule, ...] = ()
    source: str = ""
    early: bool = False  # read when HIP or torch starts: set later it does nothing

    def judge(self, value: str | None, machine: Machine) -> Rule:
        """What a value is worth.

        >>> from pyflame.doctor.environment.table import TABLE
        >>> TABLE["HSA_ENABLE_SDMA"].judge("1", Machine()).verdict.value
        'needless'
        """
        for rule in self.rules:
            if rule.holds(value, machine):
                return rule
        if value is None:
            return Rule(Verdict.RIGHT, "its value is known only when the program runs")
        if self.default and value == self.default:
            return Rule(Verdict.NEEDLESS, "this is the default", "leave it out")
        if self.pattern and not re.fullmatch(self.pattern, value):
            return Rule(Verdict.WRONG, f"{self.reader} takes {self.values}", "correct it, or leave it out")
        return Rule(Verdict.RIGHT, "")


# --- conditions on values ---------------------------------------------------------------------------------------------


def equals(*values: str) -> Callable[[str, Machine], bool]:
    """Any of these texts, whatever their case."""
    return lambda value, _: value.strip().lower() in values


def other_than(*values: str) -> Callable[[str, Machine], bool]:
    return lambda value, _: value.strip().lower() not in values
