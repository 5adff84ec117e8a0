"""`pyflame kernels`: build typical kernels for GPUs that need not be here, and show what they take of them.

Beside what is read from the code stands how long a GPU of the target would take at best: an estimate.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

from rich.console import Console
from rich.table import Table

import pyflame as pf
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.core.errors import DeviceError, PyFlameError
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.build import AotLaunch
from pyflame.engine.aot.resources import HEAD, KernelResources, Report, row
from pyflame.engine.aot.roofline import BY_TARGET, Estimate, estimate

_FILE_WIDTH = 260  # columns where there is no terminal
ESTIMATED = ("inner loop", "estimate")
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
    estimate: Estimate | None = None  # of all kernels of its launch; None: the first of them has it, or none is known

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
            for at, launch in enumerate(plan.launches):
                if launch.name not in seen:
                    seen.add(launch.name)
                    known = plan.report[launch.name]
                    best = _estimate(target, plan.launches[at:], plan.report)
                    yield Built(target, name, launch.implementation, launch.ops, known, estimate=best)


def _estimate(target: str, launches: Sequence[AotLaunch], report: Report) -> Estimate | None:
    """Of the first launch and those behind it that are parts of the same; by the inner loop that multiplies most."""
    first, gpu = launches[0], BY_TARGET.get(target)
    together = [first, *takewhile(lambda x: not x.nbytes, launches[1:])]
    loops = [loop for x in together if (loop := report[x.name].inner_loop) is not None]
    if gpu is None or not first.nbytes or not loops:
        return None
    loop = max(loops, key=lambda found: sum(n for kind, n in found.items() if kind.startswith("matrix")))
    return estimate(gpu, first.flops, first.nbytes, first.dtype, loop)


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame kernels",
        description=f"{__doc__.splitlines()[0]} Exits with 1 where a kernel spills registers or has scratch memory.",
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
    left = ("program", "kernel", "loads", *ESTIMATED)
    for number, head in enumerate(("program", *HEAD, *_estimated(target))):
        table.add_column(head, justify="left" if head in left else "right", no_wrap=number > 1)
    return table


def _estimated(target: str) -> tuple[str, ...]:
    """The columns that a target has for estimates."""
    return ESTIMATED if target in BY_TARGET else ()


def _estimate_cells(k: Built) -> tuple[str, ...]:
    """In the columns of ESTIMATED."""
    loop = None if k.resources is None else k.resources.inner_loop
    mix = "unknown" if loop is None else ", ".join(f"{n} {kind}" for kind, n in loop.items()) or "-"
    return mix, k.estimate.text if k.estimate is not None else "-"


def _show(console: Console, target: str, kernels: list[Built]) -> None:
    table = _table(target)
    for k in kernels:
        if k.resources is None:
            table.add_row(k.program, "none yet", *[""] * (len(HEAD) - 1 + len(_estimated(target))), style="dim")
            continue
        short = replace(k.resources, name=f"{k.implementation}: {' '.join(dict.fromkeys(k.ops))}"[:60])
        cells = (*row(short), *(_estimate_cells(k) if _estimated(target) else ()))
        table.add_row(k.program, *cells, style="" if k.resources.clean else "bold red")
    console.print(table, highlight=False)
    if any(k.resources is not None and k.resources.global_loads is None for k in kernels):
        console.print(
            "llvm-objdump was not found: matrix instructions and widths of loads are unknown", highlight=False
        )
    if target in BY_TARGET:
        console.print(
            "Estimates, not measurements: the longer of bytes by bandwidth and flops by the peak of what the inner "
            f"loop uses. {BY_TARGET[target].text}",
            highlight=False,
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
