"""`pyflame monitor`: what GPUs, the processes on them and this machine do, as a table that goes on."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from pyflame.cli.ports import port
from pyflame.core.errors import PyFlameError
from pyflame.doctor.monitor import Sample, Sampler
from pyflame.doctor.monitor.prometheus import Endpoint
from pyflame.doctor.monitor.thread import LONGEST, append
from pyflame.doctor.monitor.view import View

_FILE_WIDTH = 120  # columns where there is no terminal
_FIRST = 0.2  # seconds between the two readings that a first rate needs


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pyflame monitor", description=__doc__)
    add = parser.add_argument
    add("--interval", type=float, default=1.0, metavar="SECONDS", help="between samples (default: %(default)g)")
    add("--once", action="store_true", help="show one table and end")
    add("--samples", type=int, metavar="N", help="end after N samples (default: at Ctrl-C)")
    add("--log", type=Path, metavar="FILE", help="append each sample as a line of JSON")
    add("--prometheus", type=port, metavar="PORT", help="serve http://127.0.0.1:PORT/metrics (0: any that is free)")
    add("--root", default="/", metavar="DIR", help="a folder with another machine's /sys and /proc")
    options = parser.parse_args(argv)
    if not 0 < options.interval <= LONGEST:
        parser.error(f"argument --interval: expected more than 0 seconds, up to a day, but got {options.interval:g}")
    if options.samples is not None and options.samples < 1:
        parser.error(f"argument --samples: expected at least 1 but got {options.samples}")
    if not Path(options.root).is_dir():
        parser.error(f"argument --root: expected a folder but there is no {options.root}")
    return options


def run(argv: list[str]) -> int:
    options = options_from(argv)
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)
    try:
        with Sampler(options.root) as sampler:
            _watch(options, sampler, console)
    except (PyFlameError, OSError) as error:  # OSError: a log that cannot be written, a port that is taken
        print(f"pyflame monitor: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _watch(options: argparse.Namespace, sampler: Sampler, console: Console) -> None:
    view, latest = View(max(10, (console.width - 45) // 2)), list[Sample]()
    with contextlib.ExitStack() as stack:
        log = None
        if options.log is not None:
            log = stack.enter_context(options.log.open("a", encoding="utf-8"))
        if options.prometheus is not None:
            endpoint = Endpoint(options.prometheus, lambda: latest[-1] if latest else None)
            stack.callback(endpoint.close)
            console.print(f"http://127.0.0.1:{endpoint.port}/metrics")
        live = None
        if console.is_terminal and not options.once:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        for sample in _samples(options, sampler):
            latest[:] = [sample]
            if log is not None:
                append(log, sample)
            drawn = view.draw(sample, sampler.notes)
            if live is None:
                console.print(drawn)
            else:
                live.update(drawn, refresh=True)


def _samples(options: argparse.Namespace, sampler: Sampler) -> Iterator[Sample]:
    """Samples at even times. The first reading only begins the rates."""
    sampler.sample()
    time.sleep(min(_FIRST, options.interval))
    left = 1 if options.once else options.samples
    due = time.monotonic()
    while left is None or left > 0:
        yield sampler.sample()
        left = None if left is None else left - 1
        if left != 0:
            due = max(due + options.interval, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
