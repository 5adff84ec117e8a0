"""`pyflame verify`: compare the values of a script or a language model op by op between devices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pyflame.core.device import parse_device
from pyflame.core.errors import PyFlameError
from pyflame.doctor.verify import Report, compare
from pyflame.doctor.verify.page import HEADS, NUMERIC, cells
from pyflame.doctor.verify.subject import PROMPT, subject


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame verify",
        description=__doc__,
        epilog="A script defines model (a module or a function) and inputs (its arguments as a tuple), or a function "
        "main() that returns both. Exits with 1 where a device computes something wrongly.",
    )
    parser.add_argument("model", help="a script (.py), or a language model: a GGUF file, a folder or a name")
    parser.add_argument(
        "--devices", default="cpu,rocm:0", help="with commas; the first is the reference (default cpu,rocm:0)"
    )
    parser.add_argument("--prompt", default=PROMPT, help="what a language model reads")
    parser.add_argument("--dtype", help="what a language model computes in, such as bfloat16")
    parser.add_argument("--rows", type=int, default=8, help="worst ops to print (default 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all ops there")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with a plot there")
    options = parser.parse_args(argv)
    if options.html and options.html.suffix != ".html":
        parser.error(f"argument --html: expected a name that ends in .html but got {options.html}")
    return options


def run(argv: list[str]) -> int:
    options = options_from(argv)
    devices = [d for d in options.devices.split(",") if d]
    try:
        fn, inputs = subject(options.model, parse_device(devices[0] if devices else ""), options.prompt, options.dtype)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            update = partial(bar.update, bar.add_task("comparing", total=None))
            report = compare(fn, inputs, devices, tell=lambda done, total: update(completed=done, total=total))
        saved = [report.save(path) for path in (options.json, options.html) if path]
    except (PyFlameError, OSError) as error:
        print(f"pyflame verify: {error}", file=sys.stderr)
        return 2
    print(report)
    for path in saved:
        print(f"{path}  all ops")
    _show(report, options.rows)
    return 0 if report.agrees else 1


def _show(report: Report, count: int) -> None:
    """The worst ops of each device, and how errors grow from layer to layer."""
    # a table that a file gets is as wide as it needs to be
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for found in report.comparisons:
        worst = _table(f"worst ops of {found.device}", HEADS)
        for row in found.worst(count):
            worst.add_row(*cells(row), style="bold red" if row.wrong else "")
        console.print("", worst)
        layers = found.layers()
        if sum(name.rpartition(".")[2].isdecimal() for name in layers) > 1:
            by_layer = _table(f"layers on {found.device}", ("layer", "ops", "own error", "total error", "allowed"))
            for name, rows in layers.items():
                errors = (max(r.own.error for r in rows), rows[-1].total.error, rows[-1].allowed_total)
                by_layer.add_row(name, str(len(rows)), *[f"{error:.1e}" for error in errors])
            console.print("", by_layer)


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in (*NUMERIC, "ops") else "left", overflow="fold")
    return table
