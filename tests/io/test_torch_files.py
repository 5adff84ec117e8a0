"""torch's .pt files: what torch.save writes comes back, whatever else they hold is named, nothing is run."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn

WAYS = [True, False]  # the zip format, and the one before it


def saved(value: Any, path: Path, new: bool) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=new)
    return path


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, pf.Tensor) and ours.shape == tuple(theirs.shape)
        assert ours.dtype.name.rstrip("_") == str(theirs.dtype).removeprefix("torch.")
        assert ours.requires_grad == theirs.requires_grad
        np.testing.assert_array_equal(
            ours.detach().to(pf.float64).numpy(), theirs.detach().to(torch.float64).numpy(), strict=True
        )
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs) and isinstance(ours, dict)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        assert len(ours) == len(theirs) and type(ours) is type(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, torch.dtype):
        assert ours is getattr(pf, str(theirs).removeprefix("torch."))
    elif isinstance(theirs, np.generic):
        assert ours == theirs and type(ours) is type(theirs)
    else:
        assert ours == theirs, (ours, theirs)


def structures() -> dict[str, Any]:
    base = torch.arange(24.0).reshape(4, 6)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    return {
        "tensor": torch.randn(3, 2),
        "state dict": model.state_dict(),
        "checkpoint": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": 0.5},
        "views": [base, base[1], base.T, base[:, ::2], base[2:, 1:4], base.expand(2, 4, 6)],
        "odd shapes": [torch.tensor(3.0), torch.zeros(0), torch.zeros(2, 0, 3), torch.ones(1, 1, 1)],
        "values": [1, 2**70, 1.5, float("inf"), None, True, "é", b"b", (1, (2,)), {3, 4}, {1: 2}, torch.Size([2, 3])],
        "dtypes": [torch.float32, torch.bfloat16, torch.int64, torch.bool],
        "ordered": collections.OrderedDict(b=1, a=torch.ones(1)),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "needs grad": torch.ones(2, requires_grad=True),
        "numpy": [np.float64(1.5), np.int32(7), np.float16(0.5), np.bool_(True)],
    }


@pytest.mark.parametrize("new", WAYS, ids=["zip", "stream"])
@pytest.mark.parametrize("name", list(structures()))
@pytest.mark.parametrize("mapped", [True, False])
def test_structures(tmp_path: Path, name: str, new: bool, mapped: bool) -> None:
    theirs = structures()[name]
    path = saved(theirs, tmp_path / "file.pt", new)
    same(pf.load(path, weights_only=True, mmap=mapped), theirs)
    with path.open("rb") as file:
        same(pf.load(file, map_location="cpu", memory_map=mapped), theirs)
    same(pf.load(io.BytesIO(path.read_bytes()), "cpu"), theirs)


KINDS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]


@pytest.mark.parametrize("new", WAYS, ids=["zip", "stream"])
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(tmp_path: Path, kind: str, new: bool) -> None:
    values = torch.tensor([0, 1, 3, 100]).to(getattr(torch, kind))
    same(pf.load(saved(values, tmp_path / "a.pth", new)), values)


@pytest.mark.parametrize("kind", SMALL)
def test_small_dtypes(tmp_path: Path, kind: str) -> None:
    values = torch.tensor([0.0, 1.0, 3.0, 96.0]).to(getattr(torch, kind))
    same(pf.load(saved(values, tmp_path / "a.pth", True)), values)


def test_a_model_loads_a_file_of_torch(tmp_path: Path) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    ours = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    ours.load_state_dict(pf.load(saved(theirs.state_dict(), tmp_path / "m.pth", True), map_location="cpu"))
    x = torch.randn(3, 4)
    np.testing.assert_allclose(ours(pf.tensor(x)).detach().numpy(), theirs(x).detach().numpy(), atol=1e-6)
    loaded = pf.load(tmp_path / "m.pth")
    loaded["0.weight"].add_(1.0)  # changes the tensor, not the file
    same(pf.load(tmp_path / "m.pth"), theirs.state_dict())


@pytest.mark.parametrize(
    "where",
    [None, "cpu", pf.device("cpu"), {"cpu": "cpu"}, lambda s, tag: s, lambda s, tag: s.cpu(), lambda s, tag: "cpu"],
)
def test_map_location(tmp_path: Path, where: Any) -> None:
    path = saved({"a": torch.ones(2)}, tmp_path / "a.pt", True)
    assert pf.load(path, map_location=where)["a"].device == "cpu"
    with pytest.raises(pf.DeviceError, match=r"\[cuda\]"):
        pf.load(path, map_location=lambda storage, location: storage.cuda(0))
    with pytest.raises(TypeError, match="expected a device, a dict or a function"):
        pf.load(path, map_location=3)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/pyflame-was-here",)


@pytest.mark.parametrize("new", WAYS, ids=["zip", "stream"])
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (argparse.Namespace(lr=0.1), "argparse.Namespace"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (Evil(), "posix.system"),
        (torch.ones(2, 2).to_sparse(), "torch._utils._rebuild_sparse_tensor"),
        (Path("x"), "pathlib.PosixPath"),
        (np.arange(3), r"numpy\._core\.multiarray\._reconstruct"),
    ],
)
def test_what_is_no_data_is_named(tmp_path: Path, value: Any, name: str, new: bool) -> None:
    path = saved({"model": torch.ones(2), "other": value}, tmp_path / "a.pt", new)
    with pytest.raises(pf.NotSupportedError, match=rf"holds {name}; PyFlame runs nothing"):
        pf.load(path, weights_only=False)
    assert not Path("/tmp/pyflame-was-here").exists()


def test_other_files_are_called_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(pf.DTypeError, match="ComplexFloatStorage"):
        pf.load(saved(torch.ones(2, dtype=torch.complex64), tmp_path / "c.pt", True))
    script = tmp_path / "script.pt"
    with zipfile.ZipFile(script, "w") as archive:
        archive.writestr("script/data.pkl", b"")
        archive.writestr("script/constants.pkl", b"")
    with pytest.raises(pf.NotSupportedError, match="TorchScript"):
        pf.load(script)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(pf.NotSupportedError, match=r"a pickle that .* did not make"):
        pf.load(tmp_path / "plain.pkl")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(pf.NotSupportedError, match="a zip without data"):
        pf.load(tmp_path / "other.zip")
    with pytest.raises(pf.NotSupportedError, match="pickle_module"):
        pf.load(tmp_path / "plain.pkl", "cpu", pickle)


@pytest.mark.parametrize("new", WAYS, ids=["zip", "stream"])
def test_a_file_that_is_cut_off(tmp_path: Path, new: bool) -> None:
    whole = saved({"a": torch.ones(100)}, tmp_path / "a.pt", new).read_bytes()
    for size in (5, 40, len(whole) // 3, len(whole) // 2, len(whole) - 3):
        (tmp_path / "b.pt").write_bytes(whole[:size])
        with pytest.raises((pf.FileFormatError, pf.NotSupportedError), match=r"^\[load"):
            pf.load(tmp_path / "b.pt")


def test_nothing_outside_of_a_storage_is_read(tmp_path: Path) -> None:
    path = saved({"a": torch.arange(6.0)}, tmp_path / "a.pt", True)
    bad = tmp_path / "bad.pt"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(bad, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("data.pkl"):  # the size: K\x06\x85 -> K\x60\x85
                assert data.count(b"K\x06\x85") == 1
                data = data.replace(b"K\x06\x85", b"K\x60\x85")
            target.writestr(info.filename, data)
    with pytest.raises(pf.FileFormatError, match="expected tensors inside of their storages"):
        pf.load(bad)


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_an_error_of_ours(tmp_path: Path, seed: int) -> None:
    """Bytes of the pickle are changed at random: typed errors, or values; never another exception."""
    rng = np.random.default_rng(seed)
    whole = bytearray(saved({"a": torch.ones(3), "b": [1, "x", (2.0,)]}, tmp_path / "a.pt", False).read_bytes())
    for _ in range(3):
        whole[rng.integers(20, len(whole))] = rng.integers(256)
    (tmp_path / "a.pt").write_bytes(whole)
    with contextlib.suppress(pf.PyFlameError):
        pf.load(tmp_path / "a.pt")


def test_save_and_load_open_files(tmp_path: Path) -> None:
    state = {"w": pf.arange(3.0), "n": [1, None]}
    buffer = io.BytesIO()
    pf.save(state, buffer)
    buffer.seek(0)
    loaded = pf.load(buffer)
    assert loaded["w"].tolist() == [0.0, 1.0, 2.0] and loaded["n"] == [1, None]
    with (tmp_path / "model.pt").open("wb") as file:
        pf.save(state, file)
    assert pf.load(tmp_path / "model.pt", map_location="cpu", weights_only=True)["w"].device == "cpu"
    with pytest.raises(TypeError, match="reading bytes"):
        pf.load(io.StringIO("text"))


def test_struct_of_the_stream(tmp_path: Path) -> None:
    """A storage's length that does not fit its place in the pickle."""
    path = saved(torch.ones(4), tmp_path / "a.pt", False)
    raw = path.read_bytes()
    at = raw.rindex(struct.pack("<q", 4))
    path.write_bytes(raw[:at] + struct.pack("<q", 3) + raw[at + 8 :])
    with pytest.raises(pf.FileFormatError, match="expected 4 elements of storage"):
        pf.load(path)
