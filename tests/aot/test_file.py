"""Plans in files: round trips, and that damage of any kind is refused by name."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.transform.aot import AotPlan


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
    assert (magic, version) == (b"PYFLMAOT", 1)
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
    body = raw[:8] + struct.pack("<I", 2) + raw[12:-32]
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match="has format 2; compile the function again"):
        pf.aot.load(saved)


@pytest.mark.parametrize("header", ["{}", "[1]", "not JSON", '{"buffers": [], "launches": [{"name": 1}]}'])
def test_whole_but_meaningless(header: str, saved: Path) -> None:
    body = struct.pack("<8sII", b"PYFLMAOT", 1, len(header)) + header.encode()
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match=r"plan\.pfaot has a checksum but no plan"):
        pf.aot.load(saved)


def test_bytes_outside_of_the_file(saved: Path) -> None:
    raw = saved.read_bytes()
    _, _, length = struct.unpack_from("<8sII", raw)
    header = json.loads(raw[16 : 16 + length])
    header["launches"][0]["code_object"] = [0, len(raw)]
    text = json.dumps(header).encode()
    body = struct.pack("<8sII", b"PYFLMAOT", 1, len(text)) + text + raw[16 + length : -32]
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(pf.FileFormatError, match="lie outside of the file"):
        pf.aot.load(saved)


def test_a_failed_write_leaves_the_old_file(plan: AotPlan, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("pyflame.core.atomic.os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        plan.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
