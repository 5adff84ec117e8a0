"""`pyflame env`: judge the environment variables of GPUs, here or in a file; `setup` and `explain` tell more."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyflame.core.errors import PyFlameError, suggest
from pyflame.doctor.environment import TABLE, Finding, Machine, Verdict, find_machine, judge, lines_for, read_file
from pyflame.doctor.environment import judge_environment as judge_variables
from pyflame.doctor.environment.machine import version_of
from pyflame.doctor.environment.setup import WORK

_STYLES = {
    Verdict.RIGHT: "green",
    Verdict.NEEDLESS: "yellow",
    Verdict.BUILD: "yellow",
    Verdict.UNKNOWN: "yellow",
    Verdict.CONTRADICTORY: "bold red",
    Verdict.DANGEROUS: "bold red",
}
_FILE_WIDTH = 160  # columns where there is no terminal


def _machine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        action="append",
        metavar="GFX",
        help="such as gfx1100, or sm_90 for NVIDIA's (default: of this machine)",
    )
    parser.add_argument("--rocm", metavar="VERSION", help="such as 7.2 (default: this machine's)")
    parser.add_argument("--torch", metavar="VERSION", help="such as 2.11 (default: what is installed)")


def options_from(argv: list[str]) -> argparse.Namespace:
    command = argv[0] if argv and argv[0] in ("setup", "explain") else ""
    parser = argparse.ArgumentParser(prog=f"pyflame env {command}".strip(), description=__doc__)
    if command == "explain":
        parser.description = "What an environment variable does, who reads it and what it may hold."
        parser.add_argument("names", nargs="+", metavar="NAME")
    elif command == "setup":
        parser.description = "Print what to set for a GPU and a kind of work, with the reason of each line."
        _machine_options(parser)
        parser.add_argument("--for", dest="work", choices=WORK, default="training", help="(default: %(default)s)")
    else:
        parser.epilog = (
            "Files: shell scripts, Dockerfiles, .env files, systemd units, Python programs. Exits with 1 where "
            "something is dangerous or contradictory. More: pyflame env setup --gpu GFX --for training, pyflame env "
            "explain NAME."
        )
        parser.add_argument("files", nargs="*", metavar="FILE", help="judge these instead of the environment")
        _machine_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv[1:] if command else argv)
    options.command = command
    return options


def run(argv: list[str]) -> int:
    options = options_from(argv)
    try:
        return {"": _judge, "setup": _setup, "explain": _explain}[options.command](options)
    except (PyFlameError, OSError) as error:
        print(f"pyflame env: {error}", file=sys.stderr)
        return 2


def _machine(options: argparse.Namespace) -> Machine:
    found = find_machine()
    named = options.gpu or []
    return Machine(
        tuple(gpu for gpu in named if not gpu.startswith("sm_")) if named else found.gpus,
        version_of(options.rocm, "version of ROCm") if options.rocm else found.rocm,
        version_of(options.torch, "version of torch") if options.torch else found.torch,
        found.wsl,
        named[0].startswith("sm_") if named else found.cuda,
    )


def _judge(options: argparse.Namespace) -> int:
    machine = _machine(options)
    if options.files:
        found = [f for file in options.files for f in judge(read_file(file), machine)]
    else:
        found = judge_variables(os.environ, machine)
    if options.json:
        known = {"gpus": machine.gpus, "rocm": _text(machine.rocm), "torch": _text(machine.torch)}
        print(json.dumps({"machine": known, "findings": [f.to_json() for f in found]}, indent=1))
    else:
        _show(found, machine)
    return int(any(f.bad for f in found))


def _text(version: tuple[int, int] | None) -> str | None:
    return None if version is None else ".".join(map(str, version))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)


def _show(found: Sequence[Finding], machine: Machine) -> None:
    console = _console()
    gpus, rocm, torch = "NVIDIA" if machine.cuda else ", ".join(machine.gpus), _text(machine.rocm), _text(machine.torch)
    console.print(Text(f"judged for GPU {gpus or '?'}, ROCm {rocm or '?'}, torch {torch or '?'}", "dim"))
    if not found:
        console.print("no variable that concerns GPUs is set")
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for head in ("verdict", "variable", "why, and what to do"):
        table.add_column(head, overflow="fold", no_wrap=head == "verdict")
    alike: dict[Finding, list[str]] = {}  # the same assignment in several lines is one row
    for f in sorted(found, key=lambda f: -f.verdict.severity):
        alike.setdefault(replace(f, assignment=replace(f.assignment, where="")), []).append(f.assignment.where)
    for f, places in alike.items():
        name = Text(f"{f.assignment.name}={'…' if f.assignment.value is None else f.assignment.value}")
        name.append("".join(f"\n{place}" for place in places if place), "dim")
        words = Text("; ".join(part for part in (f.why, f.do) if part))
        if f.bad and f.source:
            words.append(f"\n{f.source}", "dim")
        table.add_row(Text(f.verdict.value, _STYLES.get(f.verdict, "red")), name, words)
    console.print(table)


def _setup(options: argparse.Namespace) -> int:
    machine = _machine(options)
    if not machine.gpus and not machine.cuda:
        print("pyflame env: no AMD GPU was found here; name one, such as --gpu gfx1100", file=sys.stderr)
        return 2
    lines = list(dict.fromkeys(line for gpu in machine.gpus for line in lines_for(gpu, options.work, machine)))
    if options.json:
        print(json.dumps([{"variable": one.name, "value": one.value, "why": one.why} for one in lines], indent=1))
    for line in lines if not options.json else ():
        print(line)
    if not lines and not options.json:
        print(f"# {', '.join(machine.gpus) or 'a GPU of NVIDIA'} needs nothing for {options.work}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    status, told = 0, list[dict[str, Any]]()
    for name in options.names:
        known = TABLE.get(name.upper())
        if known is None:
            print(f"pyflame env: {name} is not known{suggest(name.upper(), TABLE)}", file=sys.stderr)
            status = 2
            continue
        facts = {
            "variable": known.name, "read by": known.reader, "meaning": known.meaning, "values": known.values,
            "default": known.default, "read": "when HIP or torch starts" if known.early else "when it is first needed",
            "source": known.source,
        }  # fmt: skip
        rules = [
            {"verdict": r.verdict.value, "machines": r.machines, "why": r.why, "do": r.do, "source": r.source}
            for r in known.rules
        ]
        told.append({**facts, "rules": rules})
        if not options.json:
            _explained(facts, rules)
    if options.json:
        print(json.dumps(told, indent=1))
    return status


def _explained(facts: dict[str, str], rules: list[dict[str, str]]) -> None:
    console = _console()
    console.print(Text(facts["variable"], "bold"))
    rows = [(key, value) for key, value in facts.items() if key != "variable" and value]
    rows += [(r["verdict"], "; ".join(r[key] for key in ("machines", "why", "do", "source") if r[key])) for r in rules]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for key, value in rows:
        table.add_row(Text(key, "dim"), Text(value))
    console.print(table)
