"""Runs that signals end, and disks that are full."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import threading
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from pyflame.data import WorkerError
from pyflame.train import CheckpointManager, LambdaCallback, LossCurve
from tests.train.runs import trainer
from tests.train.test_trainer import _batches

# --- SIGTERM ----------------------------------------------------------------------------------------------------------


def _terminate(*steps: int) -> LambdaCallback:
    return LambdaCallback(on_step_end=lambda run: run.step in steps and os.kill(os.getpid(), signal.SIGTERM))


def test_sigterm_ends_after_the_step_with_a_checkpoint_and_its_status(tmp_path, capfd):
    before = signal.getsignal(signal.SIGTERM)
    assert before == signal.SIG_DFL
    run = trainer(max_steps=20, checkpoint=tmp_path, callbacks=[_terminate(3)])
    with pytest.raises(SystemExit) as end:
        run.fit()
    assert end.value.code == 143 and run.stop_reason == "terminated" and run.step == 3
    assert CheckpointManager(tmp_path).latest().step == 3
    assert signal.getsignal(signal.SIGTERM) == before and "stopping after this step" in capfd.readouterr().err


def test_sigterm_is_handed_to_the_programs_own_handler(tmp_path):
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(CheckpointManager(tmp_path).latest().step))
    try:
        run = trainer(max_steps=20, checkpoint=tmp_path, callbacks=[_terminate(2)])
        assert run.fit().reason == "terminated" and seen == [2]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert run.fit().reason == "max_steps" and run.step == 20
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_leave_signals_alone(tmp_path):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    seen: list[object] = []
    note = LambdaCallback(on_step_end=lambda run: seen.extend(map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))))
    thread = threading.Thread(target=trainer(max_steps=1, callbacks=[note]).fit)
    thread.start()
    thread.join()
    assert seen == handlers


@pytest.mark.parametrize("evaluating", [False, True])
def test_a_signal_that_ends_the_workers_too(tmp_path, evaluating):
    """As when a scheduler signals the whole group: the loader then finds its workers dead."""

    class Dying(list):
        def __iter__(self):
            yield from list.__iter__(self)
            os.kill(os.getpid(), signal.SIGINT)
            raise WorkerError("[DataLoader] expected batch 3 but worker 0 was killed by SIGTERM")

    dying, alive = Dying(_batches(20)), _batches(20)
    run = trainer(max_steps=50, checkpoint=tmp_path, eval_every=3, train_data=alive if evaluating else dying,
                  eval_data=dying if evaluating else None)  # fmt: skip
    assert run.fit().reason == "interrupted" and run.step == 3
    assert CheckpointManager(tmp_path).latest().step == 3


def test_workers_that_die_within_a_step_are_an_error(tmp_path):
    class Dying:
        def __iter__(self):
            yield from _batches(20)
            os.kill(os.getpid(), signal.SIGINT)
            raise WorkerError("killed")

    with pytest.raises(WorkerError, match="killed"):  # the third batch is neither trained on nor given again
        trainer(max_steps=50, checkpoint=tmp_path, accumulate=2, train_data=Dying()).fit()
    assert CheckpointManager(tmp_path).all() == []


# --- logs that cannot be written --------------------------------------------------------------------------------------


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_for_logs_does_not_end_the_run(tmp_path):
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = trainer(max_steps=12, log_every=4, log=tmp_path / "log.jsonl", progress=Console(file=_Full()),
                      callbacks=[LossCurve("/dev/full/loss.html")], checkpoint=tmp_path / "run")  # fmt: skip
        assert run.fit().reason == "max_steps" and CheckpointManager(tmp_path / "run").latest().step == 12
    words = [str(w.message) for w in said]
    log = [w for w in words if "log.jsonl" in w]
    assert len(log) == 2 and "No space left on device" in log[0] and "the run goes on" in log[0]
    assert re.search(r"5 writes to .*log\.jsonl, of steps 0 to 12, failed and are lost", log[1])
    assert sum("the progress" in w for w in words) == 2 and sum("loss.html" in w for w in words) == 2


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    trainer(max_steps=3, checkpoint=tmp_path).fit()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "model.safetensors")

    monkeypatch.setattr("pyflame.train.checkpoint.save", full)
    with pytest.raises(OSError, match="No space left"):
        trainer(max_steps=6, checkpoint=tmp_path).fit()
    assert [p.name for p in CheckpointManager(tmp_path).all()] == ["step-00000003"]
    assert CheckpointManager(tmp_path).latest().step == 3


def test_a_log_that_was_cut_off_goes_on_in_a_new_line(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event": "old"}\n' * 1000 + b'{"event": "tra')
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("the whole log was read"))
    trainer(max_steps=4, log=path).fit()
    with path.open() as file:
        lines = file.read().splitlines()
    assert lines[1000] == '{"event": "tra' and [json.loads(x)["event"] for x in lines[1001:]] == [
        "start",
        "train",
        "end",
    ]
