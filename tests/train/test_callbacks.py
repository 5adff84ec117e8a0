"""Callbacks, logs, curves and progress."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

import pyflame as pf
from pyflame.core.sizes import human_bytes
from pyflame.train import (
    Accuracy,
    Callback,
    Checkpointing,
    CheckpointManager,
    EarlyStopping,
    JSONLLogger,
    LambdaCallback,
    LossCurve,
    Progress,
    curve,
)
from pyflame.train.progress import memory
from tests.train.runs import ROOT, loader, trainer

# --- order and early stopping -----------------------------------------------------------------------------------------


def test_events_come_in_order(tmp_path):
    events: list[str] = []

    class Watch(Callback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                return lambda run, *args: events.append(f"{name[3:]} {run.step} {run.epoch}")
            return super().__getattribute__(name)

    run = trainer(
        max_steps=None, max_epochs=2, train_data=loader(30), eval_data=loader(30), log_every=2, callbacks=[Watch()]
    )
    run.fit()
    assert events == [
        "fit_start 0 0",
        "epoch_start 0 0", "step_end 1 0", "log 2 0", "step_end 2 0", "eval_end 2 0", "epoch_end 2 1",
        "epoch_start 2 1", "step_end 3 1", "log 4 1", "step_end 4 1", "eval_end 4 1", "epoch_end 4 2",
        "fit_end 4 2",
    ]  # fmt: skip


class _Losses:
    """Evaluations that find these losses, one after the other."""

    def __init__(self, run, losses):
        values = iter(losses)
        run._evaluated = lambda data: {"loss": next(values)}


def test_early_stopping(tmp_path):
    stopping = EarlyStopping("loss", patience=2, min_delta=0.1)
    run = trainer(max_steps=100, eval_every=1, eval_data=loader(), callbacks=[stopping], checkpoint=tmp_path)
    _Losses(run, [1.0, 0.5, 0.45, 0.3, 0.25, 0.35, 0.1])
    ended = run.fit()
    assert run.step == 6 and ended.reason == "loss has not become better than 0.3 in 2 evaluations"
    again = trainer(max_steps=100, eval_every=1, eval_data=loader(), callbacks=[EarlyStopping(patience=2)],
                    checkpoint=tmp_path)  # fmt: skip
    assert again.fit().step == 6  # a run that stopped stays stopped


def test_early_stopping_on_a_metric_that_should_grow():
    stopping = EarlyStopping("accuracy", patience=1, mode="max")
    run = trainer(callbacks=[stopping])
    for value, waited in ((0.5, 0), (0.7, 0), (0.6, 1)):
        stopping.on_eval_end(run, {"accuracy": value})
        assert stopping.waited == waited
    assert "accuracy" in run.stop_reason
    with pytest.raises(pf.ArgumentError, match="metric among accuracy but got 'acuracy'; did you mean"):
        EarlyStopping("acuracy").on_eval_end(run, {"accuracy": 1.0})


def test_checkpointing_keeps_the_best(tmp_path):
    run = trainer(max_steps=5, eval_every=1, eval_data=loader(),
                  callbacks=[Checkpointing(tmp_path, every=100, keep=1, keep_best="loss")])  # fmt: skip
    _Losses(run, [0.9, 0.2, 0.5, 0.4, 0.3])
    run.fit()
    manager = CheckpointManager(tmp_path, keep_best="loss")
    assert [p.name for p in manager.all()] == ["step-00000002", "step-00000005"] and manager.best().step == 2


def test_arguments_without_meaning(tmp_path):
    for make, message in [
        (lambda: EarlyStopping(mode="up"), r"\[EarlyStopping\] expected mode 'min' or 'max'"),
        (lambda: EarlyStopping(patience=0), "patience of at least 1"),
        (lambda: Checkpointing(tmp_path, every=0), "every of at least 1"),
        (lambda: LambdaCallback(on_step=print), "got 'on_step'; did you mean 'on_step_end'"),
        (lambda: LambdaCallback(on_step_end=3), "expected a function as on_step_end but got int"),
        (lambda: LossCurve(), "path of an .html or .png file"),
        (lambda: LossCurve("loss.svg"), "ends in .html or .png but got loss.svg"),
    ]:
        with pytest.raises(pf.PyFlameError, match=message):
            make()


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_log(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    run = trainer(max_steps=6, log=path, eval_every=3, eval_data=loader(), metrics=[Accuracy()], clip_norm=1.0)
    run.fit()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["event"], x["step"]) for x in lines] == [
        ("start", 0), ("eval", 3), ("train", 4), ("eval", 6), ("train", 6), ("end", 6),
    ]  # fmt: skip
    train, evaluation = lines[2], lines[3]
    assert set(train) >= {"time", "epoch", "loss", "learning_rate", "items_per_second", "gradient_norm", "memory_bytes"}
    assert 0.0 < train["loss"] < 2.0 and train["learning_rate"] == 1e-2 and train["items_per_second"] > 0
    assert evaluation["loss"] == run.metrics["loss"] and evaluation["accuracy"] == run.metrics["accuracy"]
    assert lines[-1]["reason"] == "max_steps"


def test_a_line_that_a_crash_cut_off_harms_no_other(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "start"}\n{"event": "tra')
    trainer(max_steps=1, log=path).fit()
    lines = path.read_text().splitlines()
    assert lines[1] == '{"event": "tra' and json.loads(lines[2])["event"] == "start"


def test_numbers_that_json_lacks_are_null(tmp_path):
    logger = JSONLLogger(tmp_path / "log.jsonl")
    logger.on_log(trainer(), {"loss": math.nan, "learning_rate": 0.1})
    assert json.loads((tmp_path / "log.jsonl").read_text())["loss"] is None


# --- curves -----------------------------------------------------------------------------------------------------------


def _drawn(page: str) -> list[str]:
    element = ET.fromstring(re.search(r"<svg.*</svg>", page, re.DOTALL)[0])
    return [e.get("points") for e in element.iter("{http://www.w3.org/2000/svg}polyline")]


@pytest.mark.slow
def test_curve_files(tmp_path):
    paths = tmp_path / "a" / "loss.html", tmp_path / "a" / "loss.png"
    run = trainer(max_steps=6, eval_every=3, eval_data=loader(), log_every=1, callbacks=[LossCurve(*paths)])
    run.fit()
    page = paths[0].read_text()
    train, evaluation = _drawn(page)
    assert len(train.split()) == 6 and len(evaluation.split()) == 2
    assert page.count("http") == 1  # the name of SVG's namespace, and nothing to load
    png = paths[1].read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(png[16:20], "big") == 960


def test_curves_continue_after_a_resume(tmp_path):
    for stop in (3, 6):
        run = trainer(max_steps=stop, log_every=1, checkpoint=tmp_path, callbacks=[LossCurve(tmp_path / "loss.html")])
        run.fit()
    assert [step for step, _ in run.callbacks[0].series["train"]] == [1, 2, 3, 4, 5, 6]


def test_curves_of_odd_values():
    (line,) = _drawn(curve.page({"<&>": [(0, 1.0), (1, math.nan), (2, 3.0)]}))
    assert len(line.split()) == 2
    assert _drawn(curve.page({})) == [] and _drawn(curve.page({"a": []})) == [""]
    assert len(_drawn(curve.page({"one": [(5, 2.0)]}))[0].split()) == 1
    many = [(float(i), math.sin(i)) for i in range(10_001)]
    points = _drawn(curve.page({"many": many}))[0].split()
    assert len(points) <= 1502 and points[-1].startswith("744.0,")


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.13, 0.31, [0.15, 0.2, 0.25, 0.3]), (-1, 1, [-1, -0.5, 0, 0.5, 1]), (3, 3, [3])],
)
def test_ticks_are_round(low, high, want):
    assert curve.ticks(low, high) == pytest.approx(want)


def test_png_without_matplotlib_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(pf.ArgumentError, match=r"pip install 'pyflame-rocm\[plots\]', or write .html"):
        LossCurve("loss.png")


# --- progress ---------------------------------------------------------------------------------------------------------


def test_plain_lines_where_there_is_no_terminal():
    text = io.StringIO()
    trainer(max_steps=8, eval_every=8, eval_data=loader(), progress=Console(file=text, width=40)).fit()
    lines = text.getvalue().splitlines()
    assert re.fullmatch(
        r"step 4/8  epoch 1  loss [\d.]+  lr 0.01  [\d,]+ items/s  memory .+, peak .+, process .+", lines[0]
    ), lines
    assert lines[1].startswith("step 8/8  epoch 1  loss")
    assert re.fullmatch(r"step 8  evaluation  loss [\d.]+", lines[2])
    assert lines[3:] == ["stopped at step 8: max_steps"]
    assert "\x1b" not in text.getvalue() and "\r" not in text.getvalue()


def test_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=160, legacy_windows=False)
    trainer(max_steps=8, progress=console, unit="tokens", count=lambda batch: 100).fit()
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text.getvalue())
    assert "8/8" in shown and "epoch 1" in shown and "tokens/s" in shown and "loss" in shown and "━" in shown
    assert "process" in shown and "stopped at step 8: max_steps" in shown


def test_a_narrow_terminal_keeps_the_bar_and_leaves_words_out(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, legacy_windows=False)
    trainer(max_steps=8, progress=console, unit="tokens", count=lambda batch: 100).fit()
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text.getvalue())
    assert re.search(r"epoch 1 ━+ 8/8 loss [\d.e-]+  (lr [\d.e-]+  )?[\d,]+ tokens/s  memory [\d.]+ .?i?B", shown)
    assert "process" not in shown and "…" not in shown


def test_nothing_is_shown_when_not_wanted(capsys):
    trainer(max_steps=4, progress=False).fit()
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_no_terminal_in_a_pipe():
    code = "from tests.train.runs import trainer; trainer(max_steps=1, progress=True).fit()"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.startswith("step 1/1  epoch 1  loss") and "\x1b" not in out


def test_memory_and_sizes():
    held = pf.ones(1 << 20).clone()
    pf.eval(held)
    found = memory()
    assert found["peak_bytes"] >= found["memory_bytes"] >= held.nbytes and found["process_bytes"] > held.nbytes
    with pf.device("null:gfx942"):
        assert "memory_bytes" not in memory()
    assert [human_bytes(n) for n in (0, 1536, 5 << 20, 3 << 40)] == ["0 B", "1.5 KiB", "5 MiB", "3 TiB"]


def test_progress_of_unknown_length():
    text = io.StringIO()
    with Progress(None, console=Console(file=text, width=200)) as progress:
        progress.step(1, 0)
        progress.log({"step": 3, "epoch": 1, "loss": 0.25})
    assert text.getvalue().startswith("step 3  epoch 2  loss 0.25")
