"""The report as one page of HTML that needs nothing else: a plot of errors by op, and the ops as a table.

Colours follow the reader's light or dark theme; marks differ in form too, for those who do not see the colours.
"""

from __future__ import annotations

from html import escape
from math import inf, isfinite, log10

from pyflame.doctor.verify.report import Comparison, Report, Row

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 960, 320, 64, 12, 40, 12
LOWEST, HIGHEST = -17.0, 1.0  # decades of the error axis
ROWS = 2000  # of a table, the first ones

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--rule:#d0d7de;--back:#fff;--own:#0b6bcb;--total:#b35900;
--limit:#8c959f;--bad:#c8102e;--badback:#ffe9ec}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa5b1;--rule:#343b44;--back:#0f1318;--own:#58a6ff;
--total:#f0a04b;--limit:#6e7781;--bad:#ff7b8a;--badback:#3a1520}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1080px;padding:0 1rem;color:var(--ink);
background:var(--back)}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2rem}p.verdict{white-space:pre-wrap}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
td,th{border-bottom:1px solid var(--rule);padding:.3em .7em;text-align:left;white-space:nowrap}
td.n,th.n{text-align:right}tr.bad td{background:var(--badback)}.bad{color:var(--bad);font-weight:600}
.soft{color:var(--soft)}
"""
HEADS = ("#", "op", "result", "terms", "own error", "allowed", "total error", "allowed", "where")
NUMERIC = {"#", "terms", "own error", "allowed", "total error"}


def page(report: Report) -> str:
    """The whole page.

    >>> page(compare(lambda x: x.exp(), pf.ones(3), ("cpu", "cpu"))).startswith("<!doctype html>")
    True
    """
    title = f"pyflame verify: {', '.join(c.device for c in report.comparisons)} against {report.reference}"
    body = "".join(_section(c, report.reference) for c in report.comparisons)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def _section(found: Comparison, reference: str) -> str:
    verdict = escape("\n".join(found.lines(reference)))
    kind = "verdict" if found.agrees else "verdict bad"
    return (
        f'<h2>{escape(found.device)}</h2><p class="{kind}">{verdict}</p>{plot(found)}'
        '<p class="soft">Circles: an op over the reference&#39;s values. Triangles: over what the device itself has '
        "computed before. Dashed: what an op alone may be off by. Crosses: wrong. Errors are relative to the size of "
        "the result; those of 0 are not drawn.</p>"
        f"<h3>Worst ops</h3>{_table(found.worst())}<h3>All ops</h3>{_table(found.rows[:ROWS])}"
    )


def plot(found: Comparison) -> str:
    """Error against the op's number, both scales told at their axes."""
    rows = found.rows
    limits = " ".join(f"{_x(n, rows):.1f},{_y(r.allowed):.1f}" for n, r in enumerate(rows) if r.allowed)
    line = f'<polyline points="{limits}" fill="none" stroke="var(--limit)" stroke-dasharray="4 3"/>'
    marks = "".join(_marks(row, _x(n, rows)) for n, row in enumerate(rows))
    label = escape(f"error of each op on {found.device}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{_grid(rows)}{line}{marks}</svg>'


def _x(number: int, rows: list[Row]) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * number / max(1, len(rows) - 1)


def _y(error: float) -> float:
    decade = min(HIGHEST, max(LOWEST, log10(error))) if isfinite(error) else HIGHEST
    return TOP + (HEIGHT - TOP - BOTTOM) * (HIGHEST - decade) / (HIGHEST - LOWEST)


def _marks(row: Row, x: float) -> str:
    """A triangle for the error in all, a circle for the op's own, a cross where that is wrong."""
    hint, found = _hint(row), ""
    if row.total.error:
        y = _y(row.total.error)
        corners = f"{x - 4:.1f},{y + 3:.1f} {x + 4:.1f},{y + 3:.1f} {x:.1f},{y - 4:.1f}"
        found += f'<polygon points="{corners}" fill="none" stroke="var(--total)">{hint}</polygon>'
    if row.wrong:
        y = _y(row.own.error or inf)
        cross = f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"
        found += f'<path d="{cross}" stroke="var(--bad)" stroke-width="2.5">{hint}</path>'
    elif row.own.error:
        found += f'<circle cx="{x:.1f}" cy="{_y(row.own.error):.1f}" r="3" fill="var(--own)">{hint}</circle>'
    return found


def _grid(rows: list[Row]) -> str:
    parts = []
    for decade in range(int(LOWEST) + 1, int(HIGHEST) + 1, 4):
        y = _y(10.0**decade)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{decade}</text>')
    last = max(0, len(rows) - 1)
    for number in sorted({last * quarter // 4 for quarter in range(5)}):
        parts.append(f'<text x="{_x(number, rows):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{number}</text>')
    parts.append(f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 2}" text-anchor="middle">op</text>')
    return "".join(parts)


def _hint(row: Row) -> str:
    return f"<title>{escape(str(row))}: own {row.own.error:.2e}, total {row.total.error:.2e}</title>"


def _table(rows: list[Row]) -> str:
    def cell(text: str, head: str) -> str:
        return f'<td class="n">{text}</td>' if head in NUMERIC else f"<td>{text}</td>"

    heads = "".join(f'<th class="n">{h}</th>' if h in NUMERIC else f"<th>{h}</th>" for h in HEADS)
    lines = []
    for row in rows:
        texts = [escape(t) for t in cells(row)]
        style = ' class="bad"' if row.wrong else ""
        lines.append(f"<tr{style}>{''.join(cell(t, h) for t, h in zip(texts, HEADS, strict=True))}</tr>")
    return f'<div class="scroll"><table><tr>{heads}</tr>{"".join(lines)}</table></div>'


def cells(row: Row) -> list[str]:
    """A row of the tables, on the page and in the terminal."""
    shape = f"{row.dtype} {'x'.join(map(str, row.shape)) or '1'}"
    own = row.failed[:60] or row.own.words or f"{row.own.error:.1e}"
    return [
        str(row.number),
        row.op,
        shape,
        str(row.terms),
        own,
        f"{row.allowed:.1e}",
        row.total.words or f"{row.total.error:.1e}",
        f"{row.allowed_total:.1e}",
        row.where,
    ]
