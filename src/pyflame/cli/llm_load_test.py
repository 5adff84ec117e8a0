"""`pyflame llm load-test URL`: throughput and latencies of a server under requests that arrive at a given pace."""

from __future__ import annotations

import argparse
import html
import io
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pyflame.cli.llm_progress import progress
from pyflame.core.errors import ArgumentError
from pyflame.core.optional import optional
from pyflame.llm.load_test import PERCENTILES, Lengths, Load, Report, load_test

HELP = "throughput and latencies of a server with OpenAI's interface, under requests that arrive at a given pace"
NAMES_MODEL = False  # it measures a server, wherever the model is
_TIMES = {"time_to_first_token": "time to first token", "inter_token": "between tokens", "request": "whole request"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("url", metavar="URL", help="of the server: http://127.0.0.1:8000")
    add("-m", "--model", help="a name that it serves (default: the first)")
    add("-n", "--requests", type=int, default=64, help="(default %(default)s)")
    add("-r", "--rate", type=float, default=4.0, help="requests per second; inf: all at once (default %(default)g)")
    add("--arrivals", choices=("poisson", "fixed"), default="poisson", help="(default %(default)s)")
    lengths = "tokens, about: 128, 32-512 or lognormal:200:0.6"
    add("--prompt", default="64-256", help=f"length of prompts in {lengths} (default %(default)s)")
    add("--output", default="32-128", help="length of texts, likewise (default %(default)s)")
    add("--no-ignore-eos", action="store_true", help="let texts end where the model ends them")
    add("--seed", type=int, default=0, help="of arrivals and lengths (default %(default)s)")
    add("--token-file", type=Path, help="a file with the server's token")
    add("--plot", type=Path, metavar="FILE", help="write a plot: .png, or .html with the table")
    add("--json", action="store_true", help="print an object instead of a table")


def run(options: argparse.Namespace, console: Console) -> None:
    if options.plot is not None and options.plot.suffix not in (".png", ".html"):
        raise ArgumentError(f"[load-test] expected a plot called .png or .html but got {options.plot.name}")
    load = Load(
        options.url,
        options.model,
        options.requests,
        options.rate,
        options.arrivals,
        Lengths(options.prompt),
        Lengths(options.output),
        options.seed,
        None if options.token_file is None else options.token_file.read_text().strip(),
        not options.no_ignore_eos,
    )
    with progress("load-test", load.requests) as step:
        report = load_test(load, lambda: step(""))
    found = report.to_json()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        console.print(_table(found))
        for error, count in found["failed"].items():
            console.print(f"{count} failed: {error}", markup=False)
    if options.plot is not None:
        _write(options.plot, report, found)


def _rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    rates = (
        ("requests", f"{found['requests'] - sum(found['failed'].values())} in {found['seconds']:.1f} s",
         f"{found['requests_per_second']:.2f}/s"),
        ("tokens written", f"{found['generated_tokens']:,}", f"{found['generated_tokens_per_second']:.1f}/s"),
        ("tokens of prompts", f"{found['prompt_tokens']:,}", f"{found['prompt_tokens_per_second']:.1f}/s"),
    )  # fmt: skip
    times = [(name, *(_seconds(found[key][f"p{p}"]) for p in PERCENTILES)) for key, name in _TIMES.items()]
    return [*((*row, "") for row in rates), ("", *(f"p{p}" for p in PERCENTILES)), *times]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.1f} ms" if value < 1.0 else f"{value:.2f} s"


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column()
    for _ in PERCENTILES:
        table.add_column(justify="right")
    for row in _rows(found):
        table.add_row(*row)
    return table


def _write(path: Path, report: Report, found: dict[str, Any]) -> None:
    figure = _figure(report)
    if path.suffix == ".png":
        figure.savefig(path, dpi=120)
        return
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in _rows(found))
    svg = drawn.getvalue()
    path.write_text(
        f"<!doctype html><meta charset=utf-8><title>Load of {html.escape(report.load.url)}</title>"
        "<style>body{font-family:sans-serif;margin:2em}td{padding:.2em 1em;text-align:right}"
        f"td:first-child{{text-align:left}}</style><h1>{html.escape(report.load.url)}</h1>"
        f"<table>{cells}</table>{svg[svg.index('<svg') :]}"
    )


def _figure(report: Report) -> Any:
    """Latency of each request by when it came, and how often each latency was undercut."""
    figure = optional("matplotlib.figure", "plots", "load-test").Figure(figsize=(11, 4), layout="constrained")
    over_time, shares = figure.subplots(1, 2)
    done = [s for s in report.done if s.pieces]
    begun = [s.begun for s in done]
    over_time.plot(begun, [s.ended - s.begun for s in done], "o", ms=3, label="whole request")
    over_time.plot(begun, [s.pieces[0] - s.begun for s in done], "o", ms=3, label="first token")
    over_time.set(xlabel="arrival (s)", ylabel="seconds", yscale="log", title="Requests")
    for name, values in (("first token", report.first_token()), ("between tokens", report.inter_token())):
        ordered = sorted(values)
        shares.step(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], label=name)
    shares.set(xlabel="seconds", ylabel="share that was faster", xscale="log", title="Latencies")
    for axes in (over_time, shares):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure
