"""A run in words and as a page: what was launched, how it was fused, what it took."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from pyflame.engine.compile_stats import CompileStats
from pyflame.profiling.timeline import rates, seconds, shares, timeline
from pyflame.transform.explain import Report
from pyflame.transform.explain_text import document, human, plan_table


def what_ran(report: Report, stats: CompileStats) -> dict[str, str]:
    """A step's plan, and the caches' counters of the whole process, as label and words.

    >>> what_ran(pf.explain(f, x), pf.compile_stats())["launches per step"]
    '12 launches for 60 ops, 5.0 ops per launch'
    """
    ops, launches = sum(len(x.ops) for x in report.launches), len(report.launches)
    time = seconds(report)
    arena, whole = report.arena_bytes, report.intermediate_bytes
    saved = f", {whole / arena:.1f} times smaller than its {human(whole)}B of values" if arena else ""
    found = {
        "launches per step": f"{launches} launches for {ops:,} ops, {ops / max(1, launches):.1f} ops per launch",
        "kernels": f"{len({x.name for x in report.launches})} different ones in the step",
        "time in kernels": f"{time * 1e3:.1f} ms per step, {_work(report, time)}",
        "arena of a step": f"{human(arena)}B{saved}",
        "kernel cache": f"{stats.compiles} compiled in {stats.compile_seconds:.1f} s, {stats.disk_hits} from disk, "
        f"{stats.memory_hits} from memory",
        "plan cache": f"{stats.plan_misses} planned in {stats.plan_seconds:.1f} s, {stats.plan_hits} known",
    }
    return found


def _work(report: Report, time: float) -> str:
    return rates(time, sum(x.bytes for x in report.launches), sum(x.flops for x in report.launches)) or "not timed"


def facts_table(facts: Mapping[str, str]) -> str:
    """Labels and words as a table of HTML."""
    rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in facts.items())
    return f"<table>{rows}</table>"


def kinds_table(report: Report) -> str:
    """Time by kind of work as a table of HTML."""
    total = seconds(report) or 1.0
    kinds = "".join(
        f"<tr><td>{s.kind}</td><td>{s.launches}</td><td>{s.seconds * 1e3:.2f} ms</td><td>{s.seconds / total:.0%}</td>"
        f"<td>{rates(s.seconds, s.bytes, s.flops)}</td></tr>"
        for s in shares(report)
    )
    heads = "".join(f"<th>{h}</th>" for h in ("kind of work", "launches", "time", "share", "speed"))
    return f"<table><tr>{heads}</tr>{kinds}</table>"


def page(title: str, facts: Mapping[str, str], report: Report, sections: Sequence[tuple[str, str]] = ()) -> str:
    """The facts as a table, then `sections` (heading, HTML), then timeline, kinds of work and plan of a step."""
    parts = [
        facts_table(facts),
        *[f"<h2>{html.escape(heading)}</h2>{body}" for heading, body in sections],
        f"<h2>Timeline of one step</h2>{timeline(report)}",
        f"<h2>Kinds of work</h2>{kinds_table(report)}",
        f"<h2>Plan of one step</h2>{plan_table(report)}",
    ]
    return document(title, "".join(parts))
