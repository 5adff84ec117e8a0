"""`pyflame demo` in small: it trains, saves, writes, reports, and goes on where it stopped."""

import json
import math
import re
import subprocess
import sys

import pytest

from pyflame.cli.demo import _run_of
from pyflame.core.errors import FileFormatError
from pyflame.train import CheckpointManager


def demo(folder, *options):
    return subprocess.run(
        [sys.executable, "-m", "pyflame", "demo", "--minutes", "0.02", "--out", str(folder), *options],
        capture_output=True, text=True, timeout=300, check=False, cwd=folder.parent,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder, and what a run and the one that resumed it printed."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    first = demo(folder, "--size", "tiny", "--prompt", "class A")
    log = (folder / "log.jsonl").read_text(encoding="utf-8") if first.returncode == 0 else ""
    return folder, first, log, demo(folder, "--resume")


def steps(out):
    (found,) = re.findall(r"after ([\d,]+) steps", out)
    return int(found.replace(",", ""))


@pytest.mark.slow(16)
def test_a_run_trains_writes_and_tells_what_ran(runs):
    folder, first, log, _ = runs
    assert first.returncode == 0, first.stderr
    events = [json.loads(line) for line in log.splitlines()]
    assert events[0]["event"] == "start" and events[-1]["event"] == "end" and "1.2 seconds" in events[-1]["reason"]
    written = first.stdout.split("3. Let it write\n\n")[1].split("\n4. What ran")[0]
    assert written.startswith("class A") and len(written) > 100
    for label in ("tokens/s", "launches per step", "ops per launch", "arena of a step", "kernel cache", "peak memory"):
        assert label in first.stdout
    assert str(folder / "report.html") in first.stdout.replace("\n", "")


@pytest.mark.slow(16)
def test_it_has_learnt_something(runs):
    _, first, _, second = runs
    (before,), (after,) = (re.findall(r"held-out loss +([\d.]+) per token", run.stdout) for run in (first, second))
    assert float(before) < math.log(512)  # what a model has that knows nothing, of 512 tokens
    assert float(after) < float(before)


def test_resume_goes_on_from_the_checkpoint(runs):
    folder, first, _, second = runs
    assert second.returncode == 0, second.stderr
    before, after = steps(first.stdout), steps(second.stdout)
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (resumed,) = [e for e in events if e["event"] == "resume"]
    assert 0 < before == resumed["step"] < after
    newest = CheckpointManager(folder / "checkpoints").latest()
    assert newest is not None and newest.step == after and {"model", "optimizer", "trainer"} <= set(newest.names)


def test_the_report_has_curve_timeline_and_plan(runs):
    folder, *_ = runs
    page = (folder / "report.html").read_text(encoding="utf-8")
    for heading in ("Loss", "What it wrote", "Timeline of one step", "Kinds of work", "Plan of one step"):
        assert f"<h2>{heading}</h2>" in page
    assert "<polyline" in page and page.count("<rect") > 50 and 'class="plan"' in page
    assert "src=" not in page and "href=" not in page  # nothing from outside


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume"], "expected a run to resume"),
        (["--device", "cuda"], "[cuda] expected"),
        (["--minutes", "0"], "expected a time above 0"),
        (["--prompt", ""], "expected some text"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, options, words):
    done = demo(tmp_path / "out", *options)
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("all of it")
    done = demo(tmp_path / "out")
    assert done.returncode == 1 and "holds other files" in done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_another_size_cannot_be_resumed(runs):
    folder, *_ = runs
    done = demo(folder, "--resume", "--size", "small")
    assert done.returncode == 1 and "expected --size tiny" in done.stderr


def test_a_damaged_run_is_named(tmp_path):
    about = tmp_path / "run.json"
    for text in ("", "[]", '{"size": "huge", "merges": []}', '{"size": "tiny", "merges": [[1]]}', "[" * 100_000):
        about.write_text(text)
        with pytest.raises(FileFormatError, match=r"run\.json is damaged"):
            _run_of(about)
