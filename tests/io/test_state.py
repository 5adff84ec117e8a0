"""Nested states in one file."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import FileFormatError
from pyflame.io import file_info, load, load_file, save, save_file


def same(a: object, b: object) -> bool:
    """Equal in value, type and order."""
    if isinstance(a, (pf.Tensor, np.ndarray)):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def test_structures_come_back(tmp_path):
    state = {
        "model": {"0.weight": pf.randn(2, 3), "0.bias": pf.zeros(3, dtype=pf.bfloat16)},
        "optimizer": {"state": {0: {"step": pf.tensor(3.0)}, 1: {}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]},
        "numbers": [1, -(2**70), 1.5, 0.1 + 0.2, math.inf, -math.inf, math.nan, True, None, "text é"],
        "empty": {},
        "tuple": ((), [], ({},)),
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "$odd": {"$tensor": "not one"},
    }
    save(state, tmp_path / "s.safetensors")
    for mapped in (True, False):
        assert same(state, load(tmp_path / "s.safetensors", memory_map=mapped))


@pytest.mark.parametrize("state", [3, None, [1, (2,)], {}], ids=repr)
def test_a_state_without_tensors(tmp_path, state):
    save(state, tmp_path / "s.safetensors")
    assert same(state, load(tmp_path / "s.safetensors"))


def test_names_are_paths_that_other_readers_find(tmp_path):
    save({"model": [{"weight": pf.ones(2)}], "x": pf.zeros(1)}, tmp_path / "s.safetensors")
    assert set(load_file(tmp_path / "s.safetensors")) == {"model.0.weight", "x"}


def test_paths_that_collide_are_kept_apart(tmp_path):
    state = {"a": {"b": pf.tensor([1.0])}, "a.b": pf.tensor([2.0])}
    save(state, tmp_path / "s.safetensors")
    assert same(state, load(tmp_path / "s.safetensors"))


def test_a_shared_tensor_is_stored_once(tmp_path):
    tied = pf.randn(4)
    save({"a": tied, "b": tied, "c": tied + 0}, tmp_path / "s.safetensors")
    assert len(file_info(tmp_path / "s.safetensors").tensors) == 2
    loaded = load(tmp_path / "s.safetensors")
    assert loaded["a"] is loaded["b"] and loaded["a"] is not loaded["c"]


def test_numpy_scalars_become_numbers(tmp_path):
    save({"x": np.float64(0.1), "n": np.int32(4)}, tmp_path / "s.safetensors")
    assert same(load(tmp_path / "s.safetensors"), {"x": 0.1, "n": 4})


def test_a_file_of_another_program_gives_its_tensors(tmp_path):
    save_file({"w": pf.ones(2)}, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors")["w"].tolist() == [1.0, 1.0]


def test_what_cannot_be_saved_is_named_with_its_place(tmp_path):
    with pytest.raises(pf.PyFlameError, match=r"\[save\] expected tensors.* but a\.1\.b is of type set"):
        save({"a": [0, {"b": {1, 2}}]}, tmp_path / "s.safetensors")
    with pytest.raises(pf.PyFlameError, match=r"keys that are text or whole numbers but a has 1\.5"):
        save({"a": {1.5: 0}}, tmp_path / "s.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("structure", "reason"),
    [
        ("{", "is damaged"),
        (json.dumps({"format": 99, "root": 0}), "has format 99"),
        (json.dumps({"format": 1}), "is damaged"),
        (json.dumps({"format": 1, "root": {"$tensor": "absent"}}), "is damaged"),
        (json.dumps({"format": 1, "root": {"$pickle": "evil"}}), "is damaged"),
        ("[]", "is damaged"),
    ],
)
def test_a_bad_structure_is_refused_by_name(tmp_path, structure, reason):
    save_file({"w": pf.ones(2)}, tmp_path / "bad.safetensors", {"pyflame.structure": structure})
    with pytest.raises(FileFormatError, match=rf"bad\.safetensors.* {reason}|bad\.safetensors {reason}"):
        load(tmp_path / "bad.safetensors")


def test_equal_states_are_equal_files(tmp_path):
    for number in range(3):
        save_file({"b": pf.ones(2), "a": pf.zeros(3, dtype=pf.float64)}, tmp_path / f"{number}", {"x": "1", "y": "2"})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
