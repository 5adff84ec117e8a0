"""GGUF files: what is written is read, by us and by the gguf package; what is wrong is refused by name."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.io.gguf import GGUFFile, GGUFTensor, formats, write_gguf
from tests.llm import small

gguf = pytest.importorskip("gguf")

METADATA: dict[str, Any] = {
    "general.architecture": "test",
    "a.bool": True, "a.int": 7, "a.large": 1 << 40, "a.negative": -3, "a.float": 0.5, "a.text": "naïve ▁",
    "a.ints": [1, -2, 3], "a.floats": [0.25, -1.0], "a.texts": ["", "x", "日本"], "a.bools": [True, False],
}  # fmt: skip
VALUES = [
    GGUFTensor("plain", (3, 5), "float32", np.arange(15, dtype=np.float32).reshape(3, 5).view(np.uint8)),
    GGUFTensor("half", (7,), "float16", np.arange(7, dtype=np.float16).view(np.uint8)),
    GGUFTensor("blocks", (2, 3, 64), "q4_0", np.arange(216, dtype=np.uint8).reshape(2, 3, 36)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "x.gguf", METADATA, VALUES)
    return tmp_path / "x.gguf"


def test_what_is_written_is_read(path: Path, tmp_path: Path) -> None:
    file = GGUFFile(path)
    assert file.metadata == METADATA
    for tensor in VALUES:
        found = file.tensors[tensor.name]
        assert (found.shape, found.encoding) == (tensor.shape, tensor.encoding)
        assert np.array_equal(found.bytes, tensor.bytes)
    write_gguf(tmp_path / "y.gguf", file.metadata, file.tensors.values(), file.types)
    assert (tmp_path / "y.gguf").read_bytes() == path.read_bytes()


def test_the_gguf_package_reads_the_same(path: Path) -> None:
    theirs, ours = gguf.GGUFReader(path), GGUFFile(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert fields == ours.metadata
    for tensor in theirs.tensors:
        assert tuple(tensor.shape)[::-1] == ours.tensors[tensor.name].shape
        assert np.array_equal(np.ascontiguousarray(tensor.data).view(np.uint8), ours.tensors[tensor.name].bytes)


def test_tensors_are_read_only_views_of_the_file(path: Path) -> None:
    raw = GGUFFile(path).tensors["blocks"].bytes
    assert not raw.flags.owndata and not raw.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        raw[0, 0, 0] = 1


def test_every_type_has_a_size() -> None:
    assert {(one.number, one.block, one.nbytes) for one in formats().values()} == {
        (int(kind), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()
    }


@pytest.mark.parametrize("given", [0, 1, 2, "list"])
def test_split_files(tmp_path: Path, given: int | str) -> None:
    parts = small.split(tmp_path)
    file = GGUFFile(parts if given == "list" else parts[int(given)])
    whole = GGUFFile(small.gguf(tmp_path / "whole.gguf"))
    assert file.metadata["tokenizer.ggml.tokens"] == whole.metadata["tokenizer.ggml.tokens"]
    assert file.tensors.keys() == whole.tensors.keys()
    assert all(np.array_equal(file.tensors[n].bytes, whole.tensors[n].bytes) for n in whole.tensors)


def test_split_files_that_do_not_belong_together(tmp_path: Path) -> None:
    parts = small.split(tmp_path)
    with pytest.raises(FileFormatError, match=r"00001-of-00003\.gguf .*split\.count: 3, but 2"):
        GGUFFile(parts[:2])
    with pytest.raises(FileFormatError, match=r"00002-of-00003\.gguf .*split\.no: 1, but it is opened as number 0"):
        GGUFFile([parts[1], parts[0], parts[2]])
    os.rename(parts[0], tmp_path / "alone.gguf")
    with pytest.raises(FileFormatError, match=r"alone\.gguf .*split\.count: 3, but 1"):
        GGUFFile(tmp_path / "alone.gguf")
    with pytest.raises(FileNotFoundError, match=r"expected the 3 parts .* no small-00001-of-00003\.gguf"):
        GGUFFile(parts[1])


def test_every_cut_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    last = GGUFFile(path).tensors["blocks"].bytes.nbytes % 32  # padding behind the last tensor holds nothing
    for end in range(len(raw) - (32 - last)):
        path.write_bytes(raw[:end])
        with pytest.raises(FileFormatError, match=r"x\.gguf is damaged, cut off"):
            GGUFFile(path)
    path.write_bytes(raw + bytes(32))
    with pytest.raises(FileFormatError, match="end: its tensors end at byte"):
        GGUFFile(path)


def header(tensors: int, metadata: int, rest: bytes = b"", version: int = 3, order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(order + "IQQ", version, tensors, metadata) + rest


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(dims: tuple[int, ...], kind: int = 0, offset: int = 0, name: bytes = b"w") -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


HOSTILE = {
    "empty": (b"", "header: it has 0 bytes"),
    "others": (b"\x89PNG" + bytes(60), "magic: b'.x89PNG'"),
    "version 1": (header(0, 0, version=1), "version: 1, known are 2 and 3"),
    "many tensors": (header(1 << 60, 0), "tensor count: 1,152,921,504,606,846,976"),
    "many values": (header(0, 1 << 60), "metadata count"),
    "long key": (header(0, 1, struct.pack("<Q", 1 << 63) + bytes(64)), "metadata key 0"),
    "long text": (header(0, 1, text(b"k") + struct.pack("<IQ", 8, 1 << 62) + bytes(64)), "k: 4,611"),
    "long array": (header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 6, 1 << 60) + bytes(64)), "k: 1,152"),
    "long texts": (header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 60) + bytes(64)), "k: 1,152"),
    "deep": (header(0, 1, text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 500), "k: arrays in arrays"),
    "unknown value": (header(0, 1, text(b"k") + struct.pack("<I", 99) + bytes(64)), "k: type 99"),
    "odd truth": (header(0, 1, text(b"k") + struct.pack("<IB", 7, 2) + bytes(64)), "k: a truth value of 2"),
    "key twice": (header(0, 2, (text(b"k") + struct.pack("<IB", 0, 2)) * 2), "'k' is empty or there twice"),
    "not UTF-8": (header(0, 1, text(b"\xff") + struct.pack("<IB", 0, 2) + bytes(64)), "is not UTF-8"),
    "alignment": (
        header(0, 1, text(b"general.alignment") + struct.pack("<II", 4, 3)), "general.alignment: 3 is no power of two"
    ),
    "overflow": (header(1, 0, tensor((1 << 32, 1 << 32)) + bytes(64)), r"'w': 73,786,976,294,838,206,464 bytes"),
    "dimensions": (header(1, 0, tensor((1,) * 5) + bytes(64)), "'w': 5 dimensions"),
    "no dimension": (header(1, 0, tensor(()) + bytes(64)), "'w': 0 dimensions"),
    "empty tensor": (header(1, 0, tensor((0, 4)) + bytes(64)), r"'w': shape \(4, 0\)"),
    "half a block": (header(1, 0, tensor((16,), 2) + bytes(64)), r"'w': shape \(16,\), but q4_0 .* blocks of 32"),
    "removed type": (header(1, 0, tensor((32,), 4) + bytes(64)), "'w': type 4 is unknown"),
    "far away": (header(1, 0, tensor((8,), 0, 1 << 62) + bytes(64)), "offset 4,611"),
    "overlapping": (header(2, 0, tensor((8,)) + tensor((8,), name=b"v") + bytes(96)), "'v': offset 0 where 32"),
    "same name": (header(2, 0, tensor((8,)) + tensor((8,), 0, 32) + bytes(112)), "'w': there twice"),
    "large": (header(1, 0, tensor((1 << 30,)) + bytes(64)), "'w': 4,294,967,296 bytes at 64 do not fit"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files(tmp_path: Path, kind: str) -> None:
    raw, expected = HOSTILE[kind]
    (tmp_path / "bad.gguf").write_bytes(raw)
    with pytest.raises(FileFormatError, match=rf"bad\.gguf is damaged.*{expected}"):
        GGUFFile(tmp_path / "bad.gguf")


def test_big_endian_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "big.gguf").write_bytes(header(0, 0, version=3, order=">"))
    with pytest.raises(NotSupportedError, match=r"little-endian file but .*big\.gguf is big-endian"):
        GGUFFile(tmp_path / "big.gguf")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        GGUFFile(tmp_path / "nothing.gguf")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        GGUFFile(tmp_path)
    with pytest.raises(ArgumentError, match="empty list"):
        GGUFFile([])
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileFormatError, match="is a pipe"):
        GGUFFile(tmp_path / "pipe.gguf")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with pytest.raises(ArgumentError, match=r"general\.architecture"):
        write_gguf(path, {}, [])
    wrong = GGUFTensor("w", (2, 64), "q4_0", np.zeros((2, 35), np.uint8))
    with pytest.raises(ArgumentError, match=r"expected uint8 of shape \(2, 36\) .* 'w'"):
        write_gguf(path, METADATA, [wrong])
    with pytest.raises(ArgumentError, match="an encoding that GGUF has but got 'int4'"):
        write_gguf(path, METADATA, [GGUFTensor("w", (2,), "int4", np.zeros(2, np.uint8))])
    with pytest.raises(ArgumentError, match=r"'a\.none'"):
        write_gguf(path, {**METADATA, "a.none": None}, [])
    with pytest.raises(ArgumentError, match="values that fit their types"):
        write_gguf(path, {**METADATA, "a.wide": [1, 1 << 40]}, [])
    assert list(tmp_path.iterdir()) == []
