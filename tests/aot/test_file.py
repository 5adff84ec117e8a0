"""Plans in files: round trips, and that damage of any kind is refused by name."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.transform.aot import AotPlan, BufferArg
from pyflame.transform.aot_file import VERSION
from tests.io.test_damage import mutations


@pytest.fixture(scope="module")
def plan() -> AotPlan:
    weight = pf.tensor(np.arange(64, dtype=np.float32)).cast(pf.bfloat16)
    index = pf.tensor(np.array([3, 1]))
    return pf.aot.compile(
        lambda x, s: {"a": pf.softmax(x * s + weight), "b": [pf.embedding(x, index), (x.sum(), None)]},
        pf.ones(8, 64),
        0.25,
        target="gfx1100",
    )


@pytest.fixture
def saved(plan: AotPlan, tmp_path: Path) -> Path:
    path = tmp_path / "plan.pfaot"
    plan.save(path)
    return path


@pytest.mark.slow
def test_round_trip(plan: AotPlan, saved: Path) -> None:
    loaded = pf.aot.load(saved)
    assert loaded == plan
    assert str(loaded.report) == str(plan.report)
    # A code object that several launches share is one object again.
    assert len({id(x.code_object) for x in loaded.launches}) == len({x.code_object for x in plan.launches})


def test_code_objects_are_written_once(plan: AotPlan, saved: Path) -> None:
    distinct = sum(map(len, {x.code_object for x in plan.launches}))
    assert len(plan.launches) > 1
    assert saved.stat().st_size < distinct + 20_000


def test_layout_is_as_documented(plan: AotPlan, saved: Path) -> None:
    raw = saved.read_bytes()
    magic, version, length = struct.unpack_from("<8sII", raw)
    assert (magic, version) == (b"PYFLMAOT", VERSION)
    header = json.loads(raw[16 : 16 + length])
    start, size = header["launches"][0]["code_object"]
    assert start % 64 == 0
    blobs = raw[16 + length : -32]
    assert blobs[start : start + size] == plan.launches[0].code_object
    assert hashlib.sha256(raw[:-32]).digest() == raw[-32:]


def test_every_kind_of_damage_is_refused(saved: Path) -> None:
    raw = saved.read_bytes()
    for at in (9, 20, len(raw) // 2, len(raw) - 40, len(raw) - 1):
        damaged = bytearray(raw)
        damaged[at] ^= 0x40
        saved.write_bytes(damaged)
        with pytest.raises(pf.FileFormatError, match=r"plan\.pfaot"):
            pf.aot.load(saved)
    for damaged in mutations(raw, 100, seed=3):
        saved.write_bytes(damaged)
        with pytest.raises(pf.FileFormatError, match=r"plan\.pfaot"):
            pf.aot.load(saved)
    for length in (0, 7, 12, 40, len(raw) // 2, len(raw) - 1):
        saved.write_bytes(raw[:length])
        with pytest.raises(pf.FileFormatError, match=r"plan\.pfaot"):
            pf.aot.load(saved)
    saved.write_bytes(raw + b"\0")
    with pytest.raises(pf.FileFormatError, match="checksum"):
        pf.aot.load(saved)


def test_other_formats_are_named(saved: Path) -> None:
    raw = saved.read_bytes()
    saved.write_bytes(b"something else entirely" * 10)
    with pytest.raises(pf.FileFormatError, match=r"expected a file of pf\.aot but .*plan\.pfaot is none"):
        pf.aot.load(saved)
    body = raw[:8] + struct.pack("<I", VERSION + 1) + raw[12:-32]
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match=f"has format {VERSION + 1}; compile the function again"):
        pf.aot.load(saved)


@pytest.mark.parametrize("header", ["{}", "[1]", "not JSON", '{"buffers": [], "launches": [{"name": 1}]}'])
def test_whole_but_meaningless(header: str, saved: Path) -> None:
    body = struct.pack("<8sII", b"PYFLMAOT", VERSION, len(header)) + header.encode()
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match=r"plan\.pfaot has a checksum but no plan"):
        pf.aot.load(saved)


def test_bytes_outside_of_the_file(saved: Path) -> None:
    raw = saved.read_bytes()
    _, _, length = struct.unpack_from("<8sII", raw)
    header = json.loads(raw[16 : 16 + length])
    header["launches"][0]["code_object"] = [0, len(raw)]
    text = json.dumps(header).encode()
    body = struct.pack("<8sII", b"PYFLMAOT", VERSION, len(text)) + text + raw[16 + length : -32]
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match="lie outside of the file"):
        pf.aot.load(saved)


def _changed(value: Any, chance: random.Random) -> Any:
    """The same JSON with one value, somewhere in it, that is another."""
    if isinstance(value, (dict, list)) and value and chance.random() < 0.9:
        value = copy.copy(value)
        key = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        if chance.random() < 0.05:
            del value[key]
        else:
            value[key] = _changed(value[key], chance)
        return value
    return chance.choice([None, -1, 0, 3, 1 << 70, 1.5, True, "x", [], {}, ["leaf"], [1, 2], {"a": 1}])


def test_changed_headers_are_refused_or_fit_together(saved: Path) -> None:
    """As somebody would change a file on purpose, with a checksum that is right."""
    raw, chance = saved.read_bytes(), random.Random(4)
    _, _, length = struct.unpack_from("<8sII", raw)
    header = json.loads(raw[16 : 16 + length])
    refused = 0
    for _ in range(400):
        text = json.dumps(_changed(header, chance)).encode()
        body = struct.pack("<8sII", b"PYFLMAOT", VERSION, len(text)) + text + raw[16 + length : -32]
        saved.write_bytes(body + hashlib.sha256(body).digest())
        try:
            loaded = pf.aot.load(saved)
        except pf.FileFormatError:
            refused += 1
        else:
            addresses = [a for launch in loaded.launches for a in launch.args if isinstance(a, BufferArg)]
            assert all(0 <= a.offset <= loaded.buffers[a.buffer].nbytes for a in addresses)
            assert all(b.data is None or len(b.data) == b.nbytes for b in loaded.buffers)
    assert refused > 200


def test_a_failed_write_leaves_the_old_file(plan: AotPlan, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("pyflame.core.atomic.os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        plan.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
