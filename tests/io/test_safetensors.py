"""Files of tensors: what we write others read, what others write we read, and damage is refused by name."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import pyflame as pf
from pyflame.core.dtype import ALL
from pyflame.core.errors import FileFormatError
from pyflame.io import atomic_path, file_info, load_file, save_file, write_atomic


def _values(dtype: pf.DType, count: int = 12) -> np.ndarray:
    return np.arange(count).astype(np.float32).astype(dtype.numpy).reshape(3, -1)


def _raw(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.fixture
def every_dtype() -> dict[str, pf.Tensor]:
    return {d.name: pf.from_numpy(_values(d)) for d in ALL if d is not pf.complex128}


def test_every_dtype_comes_back(tmp_path, every_dtype):
    save_file(every_dtype, tmp_path / "x.safetensors", {"made_by": "us"})
    info = file_info(tmp_path / "x.safetensors")
    assert info.metadata == {"made_by": "us"} and info.tensors["bfloat16"].dtype == "BF16"
    for mapped in (True, False):
        loaded = load_file(tmp_path / "x.safetensors", memory_map=mapped)
        assert set(loaded) == set(every_dtype)
        for name, value in loaded.items():
            assert value.dtype is every_dtype[name].dtype and value.shape == (3, 4)
            assert _raw(value.numpy()) == _raw(every_dtype[name].numpy()), name


def test_a_dtype_that_the_format_lacks_is_named(tmp_path):
    with pytest.raises(pf.DTypeError, match=r"'x' is complex128; save its real and"):
        save_file({"x": pf.ones(2, dtype=pf.complex128)}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_torch_reads_what_we_write(tmp_path, every_dtype):
    save_file(every_dtype, tmp_path / "x.safetensors")
    for name, value in safetensors.torch.load_file(tmp_path / "x.safetensors").items():
        assert pf.as_dtype(value.dtype).name == name
        assert value.view(torch.uint8).numpy().tobytes() == _raw(every_dtype[name].numpy()), name


def test_we_read_what_torch_writes(tmp_path):
    torch.manual_seed(0)
    tensors = {
        "a.weight": torch.randn(5, 7),
        "b": torch.randn(3).to(torch.bfloat16),
        "c": torch.randn(4).to(torch.float8_e5m2),
        "d": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(3, dtype=torch.int16),
    }
    safetensors.torch.save_file(tensors, tmp_path / "t.safetensors")
    loaded = load_file(tmp_path / "t.safetensors")
    assert set(loaded) == set(tensors)
    for name, value in tensors.items():
        assert loaded[name].shape == tuple(value.shape)
        assert _raw(loaded[name].numpy()) == value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_views_and_pending_tensors_are_written(tmp_path):
    x = pf.arange(12).reshape(3, 4)
    save_file({"t": x.T, "sum": x.sum() + 1, "part": x[1:, ::2]}, tmp_path / "x.safetensors")
    loaded = load_file(tmp_path / "x.safetensors")
    assert loaded["t"].tolist() == np.arange(12).reshape(3, 4).T.tolist()
    assert loaded["sum"].item() == 67 and loaded["part"].tolist() == [[4, 6], [8, 10]]


def test_mapped_tensors_are_never_written_to(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": pf.ones(4)}, path)
    before = path.read_bytes()
    x = load_file(path)["x"]
    x += 1
    x[0] = 9.0
    assert x.tolist() == [9.0, 2.0, 2.0, 2.0] and path.read_bytes() == before


def test_replacing_a_mapped_file_keeps_the_old_values(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": pf.ones(4)}, path)
    old = load_file(path)["x"]
    save_file({"x": pf.zeros(4)}, path)
    assert old.tolist() == [1.0] * 4 and load_file(path)["x"].tolist() == [0.0] * 4


def test_unaligned_data_is_read(tmp_path):
    # The format asks for no alignment; a header of odd length puts every number across word boundaries.
    header = json.dumps({"x": {"dtype": "F64", "shape": [9], "data_offsets": [0, 72]}}).encode()
    header += b" " * (1 - len(header) % 2)
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.arange(9.0).tobytes())
    assert (load_file(path)["x"] * 2).tolist() == (np.arange(9) * 2.0).tolist()


def test_chosen_names_and_a_wrong_one(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"weight": pf.ones(2), "bias": pf.zeros(2)}, path)
    assert list(load_file(path, names=["bias"])) == ["bias"]
    with pytest.raises(pf.ArgumentError, match=r"x\.safetensors.*'wieght'; did you mean 'weight'"):
        load_file(path, names=["wieght"])


def test_a_dtype_we_lack_is_named(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file({"u": torch.zeros(2).to(torch.float8_e5m2fnuz), "f": torch.zeros(2)}, path)
    with pytest.raises(pf.DTypeError, match=r"'u' in .*x\.safetensors is F8_E5M2FNUZ; load the others with names"):
        load_file(path)
    assert load_file(path, names=["f"])["f"].tolist() == [0.0, 0.0]


def _damages(raw: bytes) -> dict[str, bytes]:
    size = int.from_bytes(raw[:8], "little")
    return {
        "empty": b"",
        "cut in the length": raw[:5],
        "cut in the header": raw[: 8 + size // 2],
        "cut in the data": raw[:-1],
        "more than it says": raw + b"x",
        "oversized header": (1 << 60).to_bytes(8, "little") + raw[8:],
        "no JSON": raw[:8] + b"\xff" * size + raw[8 + size :],
        "wrong offsets": raw.replace(b'"data_offsets":[0,', b'"data_offsets":[9,'),
        "unknown dtype": raw.replace(b'"F32"', b'"Q32"'),
        "text": b"hello, this is no such file at all",
    }


@pytest.mark.parametrize("damage", _damages(bytes(8)))
def test_damage_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "model.safetensors"
    save_file({"x": pf.ones(3), "y": pf.zeros(5)}, path)
    path.write_bytes(_damages(path.read_bytes())[damage])
    with pytest.raises(FileFormatError, match=r"\[load_file\] expected a whole .safetensors file but .*model\.safe"):
        load_file(path)


@pytest.mark.slow
def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(pf.PyFlameError, match=r"\[save_file\] expected tensors but 'x' is of type ndarray"):
        save_file({"x": np.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(pf.ArgumentError, match="__metadata__"):
        save_file({"__metadata__": pf.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(pf.PyFlameError, match="metadata that is text"):
        save_file({"x": pf.ones(1)}, tmp_path / "x.safetensors", {"step": 1})
    with pytest.raises(pf.ArgumentError, match=r"at most 99,999,992 bytes of names and metadata, .*long lists"):
        save_file({}, tmp_path / "x.safetensors", {"x": "a" * 100_000_000})
    with pytest.raises(pf.ArgumentError, match="metadata that are text"):
        save_file({"\ud800": pf.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        save_file({"x": pf.ones(1)}, tmp_path / "absent" / "x.safetensors")
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "absent.safetensors")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_disk():
    """No file may grow beyond 64 KiB: what a full disk does to a write, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file(tmp_path, full_disk):
    path = tmp_path / "x.safetensors"
    save_file({"x": pf.ones(4)}, path)
    with pytest.raises(OSError, match=r"x\.safetensors") as caught:
        save_file({"x": pf.ones(1 << 18)}, path)
    assert caught.value.errno == errno.EFBIG
    assert load_file(path)["x"].tolist() == [1.0] * 4 and [p.name for p in tmp_path.iterdir()] == [path.name]


