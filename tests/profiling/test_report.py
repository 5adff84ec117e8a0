"""The timeline and the report of a step."""

import html.parser
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import pyflame as pf
from pyflame import profiling
from pyflame.profiling.timeline import KINDS, rates
from pyflame.transform.explain import LaunchReport, Report


@pytest.fixture(scope="module")
def report():
    x, w = pf.randn(64, 32), pf.randn(32, 48)
    return pf.explain(lambda a, b: pf.softmax(pf.relu(a @ b).sum(0), -1), x, w)


def made_up(seconds):
    """A report with these times."""
    launches = [
        LaunchReport(f"launch{i}", ("matmul",) if i % 2 else ("exp", "mul"), (4,), 1000, 100, "generated", "why", s)
        for i, s in enumerate(seconds)
    ]
    return Report("cpu", launches, 100, 400)


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        (("matmul", "add", "reduce_sum"), "matmul"),
        (("scaled_dot_product_attention", "mul"), "attention"),
        (("conv_nd", "relu"), "convolution"),
        (("gather_at", "reduce_sum"), "gather and scatter"),
        (("scatter_at",), "gather and scatter"),
        (("exp", "reduce_max"), "reduction"),
        (("exp", "reshape"), "elementwise"),
        (("permute", "clone"), "copy"),
    ],
)
def test_kinds(ops, kind):
    assert profiling.kind_of(ops) == kind and kind in KINDS


def test_shares_add_up_and_come_longest_first():
    found = profiling.shares(made_up([1e-3, 5e-3, 2e-3, 1e-3]))
    assert [(s.kind, s.launches) for s in found] == [("matmul", 2), ("elementwise", 2)]
    assert [s.seconds for s in found] == pytest.approx([6e-3, 3e-3]) and found[0].bytes == 2000


def boxes(svg):
    """(lane, x, width, title) of each box."""
    root = ET.fromstring(svg[: svg.index("</svg>") + 6])
    space = "{http://www.w3.org/2000/svg}"
    return [
        (float(g.find(f"{space}rect").get("y")), float(g.find(f"{space}rect").get("x")),
         float(g.find(f"{space}rect").get("width")), g.find(f"{space}title").text)
        for g in root.iter(f"{space}g")
    ]  # fmt: skip


def test_boxes_are_as_wide_as_their_time_and_in_order():
    found = boxes(profiling.timeline(made_up([1e-3, 3e-3, 1e-3])))
    assert [title.split(":")[0] for *_, title in found] == ["0", "1", "2"]
    assert [w for _, _, w, _ in found] == pytest.approx([200, 600, 200], abs=0.1)
    assert [x for _, x, _, _ in found] == pytest.approx([0, 200, 800], abs=0.1)


def test_a_long_timeline_has_lanes_and_launches_go_on_in_the_next():
    times = [1e-6 * (1 + i % 7) for i in range(300)]
    found = boxes(profiling.timeline(made_up(times)))
    lanes = sorted({y for y, *_ in found})
    assert len(lanes) == 5
    for lane in lanes:
        mine = [(x, w) for y, x, w, _ in found if y == lane]
        assert mine[0][0] == pytest.approx(0, abs=0.1) and mine[-1][0] + mine[-1][1] == pytest.approx(1000, abs=0.5)
    widths = {}
    for _, _, w, title in found:
        number = int(title.split(":")[0])
        widths[number] = widths.get(number, 0.0) + w
    per_lane = sum(times) / 5
    assert [widths[i] for i in range(300)] == pytest.approx([t / per_lane * 1000 for t in times], abs=0.1)


def test_without_times_the_timeline_says_so():
    report = made_up([1e-3])
    report.launches[0] = replace(report.launches[0], seconds=None)
    assert "not timed" in profiling.timeline(report)
    assert "not timed" in profiling.what_ran(report, pf.compile_stats())["time in kernels"]


def test_rates():
    assert rates(1e-3, 2_000_000, 1000) == "2.0 GB/s"
    assert rates(1e-3, 2_000_000, 10_000_000) == "2.0 GB/s, 10.0 GFLOP/s"
    assert rates(None, 1, 1) == ""


def test_what_ran_counts_launches_and_ops(report):
    facts = profiling.what_ran(report, pf.compile_stats())
    ops = sum(len(x.ops) for x in report.launches)
    assert facts["launches per step"].startswith(f"{len(report.launches)} launches for {ops} ops")
    assert re.match(r"\d+ compiled in [\d.]+ s, \d+ from disk, \d+ from memory", facts["kernel cache"])


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_the_page_needs_nothing_from_outside_and_escapes(report):
    text = profiling.page("a <title>", {"fact": "<b>"}, report, [("Loss & more", "<svg></svg>")])
    parser = Tags()
    parser.feed(text)
    assert not any({"src", "href"} & set(attrs) for _, attrs in parser.seen)
    assert "a &lt;title&gt;" in text and "<td>&lt;b&gt;</td>" in text and "<h2>Loss &amp; more</h2>" in text
    rows = sum(tag == "tr" for tag, _ in parser.seen)
    assert rows == 1 + 1 + len(profiling.shares(report)) + 1 + len(report.launches)
