"""`pyflame kernels`: build typical kernels for GPUs that need not be here, and show what they take of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

import pyflame as pf
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.core.errors import DeviceError, PyFlameError
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import HEAD, KernelResources, row

_FILE_WIDTH = 200  # columns where there is no terminal
GFX = tuple(name for name, target in TARGETS.items() if target.language == "hip")


@dataclass(frozen=True)
class Built:
    """A program's kernel on a target, or why there is none."""

    target: str
    program: str
    implementation: str = ""  # "generated", or the name of a hand-written kernel
    ops: tuple[str, ...] = ()
    resources: KernelResources | None = None
    missing: str = ""

    def to_json(self) -> dict[str, Any]:
        resources = None if self.resources is None else self.resources.to_json()
        return {**self.__dict__, "resources": resources}


def build(targets: Iterable[str], programs: Iterable[str]) -> Iterator[Built]:
    """The kernels of these programs, each kernel of a target once."""
    for target in targets:
        seen: set[str] = set()
        for name in programs:
            fn, inputs = PROGRAMS[name]()
            try:
                plan = pf.aot.compile(fn, *inputs, target=target)
            except DeviceError as error:
                yield Built(target, name, missing=str(error))
                continue
            for launch in plan.launches:
                if launch.name not in seen:
                    seen.add(launch.name)
                    yield Built(target, name, launch.implementation, launch.ops, plan.report[launch.name])


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame kernels",
        description=f"{__doc__} Exits with 1 where a kernel spills registers or has scratch memory.",
    )
    parser.add_argument("--target", default=",".join(GFX), help="gfx names with commas (default: all that are known)")
    parser.add_argument("--only", default="", metavar="WORD", help="programs whose name contains this")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of tables")
    options = parser.parse_args(argv)
    options.target = [t for t in options.target.split(",") if t]
    for target in options.target or [""]:
        if target not in GFX:
            parser.error(f"argument --target: expected some of {', '.join(GFX)} but got {target!r}")
    options.programs = [name for name in PROGRAMS if options.only in name]
    if not options.programs:
        parser.error(f"argument --only: expected a part of one of {', '.join(PROGRAMS)} but got {options.only!r}")
    return options


def _table(target: str) -> Table:
    table = Table(title=target, title_justify="left", box=None, header_style="bold")
    for number, head in enumerate(("program", *HEAD)):
        table.add_column(head, justify="left" if number < 2 or head == "loads" else "right", no_wrap=number > 1)
    return table


def _show(console: Console, target: str, kernels: list[Built]) -> None:
    table = _table(target)
    for k in kernels:
        if k.resources is None:
            table.add_row(k.program, "none yet", *[""] * (len(HEAD) - 1), style="dim")
            continue
        short = replace(k.resources, name=f"{k.implementation}: {' '.join(dict.fromkeys(k.ops))}"[:60])
        table.add_row(k.program, *row(short), style="" if k.resources.clean else "bold red")
    console.print(table, highlight=False)
    if any(k.resources is not None and k.resources.global_loads is None for k in kernels):
        console.print(
            "llvm-objdump was not found: matrix instructions and widths of loads are unknown", highlight=False
        )
    console.print()


def run(argv: list[str]) -> int:
    options = options_from(argv)
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    found: list[Built] = []
    try:
        for target in options.target:
            kernels = list(build([target], options.programs))
            found += kernels
            if not options.json:
                _show(console, target, kernels)
    except PyFlameError as error:
        print(f"pyflame kernels: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([k.to_json() for k in found], indent=1))
    dirty = [k for k in found if k.resources is not None and not k.resources.clean]
    for k in dirty:
        print(f"pyflame kernels: {k.program} on {k.target} spills or has scratch memory", file=sys.stderr)
    return 1 if dirty else 0
