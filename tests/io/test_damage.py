"""Damaged files: every flip, cut and gap is refused by name, or changes nothing."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import pyflame as pf
from pyflame.core.errors import FileFormatError
from pyflame.io import file_info, load, load_file, save, save_file
from pyflame.io.checksums import KEY, PIECE, of_tensors
from tests.io.test_state import same

STATE = {
    "model": {"weight": pf.arange(6.0).reshape(2, 3), "bias": pf.zeros(3), "mask": pf.tensor([True, False])},
    "step": 3,
    "rates": [0.1, (0.01, None)],
    "counts": np.arange(4, dtype=np.int16),
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(STATE, tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def mutations(raw: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Flipped bits, changed bytes, cuts, gaps and repeats, at random places."""
    chance = random.Random(seed)
    for number in range(count):
        at, other = chance.randrange(len(raw)), bytearray(raw)
        if number % 8 < 4:
            other[at] ^= 1 << chance.randrange(8)
        elif number % 8 < 6:
            other[at] = chance.randrange(256)
        elif number % 8 == 6:
            del other[at : at + chance.choice([1, 8, len(raw)])]
        else:
            other[at:at] = raw[at : at + chance.choice([1, 8, 64])]
        if other != raw:
            yield bytes(other)


def test_damage_is_refused_or_harmless(saved: Path) -> None:
    refused: list[str] = []
    for raw in mutations(saved.read_bytes(), 600, seed=1):
        saved.write_bytes(raw)
        try:
            loaded = load(saved, memory_map=False)
        except FileFormatError as error:
            refused.append(str(error))
        else:
            assert same(STATE, loaded), raw
    assert len(refused) > 500 and all(saved.name in words for words in refused)


def test_every_bit_of_the_values_counts(saved: Path) -> None:
    raw, info = saved.read_bytes(), file_info(saved)
    for name, about in info.tensors.items():
        for at in range(about.start, about.start + about.nbytes):
            saved.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
            with pytest.raises(FileFormatError, match=rf"'{name}' in .*state\.safetensors is damaged: the checksum"):
                load_file(saved)
            assert name in load_file(saved, verify=False)
            others = [other for other in info.tensors if other != name]
            assert set(load_file(saved, names=others)) == set(others)


def test_large_tensors_are_checked_piece_by_piece(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).bytes(3 * PIECE + 5)
    sums = {of_tensors({"x": memoryview(raw)})["x"]}
    for at in (0, PIECE - 1, PIECE, 3 * PIECE + 4):
        sums.add(of_tensors({"x": memoryview(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])})["x"])
    sums.add(of_tensors({"x": memoryview(raw[PIECE : 2 * PIECE] + raw[:PIECE] + raw[2 * PIECE :])})["x"])
    assert len(sums) == 6
    assert of_tensors({"a": memoryview(b""), "b": memoryview(raw)})["b"] in sums


def test_files_of_others_and_older_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"w": np.ones(2)}, path, {"made_by": "others"})
    assert file_info(path).checksums is None and load(path)["w"].tolist() == [1.0, 1.0]
    structure = json.dumps({"format": 1, "root": {"w": {"$tensor": "w"}, "n": 1}})
    safetensors.numpy.save_file({"w": np.ones(2)}, path, {"pyflame.structure": structure})
    assert load(path)["n"] == 1
    with pytest.raises(pf.ArgumentError, match="written by itself"):
        save_file({"w": pf.ones(1)}, path, {KEY: ""})


def test_a_lost_checksum_is_noticed(saved: Path) -> None:
    raw = saved.read_bytes()
    saved.write_bytes(raw.replace(KEY.encode(), KEY.upper().encode()))
    with pytest.raises(FileFormatError, match=r"checksums but those of .*state\.safetensors are gone"):
        load(saved)


def test_hostile_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    deep = "[" * 50_000 + "]" * 50_000
    for structure in (
        deep,
        json.dumps({"format": 1, "root": {"$dict": [[[], 1]]}}),
        '{"format":1,"root":{"$tensor":[]}}',
    ):
        save_file({}, path, {"pyflame.structure": structure})
        with pytest.raises(FileFormatError, match="damaged"):
            load(path)
    for sums in ("[]", "{}", deep, '{"header": 0, "tensors": {"w": 1}}', '{"header": 0, "tensors": 3}'):
        safetensors.numpy.save_file({"w": np.ones(2)}, path, {KEY: sums})
        with pytest.raises(FileFormatError, match="its header does not have the checksum"):
            load(path)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(FileFormatError, match="damaged"):
        load(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileFormatError, match="is a pipe or a device"):
        load(path)


def test_a_state_that_holds_itself(tmp_path: Path) -> None:
    state: list[object] = []
    state.append(state)
    with pytest.raises(pf.ArgumentError, match="holds itself"):
        save(state, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    states = [{"x": pf.full((1 + 9 * n,), float(n))} for n in range(2)]
    save(states[0], path)
    done = threading.Event()

    def replace() -> None:
        for n in range(150):
            save(states[n % 2], path)
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        while not done.is_set():
            loaded = load(path)
            assert any(same(state, loaded) for state in states)
    finally:
        writer.join()
