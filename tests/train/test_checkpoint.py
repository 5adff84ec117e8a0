"""Checkpoints: whole or not there, refused by name when damaged, rotated, and untouched by failed writes."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import FileFormatError
from pyflame.io import load_file
from pyflame.train import CheckpointManager, RandomState
from tests.io.test_damage import mutations


class Box:
    """Anything with state_dict and load_state_dict."""

    def __init__(self, value: float, size: int = 3) -> None:
        self.state = {"x": pf.full((size,), value), "n": 1, "nested": [{"lr": 0.1}]}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state

    @property
    def value(self) -> float:
        return self.state["x"].tolist()[0]


def _steps(manager: CheckpointManager) -> list[str]:
    return [path.name for path in manager.all()]


def _filled(directory: Path, *steps: int, **options) -> CheckpointManager:
    manager = CheckpointManager(directory, **options)
    for step in steps:
        manager.save(step, model=Box(step), other=Box(-step))
    return manager


def test_what_was_saved_comes_back(tmp_path):
    manager = CheckpointManager(tmp_path / "new" / "run")
    assert manager.latest() is None and manager.restore(model=Box(0)) is None and manager.all() == []
    path = manager.save(7, epoch=2, metrics={"loss": 0.5, "bad": float("nan")}, extra={"note": "é"}, model=Box(1.5))
    assert path.name == "step-00000007"
    box = Box(0)
    found = manager.restore(model=box)
    assert box.value == 1.5 and box.state["nested"] == [{"lr": 0.1}]
    assert (found.step, found.epoch, found.extra, found.names) == (7, 2, {"note": "é"}, ["model", "random"])
    assert found.metrics["loss"] == 0.5 and np.isnan(found.metrics["bad"])
    assert load_file(path / "model.safetensors")["x"].tolist() == [1.5] * 3  # plain files for other tools


def test_the_random_state_continues(tmp_path):
    pf.manual_seed(3)
    pf.rand(2)
    manager = CheckpointManager(tmp_path, host_random=True)
    manager.save(1)
    want = (pf.rand(3).tolist(), np.random.rand(), np.random.standard_normal(), random.random())
    manager.restore()
    assert (pf.rand(3).tolist(), np.random.rand(), np.random.standard_normal(), random.random()) == want
    manager.restore(random=False)
    assert pf.rand(3).tolist() != want[0]


def test_only_our_random_state_unless_asked(tmp_path):
    assert set(RandomState().state_dict()) == {"pyflame"}
    generator = pf.Generator(5)
    saved = RandomState(generator).state_dict()
    a = pf.rand(2, generator=generator).tolist()
    RandomState(generator).load_state_dict(saved)
    assert pf.rand(2, generator=generator).tolist() == a


# --- rotation ---------------------------------------------------------------------------------------------------------


def test_rotation_keeps_the_newest(tmp_path):
    manager = _filled(tmp_path, 1, 2, 3, 4, 10, keep=2)
    assert _steps(manager) == ["step-00000004", "step-00000010"]
    assert _steps(_filled(tmp_path / "all", 1, 2, 3, 4, keep=None)) == [f"step-{i:08}" for i in (1, 2, 3, 4)]


def test_rotation_keeps_the_best(tmp_path):
    for mode, kept in (("min", 2), ("max", 1)):
        manager = CheckpointManager(tmp_path / mode, keep=1, keep_best="loss", mode=mode)
        for step, loss in enumerate([0.9, 0.2, 0.5, float("nan"), 0.4], 1):
            manager.save(step, metrics={"loss": loss}, model=Box(step))
        assert _steps(manager) == [f"step-{kept:08}", "step-00000005"]
        best = manager.best()
        box = Box(0)
        assert best.step == kept and manager.restore(best, model=box).step == kept and box.value == kept


def test_a_step_that_is_saved_again_replaces_the_first(tmp_path):
    manager = _filled(tmp_path, 1, 2)
    manager.save(2, model=Box(22), other=Box(0))
    manager.save(2, model=Box(222), other=Box(0))
    box = Box(0)
    assert manager.restore(model=box).step == 2 and box.value == 222
    assert [s.partition(".")[0] for s in _steps(manager)] == ["step-00000001", "step-00000002"]


def test_a_step_before_the_newest_is_refused(tmp_path):
    manager = _filled(tmp_path, 10, 20)
    with pytest.raises(pf.ArgumentError, match=r"expected a step after step-00000020.*but got 15; restore"):
        manager.save(15, model=Box(0))
    manager.discard_after(10)
    manager.save(15, model=Box(15))
    assert _steps(manager) == ["step-00000010", "step-00000015"]


def test_leftovers_of_a_crash_are_removed(tmp_path):
    left = tmp_path / ".checkpoint-0123"
    left.mkdir()
    (left / "model.safetensors").write_text("half")
    manager = _filled(tmp_path, 1)
    assert not left.exists() and _steps(manager) == ["step-00000001"]
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "step-00000001"}


# --- damage -----------------------------------------------------------------------------------------------------------


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = {"flip a bit": _flip, "cut off": _cut, "empty": _empty, "delete": Path.unlink}


@pytest.mark.parametrize("file", ["model.safetensors", "random.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_previous_used(tmp_path, file, damage):
    manager = _filled(tmp_path, 1, 2)
    DAMAGES[damage](tmp_path / "step-00000002" / file)
    box, other = Box(0), Box(0)
    with pytest.warns(RuntimeWarning, match=rf"step-00000002.{file} is damaged.*Using step-00000001 instead"):
        found = manager.restore(model=box, other=other)
    assert found.step == 1 and box.value == 1 and other.value == -1


def test_every_bit_of_a_manifest_counts(tmp_path):
    manager = _filled(tmp_path, 1)
    path = tmp_path / "step-00000001" / "manifest.json"
    text = path.read_text()
    content = json.loads(text)["content"]
    for name, other in (("step", 9), ("epoch", 9), ("created", 0.0), ("extra", {"a": 1}), ("metrics", {"a": 1.0})):
        changed = json.loads(text)
        assert changed["content"][name] != other
        changed["content"][name] = other
        path.write_text(json.dumps(changed))
        with pytest.raises(FileFormatError, match=r"manifest\.json is damaged"):
            manager.read(tmp_path / "step-00000001")
    path.write_text(text)
    assert manager.read(tmp_path / "step-00000001").step == content["step"] == 1


def test_if_all_are_damaged_that_is_an_error(tmp_path):
    manager = _filled(tmp_path, 1, 2)
    for step in (1, 2):
        _flip(tmp_path / f"step-{step:08}" / "model.safetensors")
    box = Box(0)
    with pytest.raises(FileFormatError, match=r"(?s)all are damaged.*step-00000002.*step-00000001"):
        manager.restore(model=box)
    assert box.value == 0


def test_training_goes_on_after_damage(tmp_path):
    manager = _filled(tmp_path, 10, 20)
    _flip(tmp_path / "step-00000020" / "model.safetensors")
    with pytest.warns(RuntimeWarning, match="step-00000020"):
        manager.restore(model=Box(0))
    manager.save(15, model=Box(15))  # before the damaged one, which is of no use any more
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert manager.restore(model=Box(0)).step == 15
    assert _steps(manager) == ["step-00000010", "step-00000015"]


def test_another_format_is_refused(tmp_path):
    manager = _filled(tmp_path, 1)
    path = tmp_path / "step-00000001" / "manifest.json"
    from pyflame.train import checkpoint

    content = json.loads(path.read_text())["content"] | {"format": 99}
    path.write_text(json.dumps({"sha256": checkpoint._digest_of(content), "content": content}))
    with pytest.raises(FileFormatError, match=r"manifest\.json has format 99; a newer PyFlame reads it"):
        manager.read(tmp_path / "step-00000001")


def test_damaged_checkpoints_are_refused_or_as_they_were(tmp_path):
    manager = _filled(tmp_path, 1)
    path = tmp_path / "step-00000001"
    want = manager.read(path)
    refused = []
    for name in ("manifest.json", "model.safetensors"):
        whole = (path / name).read_bytes()
        for raw in mutations(whole, 150, seed=2):
            (path / name).write_bytes(raw)
            try:
                found = manager.restore(path, model=Box(0))
            except FileFormatError as error:
                refused.append(str(error))
            else:
                assert found == want, raw
        (path / name).write_bytes(whole)
    assert len(refused) > 200 and all("step-00000001" in words for words in refused)
    assert manager.restore(model=Box(0)) == want


_HOSTILE = {
    "names that lead out": {"files": {"../../secret": {"bytes": 1, "sha256": ""}}},
    "no files": {"files": []},
    "files without sizes": {"files": {"model.safetensors": {}}},
    "metrics that are a list": {"metrics": [1]},
    "a step that is text": {"step": "one"},
    "extra that is a number": {"extra": 3},
}


@pytest.mark.parametrize("what", _HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path, what):
    from pyflame.train import checkpoint

    manager = _filled(tmp_path, 1)
    path = tmp_path / "step-00000001" / "manifest.json"
    content = json.loads(path.read_text())["content"] | _HOSTILE[what]
    path.write_text(json.dumps({"sha256": checkpoint._digest_of(content), "content": content}))
    with pytest.raises(FileFormatError, match=r"manifest\.json is damaged"):
        manager.read(path.parent)
    for text in ("[" * 100_000, "[]", "3"):
        path.write_text(text)
        with pytest.raises(FileFormatError, match=r"manifest\.json is damaged"):
            manager.read(path.parent)


# --- readers beside a writer ------------------------------------------------------------------------------------------


def test_a_reader_finds_a_whole_checkpoint_while_they_are_rotated(tmp_path):
    writer = _filled(tmp_path, 0, keep=1, keep_best="loss")
    done = threading.Event()

    def write() -> None:
        for step in range(1, 30):
            writer.save(step, metrics={"loss": -step}, model=Box(step), other=Box(-step))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader, seen = CheckpointManager(tmp_path, keep_best="loss"), [0]
    try:
        while not done.is_set():
            box, other = Box(0), Box(0)
            found = reader.restore(model=box, other=other)
            assert found.step >= seen[-1] and (box.value, other.value) == (found.step, -found.step)
            assert reader.latest().step >= found.step
            best = reader.best()
            assert best is None or best.step >= found.step or found.step == 0
            seen.append(found.step)
    finally:
        thread.join()
    assert len(set(seen)) > 3


def test_a_checkpoint_that_vanishes_while_it_is_read_gives_way_to_the_next(tmp_path, monkeypatch):
    from pyflame.train import checkpoint

    manager = _filled(tmp_path, 1, keep=1)
    real, left = checkpoint.read_json, [2, 3]

    def slow(path: Path) -> object:
        if left and path.parent.parent == tmp_path:  # listed, and not opened yet
            step = left.pop(0)
            manager.save(step, model=Box(step), other=Box(0))
        return real(path)

    monkeypatch.setattr(checkpoint, "read_json", slow)
    box = Box(0)
    assert manager.restore(model=box).step == 3 and box.value == 3
    opened = checkpoint._digest_of_open

    def replaced(file: object) -> str:  # all is open: what is removed now is read all the same
        if "step-00000003" in file.name and (tmp_path / "step-00000003").exists():
            manager.save(4, model=Box(4), other=Box(0))
        return opened(file)

    monkeypatch.setattr(checkpoint, "_digest_of_open", replaced)
    assert manager.restore(model=box).step == 3 and box.value == 3 and _steps(manager) == ["step-00000004"]


# --- failed writes ----------------------------------------------------------------------------------------------------


def _intact(manager: CheckpointManager, *steps: int) -> None:
    assert _steps(manager) == [f"step-{step:08}" for step in steps]
    assert {p.name for p in manager.directory.iterdir()} <= {".lock", *_steps(manager)}
    assert manager.latest().step == steps[-1]


def test_a_full_disk_leaves_the_previous(tmp_path):
    manager = _filled(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # what a full disk does to a write, without one
    try:
        with pytest.raises(OSError, match=r"File too large: .*model\.safetensors"):
            manager.save(2, model=Box(2, size=1 << 18))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    _intact(manager, 1)


@pytest.mark.parametrize("fails", ["rename", "fsync", "replace"])
def test_a_failing_system_call_leaves_the_previous(tmp_path, monkeypatch, fails):
    manager = _filled(tmp_path, 1)
    real = getattr(os, fails)

    def fail(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(args[0]))

    monkeypatch.setattr(os, fails, fail)
    with pytest.raises(PermissionError):
        manager.save(2, model=Box(2))
    monkeypatch.setattr(os, fails, real)
    _intact(manager, 1)
    manager.save(2, model=Box(2))
    _intact(manager, 1, 2)


def test_a_state_that_cannot_be_saved_leaves_the_previous(tmp_path):
    manager = _filled(tmp_path, 1)
    bad = Box(2)
    bad.state["odd"] = {1, 2}
    with pytest.raises(pf.PyFlameError, match="odd is of type set"):
        manager.save(2, model=Box(2), other=bad)
    _intact(manager, 1)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        CheckpointManager(tmp_path / "file").save(1, model=Box(1))


def test_files_reach_the_disk_before_the_rename(tmp_path, monkeypatch):
    events: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def fsync(handle: int) -> None:
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).partition("-")[0])
        real_sync(handle)

    def rename(a: object, b: object) -> None:
        events.append("rename")
        real_rename(a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    CheckpointManager(tmp_path).save(1, model=Box(1))
    # per file its content and then its folder; at the end the checkpoint's own rename and the folder that it is in
    assert events == [".tmp", ".checkpoint"] * 3 + ["rename", tmp_path.name.partition("-")[0]]


def test_a_removal_that_fails_is_a_warning(tmp_path, monkeypatch):
    manager = _filled(tmp_path, 1, keep=1)

    def busy(path: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    monkeypatch.setattr(shutil, "rmtree", busy)
    with pytest.warns(RuntimeWarning, match="cannot be removed .*busy"):
        manager.save(2, model=Box(2))
    with pytest.warns(RuntimeWarning, match="cannot be removed .*busy"):
        manager.save(3, model=Box(3))
    monkeypatch.undo()
    manager.save(4, model=Box(4))
    _intact(manager, 4)


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def none(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("pyflame.train.checkpoint.fcntl.flock", none)
    with pytest.warns(RuntimeWarning, match="has no locks.*only one process writes"):
        _filled(tmp_path, 1)
    assert CheckpointManager(tmp_path).latest().step == 1


# --- arguments --------------------------------------------------------------------------------------------------------


def test_arguments_without_meaning(tmp_path):
    for options in ({"keep": 0}, {"mode": "most"}):
        with pytest.raises(pf.ArgumentError, match=r"\[CheckpointManager\] expected"):
            CheckpointManager(tmp_path, **options)
    manager = _filled(tmp_path, 1)
    with pytest.raises(pf.PyFlameError, match="'model' is of type int; plain values go into extra"):
        manager.save(2, model=3)
    with pytest.raises(pf.ArgumentError, match="another name than 'random'"):
        manager.save(2, random=Box(1))
    for name in ("../../x", "/tmp/x", "a/b", "..", "", "a\0b", "a\\b"):
        with pytest.raises(pf.ArgumentError, match="plain file name"):
            manager.save(2, **{name: Box(1)})
        with pytest.raises(pf.ArgumentError, match="plain file name"):
            manager.restore(**{name: Box(1)})
    with pytest.raises(pf.ArgumentError, match="whole number from 0 on"):
        manager.save(-1)
    with pytest.raises(pf.PyFlameError, match="extra that JSON can hold"):
        manager.save(2, extra={"a": {1}})
    with pytest.raises(pf.ArgumentError, match=r"expected objects among model, other, random .* but got scheduler"):
        manager.restore(model=Box(0), scheduler=Box(0))
    with pytest.raises(FileFormatError, match="manifest"):
        manager.restore(tmp_path / "absent", model=Box(0))


def test_a_checkpoint_outlives_its_folder(tmp_path):
    manager = _filled(tmp_path, 1)
    box = Box(0)
    manager.restore(model=box)
    shutil.rmtree(tmp_path)
    assert box.value == 1
