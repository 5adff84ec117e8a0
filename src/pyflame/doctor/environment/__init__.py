"""Environment variables of GPUs: what each does, whether its value is right, and what to set.

    >>> from pyflame.doctor.environment import judge_environment
    >>> [f.verdict.value for f in judge_environment({"GPU_MAX_ALLOC_PERCENT": "100"})]
    ['dead']

`table/` holds what is known, `files/` reads scripts and settings, `pairs.py` what contradicts. Nothing here imports
torch or opens a device.
"""

from pyflame.doctor.environment.assignment import Assignment
from pyflame.doctor.environment.files import read_file
from pyflame.doctor.environment.judge import Finding, judge, judge_environment
from pyflame.doctor.environment.machine import find_machine
from pyflame.doctor.environment.setup import lines_for
from pyflame.doctor.environment.table import GROUPS, TABLE
from pyflame.doctor.environment.variable import Machine, Rule, Variable, Verdict

__all__ = [
    "GROUPS",
    "TABLE",
    "Assignment",
    "Finding",
    "Machine",
    "Rule",
    "Variable",
    "Verdict",
    "find_machine",
    "judge",
    "judge_environment",
    "lines_for",
    "read_file",
]
