"""`pyflame selftest`: whether a device computes rightly; about two minutes, and a report to attach to a bug."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyflame.core.errors import PyFlameError
from pyflame.doctor.selftest import Outcome, Result, families, selftest


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame selftest",
        description=f"{__doc__} Each result is compared with the CPU's or with NumPy's in float64.",
        epilog="Exits with 1 where anything failed. Families are visited in turns, and the first turn is always "
        "finished; the seed orders them.",
    )
    parser.add_argument("--device", help="such as rocm:0, cuda, cpu or sim:gfx942 (default: the current device)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time to spend (default 120)")
    parser.add_argument("--family", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--case", metavar="FAMILY/NAME", help="only this case, as a report names it")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of random inputs (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--list", action="store_true", help="print the families and end")
    return parser.parse_args(argv)


def run(argv: list[str]) -> int:
    options = options_from(argv)
    if options.list:
        print("\n".join(families()))
        return 0
    try:
        with _progress() as tell:
            found = selftest(
                options.device, options.seconds, only=options.family, case=options.case, seed=options.seed, tell=tell
            )
        if options.json:
            found.save(options.json)
    except (PyFlameError, OSError) as error:
        print(f"pyflame selftest: {error}", file=sys.stderr)
        return 2
    # a table that a file gets is as wide as it needs to be
    Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(_table(found))
    print(f"\n{found.report()}", end="")
    if options.json:
        print(f"\n{options.json}  all results")
    return 1 if found.failed else 0


@contextmanager
def _progress() -> Iterator[Callable[[Result, float], None]]:
    """A bar of the time in a terminal, on stderr; elsewhere a line for each failure."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:

        def say(result: Result, share: float) -> None:
            if result.failures:
                console.print(f"failed: {result.family}/{result.name}", markup=False)

        yield say
        return
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        failed = 0

        def tell(result: Result, share: float) -> None:
            nonlocal failed
            failed += bool(result.failures)
            bar.update(task, completed=share, description=f"{failed} failed, {result.family}/{result.name}")

        yield tell


def _table(found: Outcome) -> Table:
    table = Table(box=None, header_style="bold")
    for head in ("family", "passed", "failed", "does not apply", "worst ulp", "worst error", "seconds"):
        table.add_column(head, justify="left" if head == "family" else "right", no_wrap=True)
    for row in found.rows():
        worst = (f"{row.ulp:.1f}", f"{row.error:.1e}") if row.error else ("", "")
        counts = [str(n or "") for n in (row.passed, row.failed, row.skipped)]
        table.add_row(row.family, *counts, *worst, f"{row.seconds:.1f}", style="bold red" if row.failed else "")
    return table
