"""The launches of a plan in the order and at the scale of time, and which kinds of work it went into."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

from pyflame.transform.explain import LaunchReport, Report
from pyflame.transform.explain_text import human

# Kinds of work, and the colour of each.
KINDS = {
    "matmul": "#d9730d",
    "attention": "#0e7490",
    "convolution": "#be123c",
    "gather and scatter": "#9333ea",
    "reduction": "#2563eb",
    "elementwise": "#15803d",
    "copy": "#9ca3af",
}
_MOVES = {"assign", "cat", "clone", "const", "expand", "flip", "iota", "pad", "permute", "reshape", "slice"}
_WIDTH, _LANE, _GAP = 1000, 34, 8
_PER_LANE = 60  # launches that can be told apart side by side
_LABEL = 90  # pixels a launch must have for its name to be written on it


@dataclass(frozen=True)
class Share:
    """What one kind of work took of a step."""

    kind: str
    launches: int
    seconds: float
    bytes: int
    flops: int


def kind_of(ops: Iterable[str]) -> str:
    """The kind of a launch: that of the heaviest op fused into it.

    >>> kind_of(["matmul", "add", "gelu"])
    'matmul'
    """
    names = set(ops)
    if any("attention" in name for name in names):
        return "attention"
    if any("matmul" in name for name in names):
        return "matmul"
    if any("conv" in name for name in names):
        return "convolution"
    if any(name.startswith(("gather", "scatter")) for name in names):
        return "gather and scatter"
    if any(name.startswith(("reduce", "running", "sort", "pool", "arg")) for name in names):
        return "reduction"
    return "copy" if names <= _MOVES else "elementwise"


def seconds(report: Report) -> float:
    """Time in kernels of one run of the plan; 0 if it was not timed."""
    return sum(x.seconds or 0.0 for x in report.launches)


def shares(report: Report) -> list[Share]:
    """Time, bytes and operations by kind of work, the longest first."""
    found: dict[str, list[LaunchReport]] = {}
    for launch in report.launches:
        found.setdefault(kind_of(launch.ops), []).append(launch)
    out = [
        Share(
            kind,
            len(launches),
            sum(x.seconds or 0.0 for x in launches),
            sum(x.bytes for x in launches),
            sum(x.flops for x in launches),
        )
        for kind, launches in found.items()
    ]
    return sorted(out, key=lambda s: -s.seconds)


def rates(time: float | None, nbytes: int, flops: int) -> str:
    """'12.3 GB/s, 45.6 GFLOP/s', of which the second is left out where hardly anything is computed."""
    if not time:
        return ""
    parts = [f"{nbytes / time / 1e9:.1f} GB/s"]
    if flops > nbytes:
        parts.append(f"{flops / time / 1e9:.1f} GFLOP/s")
    return ", ".join(parts)


def timeline(report: Report) -> str:
    """One run of the plan as SVG: each launch a box as wide as its time, lane after lane as lines of a text.

    Launches run one after the other; what lies between them is not measured and not shown.

    >>> timeline(pf.explain(pf.randn(64, 64).exp().sum())).startswith("<svg")
    True
    """
    total = seconds(report)
    if not total:
        return "<p>The plan was not timed.</p>"
    lanes = max(1, min(8, round(len(report.launches) / _PER_LANE)))
    per_lane = total / lanes
    parts = []
    at = 0.0
    for number, launch in enumerate(report.launches):
        left = launch.seconds or 0.0
        title = html.escape(_title(number, launch))
        colour = KINDS[kind_of(launch.ops)]
        while left > 1e-12:  # a launch may go on in the next lane
            lane = min(int(at / per_lane + 1e-9), lanes - 1)
            here = left if lane == lanes - 1 else min(left, (lane + 1) * per_lane - at)
            x, width = (at - lane * per_lane) / per_lane * _WIDTH, here / per_lane * _WIDTH
            parts.append(_box(x, lane * (_LANE + _GAP), width, colour, title, launch.name))
            at += here
            left -= max(here, 1e-12)
    height = lanes * (_LANE + _GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" role="img" '
        f'aria-label="timeline of {len(report.launches)} launches" font-family="system-ui">{"".join(parts)}</svg>'
        f"<p>{_legend(report)} Each line is {per_lane * 1e3:.3g} ms.</p>"
    )


def _box(x: float, y: float, width: float, colour: str, title: str, name: str) -> str:
    label = ""
    if width >= _LABEL:
        shown = html.escape(name[: int(width / 7)])
        label = f'<text x="{x + 4:.1f}" y="{y + _LANE / 2 + 4:.0f}" fill="white">{shown}</text>'
    edge = ' stroke="white" stroke-width="0.5"' if width > 2 else ""
    return (
        f'<g><title>{title}</title><rect x="{x:.2f}" y="{y}" width="{max(width, 0.3):.2f}" height="{_LANE}" '
        f'fill="{colour}"{edge}/>{label}</g>'
    )


def _title(number: int, launch: LaunchReport) -> str:
    shape = "x".join(map(str, launch.shape)) or "1"
    work = f"{human(launch.bytes)}B, {human(launch.flops)} operations"
    return (
        f"{number}: {launch.name} ({len(launch.ops)} ops) -> {shape}\n{(launch.seconds or 0.0) * 1e6:,.0f} us, "
        f"{rates(launch.seconds, launch.bytes, launch.flops)}\n{work}\n{launch.implementation}: {launch.why}"
    )


def _legend(report: Report) -> str:
    present = {kind_of(x.ops) for x in report.launches}
    return " ".join(
        f'<span style="color:{colour}">&#9632;</span> {kind}' for kind, colour in KINDS.items() if kind in present
    )
