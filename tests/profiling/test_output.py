"""What a profile writes: the trace file, the table, the page, and the command that makes them."""

from __future__ import annotations

import ctypes
import gzip
import html.parser
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import profiling
from pyflame.cli import main
from pyflame.core.errors import ArgumentError
from pyflame.core.trace import TraceEvent
from pyflame.engine.report import debugging
from pyflame.profiling import limits
from pyflame.profiling.chrome import chrome_trace
from pyflame.profiling.kernels import by_kernel
from pyflame.runtime.cpu.compiler import find_compiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.ranges import Ranges

Row = dict[str, Any]
NEEDED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}


def check_trace(trace: Row) -> dict[str, list[Row]]:
    """That a trace follows the format that Perfetto reads; gives its rows by phase."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    rows: dict[str, list[Row]] = {phase: [] for phase in NEEDED}
    for row in trace["traceEvents"]:
        assert set(row) >= NEEDED[row["ph"]], row
        assert all(isinstance(row[k], int) for k in ("pid", "tid") if k in row)
        assert row.get("ts", 0) >= 0 and row.get("dur", 0) >= 0
        rows[row["ph"]].append(row)
    named = {(r["name"], r["pid"], r["tid"]) for r in rows["M"]}
    for row in rows["X"]:
        assert ("process_name", row["pid"], 0) in named and ("thread_name", row["pid"], row["tid"]) in named
    for row in rows["C"]:
        assert all(isinstance(v, (int, float)) for v in row["args"].values())
    tracks: dict[tuple[int, int], list[Row]] = {}
    for row in rows["X"]:
        tracks.setdefault((row["pid"], row["tid"]), []).append(row)
    for track in tracks.values():
        open_: list[float] = []  # ends of the slices around the next one
        for row in sorted(track, key=lambda r: (r["ts"], -r["dur"])):
            start, end = round(row["ts"] * 1e3), round((row["ts"] + row["dur"]) * 1e3)
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1], f"{row} sticks out of the slice around it"
            open_.append(end)
    begins, ends = ({r["id"]: r for r in rows[phase]} for phase in "sf")
    assert begins.keys() == ends.keys() and len(begins) == len(rows["s"])
    for number, begin in begins.items():
        assert begin["ts"] <= ends[number]["ts"]
        for row in (begin, ends[number]):  # an arrow begins and ends at a slice
            assert any(x["ts"] <= row["ts"] <= x["ts"] + x["dur"] + 1e-6 for x in tracks[row["pid"], row["tid"]]), row
    return rows


def profiled(where: str) -> profiling.Profile:
    x, w = pf.randn(12, 8), pf.randn(8, 5)
    step = pf.jit(lambda x: pf.softmax(x @ w, -1))

    def run() -> None:
        with pf.device(where), pf.annotate("side"):
            pf.eval(x * 3.0)

    with pf.profile() as p:
        with pf.annotate("train"):
            for _ in range(2):
                with pf.annotate("forward"):
                    step(x)
        side = threading.Thread(target=run, name="side")
        side.start()
        pf.eval((x * 2.0).sum())
        side.join()
    return p


def test_the_trace_opens_in_perfetto(where: str, tmp_path: Path) -> None:
    p = profiled(where)
    plain, packed = p.save(tmp_path / "trace.json"), p.save(str(tmp_path / "trace.json.gz"))
    trace = json.loads(plain.read_text())
    assert trace == json.loads(gzip.decompress(packed.read_bytes()))
    rows = check_trace(trace)
    kernels = [r for r in rows["X"] if r["cat"] == "kernel"]
    assert len(kernels) == sum(k.calls for k in p.kernels if k.kind == "kernel")
    assert {"range", "run", "evaluate", "kernel"} <= {r["cat"] for r in rows["X"]}
    processes = {r["pid"]: r["args"]["name"] for r in rows["M"] if r["name"] == "process_name"}
    assert {processes[r["pid"]] for r in kernels} == {where} and processes[1] == "host"
    on_gpu = where != "cpu"
    assert len(rows["s"]) == (sum(k.calls for k in p.kernels) if on_gpu else 0)
    assert any(r["cat"] == "launch" for r in rows["X"]) == on_gpu
    assert {processes[r["pid"]] for r in rows["C"]} >= {where}
    total = sum(r["dur"] for r in kernels) / 1e6
    assert 0 < total <= p.seconds + 1e-6
    product = next(r for r in kernels if "matmul" in r["name"])
    assert product["args"]["ranges"] == "train / forward" and product["args"]["operations"] > 0


def test_slices_of_a_stream_do_not_overlap() -> None:
    events = [
        TraceEvent("kernel", f"k{n}", "rocm:0", 1.0 + 1e-6 * n, 1.4e-6, given=(0.5 + 1e-4 * n, 1e-5), thread=1)
        for n in range(5)
    ]
    events.append(TraceEvent("kernel", "unknown", "rocm:0", 2.0, None, given=(1.5, 1e-5), stream=7, thread=1))
    rows = check_trace(chrome_trace(events, 0.25, {1: "MainThread"}, {}))
    assert [r["args"].get("time") for r in rows["X"] if r["name"] == "unknown"] == ["not known"]
    names = {r["args"]["name"] for r in rows["M"] if r["name"] == "thread_name"}
    assert names == {"MainThread", "stream 0", "stream 1"}


def test_ranges(where: str) -> None:
    found = {r.path: r for r in profiled(where).ranges}
    assert found.keys() == {("train",), ("train", "forward"), ("side",)}
    train, forward = found["train",], found["train", "forward"]
    assert (train.calls, forward.calls) == (1, 2)
    assert train.launches == forward.launches > 0 and train.host_seconds >= forward.host_seconds > 0
    assert forward.device_seconds <= forward.host_seconds + 1e-3 and found["side",].launches >= 1


def test_a_range_around_the_profile_is_named(where: str) -> None:
    with pf.annotate("epoch"), pf.profile() as p:
        pf.eval(pf.tensor(np.ones(5)) + 1.0)
    (epoch,) = p.ranges
    assert epoch.path == ("epoch",) and epoch.calls == 0 and epoch.launches >= 1
    assert "all" in p.table()


def test_ranges_reach_the_vendors_profilers(gpu: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(gpu.driver, "range_push", told.append)
    monkeypatch.setattr(gpu.driver, "range_pop", lambda: told.append("pop"))

    @pf.annotate("inner")
    def inner() -> None:
        """Fails."""
        raise KeyError

    with pytest.raises(KeyError), pf.annotate("outer"):
        inner()
    assert told == ["outer", "inner", "pop", "pop"] and inner.__doc__ == "Fails."
    with pytest.raises(ArgumentError, match=r"\[annotate\] expected a name but got .*write @pf.annotate"):
        pf.annotate(inner)  # type: ignore[arg-type]


NVTX = """
#include <string.h>
static char text[99];
const char *told(void) { return text; }
int nvtxRangePushA(const char *name) { strcat(strcat(text, name), " "); return 0; }
int nvtxRangePop(void) { strcat(text, "pop "); return 0; }
"""


def test_libraries_of_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any of its names, in a wheel too; a library without the functions, or none, is no error."""
    nothing = Ranges("nvtx", ["libc.so.6", "libnowhere.so.1"], ["nvidia/*/lib", str(tmp_path)])
    nothing.push("step")
    nothing.pop()
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "nvtx.c").write_text(NVTX)
    library = folder / "libnvtx3interop-of-a-test.so.1"
    compiler = find_compiler()
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "nvtx.c"], check=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Ranges("nvtx", ["libnowhere.so.1", library.name], ["nvidia/*/lib"])
    found.push("step")
    found.pop()
    told = ctypes.CDLL(str(library)).told
    told.restype = ctypes.c_char_p
    assert told() == b"step pop "


