"""Reports as a table for the terminal and as a page of HTML."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyflame.transform.explain import Report


def human(count: float) -> str:
    """1536 -> '1.5 k'."""
    for unit in ("", "k", "M", "G"):
        if abs(count) < 1000:
            return f"{count:.4g} {unit}".strip()
        count /= 1000
    return f"{count:.4g} T"


def fused(ops: Iterable[str]) -> str:
    """('exp', 'mul', 'mul') -> 'exp mulx2'."""
    counts: dict[str, int] = {}
    for op in ops:
        counts[op] = counts.get(op, 0) + 1
    return " ".join(f"{op}x{n}" if n > 1 else op for op, n in counts.items())


def _rows(report: Report) -> list[list[str]]:
    rows = []
    for number, launch in enumerate(report.launches):
        time = f"{launch.seconds * 1e6:,.0f}" if launch.seconds is not None else ""
        rate = f"{launch.gb_per_second:.1f}" if launch.gb_per_second is not None else ""
        shape = "x".join(map(str, launch.shape)) or "1"
        rows.append(
            [
                str(number),
                fused(launch.ops),
                shape,
                human(launch.bytes) + "B",
                human(launch.flops),
                time,
                rate,
                f"{launch.implementation}: {launch.why}",
            ]
        )
    return rows


HEADINGS = ("#", "ops", "result", "bytes", "flops", "us", "GB/s", "implementation: why")


def summary(report: Report) -> str:
    moved = sum(x.bytes for x in report.launches)
    return (
        f"{len(report.launches)} launches on {report.device}, {human(moved)}B moved; "
        f"arena {human(report.arena_bytes)}B for {human(report.intermediate_bytes)}B of intermediates"
    )


def _remarks(report: Report) -> str:
    return "; ".join([*report.notes, *([report.replay] if report.replay else [])])


def table(report: Report) -> str:
    """Printed with rich, which fits it to the terminal."""
    from rich.console import Console
    from rich.table import Table

    out = Table(title=summary(report), title_justify="left", caption=_remarks(report) or None, caption_justify="left")
    for heading in HEADINGS:
        out.add_column(
            heading, justify="right" if heading in ("#", "bytes", "flops", "us", "GB/s") else "left", overflow="fold"
        )
    for row in _rows(report):
        out.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=max(Console().width, 100)).print(out)
    return text.getvalue()


def document(title: str, body: str) -> str:
    """A page of HTML without any outside resource."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>"
        "body{font:14px system-ui;margin:2em;color:#222}table{border-collapse:collapse}"
        "td,th{border-bottom:1px solid #ddd;padding:.35em .7em;text-align:left;vertical-align:top}"
        "table.plan td:nth-child(n+4):nth-child(-n+7){text-align:right;font-variant-numeric:tabular-nums}"
        f"svg text{{font:12px system-ui}}</style><h1>{html.escape(title)}</h1>{body}</html>"
    )


def plan_table(report: Report) -> str:
    """The launches as a table of HTML."""
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in _rows(report))
    heads = "".join(f"<th>{html.escape(h)}</th>" for h in HEADINGS)
    return f'<table class="plan"><tr>{heads}</tr>{cells}</table>'


def page(report: Report) -> str:
    """The graph as SVG, the launches as a table."""
    remarks = f"<p>{html.escape(_remarks(report))}</p>" if _remarks(report) else ""
    return document(summary(report), remarks + _drawing(report) + plan_table(report))


def _drawing(report: Report) -> str:
    """Launches as boxes, level by level; lines where one reads what another stored."""
    level: dict[int, int] = {}
    for i in range(len(report.launches)):
        level[i] = 1 + max((level[a] for a, b in report.edges if b == i), default=-1)
    column: dict[int, int] = {}
    used: dict[int, int] = {}
    for i, at in level.items():
        column[i] = used.get(at, 0)
        used[at] = column[i] + 1
    wide, tall = 240, 70
    parts = []
    for a, b in report.edges:
        x1, y1 = column[a] * wide + 105, level[a] * tall + 40
        x2, y2 = column[b] * wide + 105, level[b] * tall + 5
        parts.append(f'<path d="M{x1} {y1} C{x1} {y1 + 18} {x2} {y2 - 18} {x2} {y2}" fill="none" stroke="#888"/>')
    for i, launch in enumerate(report.launches):
        x, y = column[i] * wide, level[i] * tall + 5
        label = html.escape(fused(launch.ops))
        short = label if len(label) < 34 else label[:32] + "…"
        parts.append(
            f"<g><title>{label}</title>"
            f'<rect x="{x}" y="{y}" width="210" height="36" rx="5" fill="#fff3e6" stroke="#d9730d"/>'
            f'<text x="{x + 8}" y="{y + 22}">{i}: {short}</text></g>'
        )
    width = max(used.values(), default=1) * wide + 10
    height = (max(level.values(), default=0) + 1) * tall + 10
    return f'<svg width="{width}" height="{height}" role="img" aria-label="graph of launches">{"".join(parts)}</svg>'
