"""`pyflame doctor` before the rest of the package is imported: it must run where NumPy, or anything else, does not.

`pyflame/__init__.py` comes here when a process was started with the word `doctor`, and goes on where that was another
program's word.
"""

from __future__ import annotations

import os
import sys


def is_pyflame(argv: list[str], started: list[str]) -> bool:
    """Whether a process is `pyflame ...` or `python -m pyflame ...`, while its package is being imported.

    >>> is_pyflame(["/usr/bin/pyflame", "doctor"], ["python", "/usr/bin/pyflame", "doctor"])
    True
    >>> is_pyflame(["-m", "doctor"], ["python", "-m", "pyflame", "doctor"])
    True
    >>> is_pyflame(["-m", "doctor"], ["python", "-m", "other", "doctor"])
    False
    """
    if argv[0] == "-m":
        before = started[: len(started) - len(argv) + 1]
        return before[-2:] == ["-m", "pyflame"] or before[-1:] == ["-mpyflame"]
    return os.path.basename(argv[0]) == "pyflame"


def run_doctor() -> None:
    """Be `pyflame doctor`, if that is what this process is, and end it."""
    if is_pyflame(sys.argv, sys.orig_argv):
        from pyflame.cli import doctor

        sys.exit(doctor.run(sys.argv[2:]))
