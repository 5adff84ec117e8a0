"""Results for people: a rich table, or plain text where rich is missing; and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from pyflame.doctor.chain import CHAINS
from pyflame.doctor.check import Finding, Result, Status, first_broken

_SYMBOLS = {
    Status.NOTHING: "-", Status.FINE: "✓", Status.UNSEEN: "·", Status.UNKNOWN: "?", Status.WARNING: "!",
    Status.BROKEN: "✗",
}  # fmt: skip
_ASCII = {"✓": "ok", "·": ".", "✗": "X"}
_COLOURS = {Status.FINE: "green", Status.UNKNOWN: "magenta", Status.WARNING: "yellow", Status.BROKEN: "bold red"}


@dataclass(frozen=True)
class Row:
    """A line for people."""

    chain: str
    name: str
    finding: Finding


def shown(results: Sequence[Result]) -> list[Row]:
    """What people are shown: faults without the fine words beside them, one line for a GPU that is not there, and one
    for all links behind a broken one."""
    rows: list[Row] = []
    behind: dict[tuple[str, str], list[str]] = {}
    for result in results:
        chain, name = result.check.chain, result.check.name
        if result.status is Status.NOTHING and result.check.needs != ("platform",):
            continue
        if result.behind:
            key = chain, result.findings[0].text
            if key not in behind:
                rows.append(Row(chain, "", result.findings[0]))
            behind.setdefault(key, []).append(name)
            continue
        bad = [f for f in result.findings if f.status > Status.FINE]
        rows += [Row(chain, name, _printable(finding)) for finding in bad or result.findings[-1:]]
    return [row if row.name else _gathered(row, behind[row.chain, row.finding.text]) for row in rows]


def _printable(finding: Finding) -> Finding:
    """Without what a file's text or name could do to a terminal."""
    texts = ["".join(c if c.isprintable() or c == "\n" else "?" for c in text) for text in (finding.text, finding.mend)]
    return replace(finding, text=texts[0], mend=texts[1])


def _gathered(row: Row, names: Sequence[str]) -> Row:
    several = f"{len(names)} links" if len(names) > 1 else names[0]
    text = f"{row.finding.text} ({', '.join(names)})" if len(names) > 1 else row.finding.text
    return Row(row.chain, several, replace(row.finding, text=text))


def verdict(results: Sequence[Result]) -> str:
    """The last words: the first broken link of all, why, and what mends it; or that there is none."""
    first = first_broken(results)
    warnings = sum(r.status is Status.WARNING for r in results)
    if first is None:
        return f"No link is broken; {warnings} to look at." if warnings else "No link is broken."
    finding = _printable(next(f for f in first.findings if f.status is Status.BROKEN))
    text = f"The first broken link is {first.check.name}: {finding.text}."
    return f"{text}\nWhat mends it: {_words(finding)}" if finding.mend else text


def _words(finding: Finding) -> str:
    """A mend as it is shown: a command, or advice, which is a comment in a shell."""
    return finding.mend.removeprefix("# ")


def as_json(results: Sequence[Result]) -> str:
    """All results, the first broken link, and whether there is none.

    >>> json.loads(as_json([]))["fine"]
    True
    """
    first = first_broken(results)
    body: dict[str, Any] = {
        "fine": first is None, "first_broken": first.check.name if first else None,
        "checks": [result.to_json() for result in results],
    }  # fmt: skip
    return json.dumps(body, indent=1)


def print_results(results: Sequence[Result], out: TextIO | None = None) -> None:
    """As a table where rich imports, else as plain text."""
    out = out or sys.stdout
    try:
        _print_rich(results, out)
    except Exception:  # rich is missing or broken: the doctor speaks all the same
        _print_plain(results, out)


def _mark(status: Status, out: TextIO) -> str:
    symbol = _SYMBOLS[status]
    unicode = "utf" in (getattr(out, "encoding", None) or "").lower()
    return symbol if unicode else _ASCII.get(symbol, symbol)


def _print_rich(results: Sequence[Result], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    chain = ""
    for row in shown(results):
        finding = row.finding
        if row.chain != chain:
            chain = row.chain
            table.add_row("", Text(CHAINS[chain], style="bold"), "")
        text = Text(finding.text)
        if finding.mend:
            text.append(
                f"\n→ {_words(finding)}" if "utf" in out.encoding.lower() else f"\n-> {_words(finding)}", style="cyan"
            )
        style = _COLOURS.get(finding.status, "dim")
        table.add_row(Text(_mark(finding.status, out), style=style), Text(row.name, style=style), text)
    console = Console(file=out, width=None if out.isatty() else 160)
    console.print(table)
    console.print()
    console.print(Text(verdict(results)))


def _print_plain(results: Sequence[Result], out: TextIO) -> None:
    chain = ""
    for row in shown(results):
        finding = row.finding
        if row.chain != chain:
            chain = row.chain
            print(f"{CHAINS[chain]}:", file=out)
        print(_encodable(f" {_mark(finding.status, out):2} {row.name:20} {finding.text}", out), file=out)
        if finding.mend:
            print(_encodable(f"{'':24}-> {_words(finding)}", out), file=out)
    print(_encodable(f"\n{verdict(results)}", out), file=out)


def _encodable(text: str, out: TextIO) -> str:
    name = getattr(out, "encoding", None) or "utf-8"
    return text.encode(name, "replace").decode(name)