def test_the_table(where: str) -> None:
    p = profiled(where)
    text = p.table()
    for word in ("total ms", "GB/s", "TFLOP/s", "matmul", "forward", "kernel cache:", f"memory of {where}:"):
        assert word in text, word
    shown = [row.split("│")[1].strip() for row in text.splitlines() if row.startswith("│")]
    assert len([name for name in shown if name]) == len(p.kernels) + len(p.ranges)
    short = p.table(rows=1)
    assert f"and {len(p.kernels) - 1} more kernels" in short and len(short) < len(text)


def test_shapes_are_told_apart_if_asked(where: str) -> None:
    a, b = pf.tensor(np.ones((6, 4))), pf.tensor(np.ones((8, 4)))
    with pf.profile() as p:
        pf.eval(a * 2.5)
        pf.eval(b * 2.5)
    kernels = [k for k in p.kernels if k.kind == "kernel"]
    assert [k.calls for k in kernels] == [2] and kernels[0].shapes == {(6, 4), (8, 4)}
    assert {k.calls for k in by_kernel(p.events, shapes=True) if k.kind == "kernel"} == {1}
    assert "-> 6x4" in p.table(shapes=True) and "-> 8x4" in p.table(shapes=True)


def test_the_limit(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_measured", {})
    monkeypatch.setattr(limits, "_HOST_BYTES", 1 << 16)
    monkeypatch.setattr(limits, "_GPU_BYTES", 1 << 14)
    p = profiled(where)
    assert where not in p.limits and "of limit" not in p.table()
    best = profiling.measure_limit(where)
    assert best > 0 and profiling.measure_limit(where) == best
    assert p.limits[where] == (best, "measured by a copy") and "of limit" in p.table()
    product = next(k for k in p.kernels if "matmul" in k.ops)
    other = next(k for k in p.kernels if k.kind == "kernel" and "matmul" not in k.ops)
    assert product.of_limit(best) is None
    assert other.gb_per_second is not None
    assert other.of_limit(best) == pytest.approx(other.gb_per_second * 1e9 / best)


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page(where: str, tmp_path: Path) -> None:
    p = profiled(where)
    text = p.save(tmp_path / "report.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert not any({"src", "href"} & set(attrs) for _, attrs in tags.seen)
    for part in ("<svg", "Kinds of work", "Kernels", "Ranges", "matmul", "forward"):
        assert part in text
    with pytest.raises(ArgumentError, match=r"expected a file .json, .json.gz, .html or .txt but got 'trace.jsn'"):
        p.save(tmp_path / "trace.jsn")


# --- PYFLAME_DEBUG ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["1", "2", "4"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """PYFLAME_DEBUG for the time of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYFLAME_DEBUG", request.param)
        debugging.cache_clear()
        yield request.param
    debugging.cache_clear()


def test_debug_prints_launches(where: str, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = pf.tensor(np.ones((64, 32), np.float32))
    pf.eval(x * 7.5)
    eager = capsys.readouterr().err
    step = pf.jit(lambda x: x * 7.5)
    for _ in range(3):
        step(x)
    replays = capsys.readouterr().err
    assert eager.count("*** plan: 1 launches") == 1 and replays.count("*** plan: 1 launches") == 3
    for said, times in ((eager, 1), (replays, 3)):
        assert said.count("GB/s") == (times if level >= "2" else 0)
        assert said.count("PF_KEY") >= times if level == "4" else "PF_KEY" not in said
    with pf.profile() as p:  # both at once
        step(x)
    assert sum(k.calls for k in p.kernels if k.kind == "kernel") == 1
    assert capsys.readouterr().err.count("GB/s") == (1 if level >= "2" else 0)


# --- pyflame profile --------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import pyflame as pf
import beside
if __name__ == "__main__":
    print("given", sys.argv[1:])
    with pf.annotate("work"):
        pf.eval(pf.full((6, 6), 2.0) @ pf.full((6, 6), 2.0))
    {end}
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("pass", 0, ""), ("sys.exit(5)", 5, ""), ("sys.exit('stop')", 1, "stop"), ("1 / 0", 1, "ZeroDivisionError")],
)
def test_the_command(end: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "beside.py").write_text("")
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT.format(end=end))
    assert main(["profile", "--device", "cpu", "--out", str(out), str(script), "a", "--b"]) == code
    shown = capsys.readouterr()
    assert "given ['a', '--b']" in shown.out and "matmul" in shown.out and "work" in shown.out and said in shown.err
    check_trace(json.loads((out / "trace.json").read_text()))
    assert "<svg" in (out / "report.html").read_text() and "matmul" in (out / "table.txt").read_text()


def test_the_command_runs_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiled_module.py").write_text("import pyflame as pf\npf.eval(pf.full((3,), 2.0).exp())\n")
    assert main(["profile", "-m", "profiled_module"]) == 0
    assert "exp" in capsys.readouterr().out and (tmp_path / "pyflame-profile" / "trace.json").exists()


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["profile", str(tmp_path / "none.py")])
    assert "there is no file" in capsys.readouterr().err
    script = tmp_path / "script.py"
    script.write_text("")
    assert main(["profile", "--device", "metal", str(script)]) == 1
    assert "does not support Metal" in capsys.readouterr().err
