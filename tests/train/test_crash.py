"""Runs that are killed at random moments end with the bits of a run that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from pyflame.train import CheckpointManager
from tests.train.runs import ROOT, digests, full


def _start(what: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.train.runs", what, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe, start_new_session=True)


def _wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until a checkpoint of this step or a later one is there."""
    manager = CheckpointManager(folder / "checkpoints")
    until = time.monotonic() + 120
    while not any(int(path.name[5:13]) >= step for path in manager.all()):
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.002)


def _newest(folder: Path) -> int:
    """The step to go on from. Any damage is an error here: a killed write must leave nothing behind that shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = CheckpointManager(folder / "checkpoints").latest()
    return 0 if found is None else found.step


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert full(folder).fit().reason == "max_steps"
    return digests(folder)


@pytest.mark.slow
def test_killed_runs_end_bit_for_bit_as_uninterrupted_ones(tmp_path, uninterrupted):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    reached, kills = 0, 0
    for target in (2, 15, 30, 45):
        process = _start("fit", tmp_path)
        _wait_for_step(tmp_path, max(target, reached + 1), process)
        time.sleep(chance.uniform(0.0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        newest = _newest(tmp_path)
        assert newest >= reached, seed
        reached = newest
    process = _start("fit", tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert kills >= 3 and out.strip() == "max_steps", (out, err)
    assert digests(tmp_path) == uninterrupted, f"seed {seed}, killed {kills} times"
    events = [json.loads(line)["event"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert events[0] == "start" and events.count("resume") == 4 and events[-1] == "end"


@pytest.mark.slow(16)
def test_a_kill_during_the_write_leaves_a_whole_checkpoint(tmp_path):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    reached = 0
    for _ in range(4):
        process = _start("save", tmp_path)
        _wait_for_step(tmp_path, reached + 2, process)
        time.sleep(chance.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        newest = _newest(tmp_path)
        assert newest >= reached + 2, seed
        reached = newest


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_a_checkpoint_that_resumes(tmp_path, uninterrupted):
    process = _start("fit", tmp_path)
    _wait_for_step(tmp_path, 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and out.strip() == "interrupted", (out, err)
    assert "press Ctrl-C again" in err
    assert 5 <= _newest(tmp_path) < 60
    trainer = full(tmp_path)
    assert trainer.fit().reason == "max_steps"
    assert digests(tmp_path) == uninterrupted


@pytest.mark.slow
def test_sigterm_to_the_whole_group_ends_a_run_with_a_checkpoint_that_resumes(tmp_path, uninterrupted):
    process = _start("fit with workers", tmp_path)
    _wait_for_step(tmp_path, 5, process)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM and out == "", (out, err)
    assert "stopping after this step" in err and "Traceback" not in err, err
    assert 5 <= _newest(tmp_path) < 60
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "end" and events[-1]["reason"] == "terminated"
    assert full(tmp_path).fit().reason == "max_steps"
    assert digests(tmp_path) == uninterrupted