# --- atomic writes ----------------------------------------------------------------------------------------------------


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_the_old_file_is_seen_until_the_end(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, b"old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_permissions_and_links_are_kept(tmp_path):
    before = os.umask(0o027)
    try:
        fresh = tmp_path / "fresh.safetensors"
        save_file({"x": pf.ones(1)}, fresh)
        assert fresh.stat().st_mode & 0o777 == 0o640
        fresh.chmod(0o604)
        link = tmp_path / "link.safetensors"
        link.symlink_to(fresh)
        save_file({"x": pf.zeros(1)}, link)
    finally:
        os.umask(before)
    assert link.is_symlink() and fresh.stat().st_mode & 0o777 == 0o604
    assert load_file(fresh)["x"].item() == 0.0


def test_files_are_synced_before_and_folders_after_the_rename(tmp_path, monkeypatch):
    events: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        events.append("folder" if Path(f"/proc/self/fd/{handle}").resolve().is_dir() else "file")
        real_sync(handle)

    def replace(a: object, b: object) -> None:
        events.append("rename")
        real_replace(a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save_file({"x": pf.ones(1)}, tmp_path / "x.safetensors")
    assert events == ["file", "rename", "folder"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    target = tmp_path / "a.txt"
    script = "import os, sys; from pyflame.io import atomic_path\n"
    script += "with atomic_path(sys.argv[1]) as path: path.write_text('half'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    (left,) = tmp_path.iterdir()
    write_atomic(target, "new")
    assert left.exists()  # too young to tell
    os.utime(left, (1, 1))
    write_atomic(target, "newer")
    assert list(tmp_path.iterdir()) == [target]
    with atomic_path(target) as first:
        os.utime(first, (1, 1))
        with atomic_path(target) as second:  # the first is still being written: its lock is held
            assert first.exists() and second != first
    assert list(tmp_path.iterdir()) == [target]
