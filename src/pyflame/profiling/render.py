"""A profile as text and as a page of HTML."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyflame.core.trace import DEVICE_KINDS
from pyflame.profiling.kernels import KernelTime, by_kernel, by_range, device_seconds
from pyflame.profiling.report import facts_table, kinds_table
from pyflame.profiling.timeline import timeline
from pyflame.transform.explain import LaunchReport, Report
from pyflame.transform.explain_text import document, fused, human

if TYPE_CHECKING:
    from pyflame.profiling.profiler import Profile

_DRAWN = 500  # launches of the timeline on a page
_NAMED = 28  # letters of a kernel's name in the table
_WIDEST = 200

HEADINGS = ("kernel", "fuses", "calls", "total ms", "mean us", "min us", "share", "bytes", "GB/s", "TFLOP/s")
LIMIT = "of limit"  # one more heading, where a limit is known
LAST = "implementation"


class Found:
    """The numbers of a profile, each computed once."""

    def __init__(self, profile: Profile, shapes: bool = False) -> None:
        self.profile = profile
        self.shapes = shapes
        self.events = profile.events
        self.kernels = by_kernel(self.events, shapes)
        self.ranges = by_range(self.events)
        self.busy = device_seconds(self.events)
        self.limits = {device: limit for device, limit in profile.limits.items() if device in self.busy}
        self.headings = [*HEADINGS, *([LIMIT] if self.limits else []), LAST]

    def facts(self) -> dict[str, str]:
        """Labels and words."""
        wall, compiled = self.profile.seconds, self.profile.compile
        found = {"time": f"{wall * 1e3:,.3f} ms"}
        for device, seconds in self.busy.items():
            calls = sum(k.calls for k in self.kernels if k.device == device)
            found[device] = f"{seconds * 1e3:,.3f} ms at work ({seconds / wall:.0%}) on {calls:,} launches and copies"
        for device, use in self.profile.memory.items():
            found[f"memory of {device}"] = (
                f"{human(use.peak)}B at most, {human(use.before)}B before, {human(use.after)}B after"
            )
        found["kernel cache"] = (
            f"{compiled.compiles} compiled in {compiled.compile_seconds:.2f} s, {compiled.disk_hits} from disk, "
            f"{compiled.memory_hits} from memory"
        )
        found["plan cache"] = (
            f"{compiled.plan_misses} planned in {compiled.plan_seconds:.2f} s, {compiled.plan_hits} known"
        )
        for device, (limit, source) in self.limits.items():
            found[f"limit of {device}"] = f"{limit / 1e9:,.1f} GB/s, {source}"
        return found

    def row(self, kernel: KernelTime) -> list[str]:
        """The cells of a kernel, in the order of the headings."""
        whole = self.busy[kernel.device]
        timed = kernel.calls - kernel.untimed
        name = kernel.name if len(kernel.name) <= _NAMED else kernel.name[: _NAMED - 1] + "…"
        if self.shapes and kernel.shapes != {()}:
            name += " -> " + ", ".join("x".join(map(str, shape)) for shape in kernel.shapes)
        cells = [
            f"{kernel.device} {name}" if len(self.busy) > 1 else name,
            fused(kernel.ops) if kernel.kind != "graph" else "",
            f"{kernel.calls:,}",
            f"{kernel.seconds * 1e3:,.3f}" if timed else "?",
            f"{kernel.mean * 1e6:,.1f}" if timed else "?",
            f"{kernel.shortest * 1e6:,.1f}" if timed else "?",
            f"{kernel.seconds / whole:.1%}" if whole else "",
            f"{human(kernel.bytes / timed)}B" if timed and kernel.bytes else "",
            f"{kernel.gb_per_second:,.1f}" if kernel.gb_per_second is not None else "",
            _tflops(kernel.tflop_per_second),
        ]
        if self.limits:
            limit, _ = self.limits.get(kernel.device, (0.0, ""))
            share = kernel.of_limit(limit)
            cells.append(f"{share:.0%}" if share is not None else "")
        return [*cells, f"{kernel.implementation}: {kernel.why}" if kernel.implementation else kernel.kind]

    def range_rows(self) -> list[list[str]]:
        rows = []
        for one in self.ranges:
            host = f"{one.host_seconds * 1e3:,.3f}" if one.calls else "all"  # it holds the whole profile
            name = "  " * (len(one.path) - 1) + one.path[-1]
            device = f"{one.device_seconds * 1e3:,.3f}"
            rows.append([name, f"{one.calls or 1:,}", host, device, f"{one.launches:,}"])
        return rows


def _tflops(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.4f}"


RANGE_HEADINGS = ("range", "calls", "host ms", "device ms", "launches")


def text(profile: Profile, rows: int, shapes: bool) -> str:
    """Facts, kernels, ranges and notes for a terminal."""
    from rich.console import Console

    out = io.StringIO()
    wide = max(Console().width, 100)
    console = Console(file=out, width=min(max(wide, 160), _WIDEST), highlight=False, markup=False)
    found = Found(profile, shapes)
    for label, words in found.facts().items():
        console.print(f"{label + ':':<18} {words}", soft_wrap=True)
    shown, left = found.kernels[:rows], found.kernels[rows:]
    if shown:
        console.print(_grid(found.headings, [found.row(k) for k in shown], ("kernel", "fuses", LAST)))
    elif not left:
        console.print("nothing was launched")
    if left:
        calls, seconds = sum(k.calls for k in left), sum(k.seconds for k in left)
        console.print(f"and {len(left)} more kernels with {calls:,} calls, {seconds * 1e3:,.3f} ms", soft_wrap=True)
    if found.ranges:
        console.print(_grid(RANGE_HEADINGS, found.range_rows(), ("range",)))
    for note in profile.notes:
        console.print(f"note: {note}", soft_wrap=True)
    return out.getvalue()


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for heading in headings:
        folds = heading in ("fuses", LAST)
        table.add_column(heading, justify="left" if heading in left else "right", overflow="fold", no_wrap=not folds)
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    return table


def page(profile: Profile, title: str) -> str:
    """The same as a page of HTML, with a timeline and the kinds of work."""
    found = Found(profile)
    launches = [
        LaunchReport(e.name, e.ops, e.shape, e.nbytes, e.flops, e.implementation or e.kind, e.why, e.seconds)
        for e in found.events
        if e.kind in DEVICE_KINDS
    ]
    device, count = ", ".join(found.busy), len(launches)
    which = f"the first {_DRAWN:,} of {count:,} launches and copies" if count > _DRAWN else "all launches and copies"
    parts = [facts_table(found.facts())]
    parts += [f"<p>Note: {html.escape(note)}.</p>" for note in profile.notes]
    parts += [
        f"<h2>Timeline: {which}</h2>{timeline(Report(device, launches[:_DRAWN], 0, 0))}",
        f"<h2>Kinds of work</h2>{kinds_table(Report(device, launches, 0, 0))}",
        f"<h2>Kernels</h2>{_html_table(found.headings, [found.row(k) for k in found.kernels])}",
    ]
    if found.ranges:
        parts.append(f"<h2>Ranges</h2>{_html_table(RANGE_HEADINGS, found.range_rows())}")
    return document(title, "".join(parts))


def _html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{html.escape(h)}</th>" for h in headings)
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{cells}</table>"
