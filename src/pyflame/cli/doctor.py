"""`pyflame doctor`: walk the chain from the PCI bus to a right result, and name the first broken link and its mend."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# The standard library and the doctor only: this runs where nothing else imports (see `early.py`).
from pyflame.doctor.chain import CHECKS
from pyflame.doctor.check import Result, examine, first_broken
from pyflame.doctor.machine import recorded_machine, this_machine
from pyflame.doctor.report import as_json, print_results


def run(argv: list[str]) -> int:
    """0: no link is broken, 1: one is, 2: wrong arguments, or the report cannot be written."""
    parser = argparse.ArgumentParser(prog="pyflame doctor", description=__doc__)
    add = parser.add_argument
    add("--json", action="store_true", help="print everything that was found as JSON")
    add("--root", metavar="DIR", help="look at a copy of another machine's files; nothing is run then")
    add("--fix", action="store_true", help="offer the mends that need no other rights, one by one")
    options = parser.parse_args(argv)
    if options.root and not Path(options.root).is_dir():
        parser.error(f"argument --root: expected a folder but got {options.root}")
    if options.root and options.fix:
        parser.error("argument --fix: not allowed with --root, which only looks")
    machine = recorded_machine(Path(options.root).resolve()) if options.root else this_machine()
    results = examine(machine, CHECKS)
    try:
        print(as_json(results)) if options.json else print_results(results)
        sys.stdout.flush()
    except OSError as error:  # a full disk, a reader that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest when it ends
        print(f"pyflame doctor: the report cannot be written: {error}", file=sys.stderr)
        return 2
    if options.fix and _mend(results):
        results = examine(machine, CHECKS)
    return 1 if first_broken(results) else 0


def _mend(results: Sequence[Result]) -> bool:
    """Ask for each safe mend and do it. What needs root or installs something is only printed."""
    done = False
    for finding in (finding for result in results for finding in result.findings):
        if finding.fix is not None and _agreed(f"{finding.text}. {finding.fix.text}?"):
            try:
                finding.fix.act()
                done = True
                print("done", file=sys.stderr)
            except OSError as error:
                print(f"that failed: {error}", file=sys.stderr)
    return done


def _agreed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
