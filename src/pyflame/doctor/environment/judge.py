"""A verdict on each assignment, alone and beside the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyflame.core.errors import suggest
from pyflame.doctor.environment.assignment import Assignment
from pyflame.doctor.environment.pairs import CHECKS
from pyflame.doctor.environment.table import TABLE
from pyflame.doctor.environment.variable import Machine, Rule, Verdict

_PREFIXES = (
    "HSA_", "HIP_", "ROCR_", "ROCM_", "ROCBLAS_", "HIPBLASLT_", "MIOPEN_", "AMD_", "GPU_", "NCCL_", "PYTORCH_",
    "TORCH_",
)  # fmt: skip
_OWN = "PYFLAME_"
_ALIKE = 0.85  # how near a name must be to a known one to be taken for a slip of the pen
_NODE = re.compile(r"(?<=^HSA_OVERRIDE_GFX_VERSION)_\d+$")  # the same for one node of the topology
_HARMLESS = (Verdict.RIGHT, Verdict.NEEDLESS, Verdict.WRONG)


@dataclass(frozen=True)
class Finding:
    """What is thought of one assignment."""

    assignment: Assignment
    verdict: Verdict
    why: str
    do: str = ""
    source: str = ""

    @property
    def bad(self) -> bool:
        """Whether it is dangerous or contradictory."""
        return self.verdict.severity >= Verdict.CONTRADICTORY.severity

    def to_json(self) -> dict[str, Any]:
        a = self.assignment
        return {
            "variable": a.name, "value": a.value, "where": a.where, "verdict": self.verdict.value, "why": self.why,
            "do": self.do, "source": self.source,
        }  # fmt: skip


def judge(assignments: Iterable[Assignment], machine: Machine | None = None) -> list[Finding]:
    """A finding for each assignment that concerns GPUs, in their order.

    >>> judge([Assignment("HSA_UNALIGNED_ACCESS_MODE", "1")])[0].verdict.value
    'dead'
    """
    given = list(assignments)
    machine = Machine() if machine is None else machine
    found = [finding for a in given if (finding := _alone(a, machine)) is not None]
    # NVIDIA's driver does not read HIP's names, so that they contradict nothing.
    others = ("HIP_", "ROCR_") if machine.cuda else ()
    together = _together({a.name: a.value for a in given if a.value is not None and not a.name.startswith(others)})
    return [_graver(f, together.get(f.assignment.name, [])) for f in found]


def judge_environment(environment: Mapping[str, str], machine: Machine | None = None) -> list[Finding]:
    """A finding for each variable of an environment that concerns GPUs.

    >>> judge_environment({"CUDA_LAUNCH_BLOCKING": "1", "HIP_LAUNCH_BLOCKING": "0"})[0].verdict.value
    'contradictory'
    """
    return judge([Assignment(name, value) for name, value in environment.items()], machine)


def _alone(a: Assignment, machine: Machine) -> Finding | None:
    known = TABLE.get(_NODE.sub("", a.name))
    if known is None:
        return _unknown(a)
    rule = known.judge(a.value, machine)
    if a.late and known.early and rule.verdict in _HARMLESS:
        why = f"it is read when HIP starts, and {a.late} is imported above: the value does nothing"
        rule = Rule(Verdict.LATE, why, f"set it before {a.late} is imported, or outside of the program")
    return Finding(a, rule.verdict, rule.why, rule.do, rule.source or known.source)


def _unknown(a: Assignment) -> Finding | None:
    """A name that is nearly a known one; of our own names every other is a mistake."""
    if a.name.startswith(_OWN):
        near = suggest(a.name, [n for n in TABLE if n.startswith(_OWN)]).removeprefix("; ")
        return Finding(a, Verdict.DEAD, f"PyFlame has no such knob{'; ' * bool(near)}{near}", "see docs/knobs.md")
    near = suggest(a.name, TABLE, _ALIKE).removeprefix("; ") if a.name.startswith(_PREFIXES) else ""
    return Finding(a, Verdict.UNKNOWN, f"this name is not known; {near}") if near else None


def _together(values: Mapping[str, str]) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for check in CHECKS:
        for one in check(values):
            for name in one.names:
                found.setdefault(name, []).append(one.rule)
    return found


def _graver(finding: Finding, rules: list[Rule]) -> Finding:
    """The finding, or what the other variables make of it."""
    for rule in rules:
        if rule.verdict.severity > finding.verdict.severity:
            finding = replace(finding, verdict=rule.verdict, why=rule.why, do=rule.do, source=rule.source)
    return finding
