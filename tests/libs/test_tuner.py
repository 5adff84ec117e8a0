"""The choice between implementations, on candidates that lie, raise, or are slow."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.core import knobs
from pyflame.core.errors import ArgumentError, DeviceFaultError, OutOfMemoryError
from pyflame.engine.libraries import tuner as module
from pyflame.engine.libraries.tuner import (
    Candidate,
    Choice,
    Key,
    Tuner,
    Verdict,
    compare,
    sample_positions,
    size_class,
    strides_class,
)

KEY = Key("matmul", "64x64x64", "float32", "rows rows", "cuda sm_90 132")
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((64, 64)).astype(np.float32), RNG.standard_normal((64, 64)).astype(np.float32)


def honest() -> Any:
    return A @ B


def liar() -> Any:
    out = A @ B
    out[3, 5] += 1.0  # one element of 4096
    return out


def failing() -> Any:
    raise RuntimeError("no kernel image")


class Machine:
    """Runs candidates, with times that are said beforehand, and counts what it was asked for."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.measured: list[str] = []
        self.checked: list[str] = []

    def measure(self, candidate: Candidate, best: float) -> float:
        candidate.run()
        self.measured.append(candidate.name)
        return self.seconds[candidate.name]

    def check(self, candidate: Candidate, ours: Candidate) -> Verdict:
        self.checked.append(candidate.name)
        return compare(candidate.run(), ours.run(), "float32", 64)


OURS = Candidate("ours", run=honest)


def library(name: str, run: Callable[[], Any] = honest, version: str = "1.0") -> Candidate:
    return Candidate(name, version, run)


def choose(tuner: Tuner, machine: Machine, *candidates: Candidate, key: Key = KEY) -> Choice:
    return tuner.choose([OURS, *candidates], key, machine.measure, machine.check)


def test_the_fastest_wins() -> None:
    machine = Machine(ours=3e-3, fast=1e-3, slow=5e-3)
    choice = choose(Tuner(None), machine, library("slow"), library("fast"))
    assert (choice.name, choice.measured) == ("fast", True)
    assert choice.seconds == machine.seconds
    assert choice.text == "fast: measured 1 ms; ours 3 ms; slow 5 ms"
    assert machine.checked == ["fast"]  # what is not chosen need not be right


def test_the_next_fastest_is_checked_where_the_fastest_is_wrong() -> None:
    machine = Machine(ours=3e-3, liar=1e-3, next=2e-3)
    with pytest.warns(RuntimeWarning, match="wrong"):
        choice = choose(Tuner(None), machine, library("liar", liar), library("next"))
    assert (choice.name, machine.checked) == ("next", ["liar", "next"])
    assert list(choice.seconds) == ["ours", "next"]


def test_proposals_of_a_library_are_refused_together() -> None:
    first, second = (Candidate(name, "1.0", run, "lib") for name, run in (("lib 0", liar), ("lib 1", honest)))
    machine = Machine(ours=3e-3, **{"lib 0": 1e-3, "lib 1": 2e-3})
    with pytest.warns(RuntimeWarning, match="wrong"):
        choice = choose(Tuner(None), machine, first, second)
    assert (choice.name, machine.checked, list(choice.refused)) == ("ours", ["lib 0"], ["lib 0", "lib 1"])


def test_a_slower_library_loses() -> None:
    choice = choose(Tuner(None), Machine(ours=1e-3, slow=2e-3), library("slow"))
    assert choice.name == "ours"
    # Nor does one that is as fast, within the noise of a measurement.
    assert choose(Tuner(None), Machine(ours=1e-3, same=0.99e-3), library("same")).name == "ours"


def test_a_library_that_lies_is_refused(tmp_path: Path) -> None:
    tuner, machine = Tuner(tmp_path / "tuning.json"), Machine(ours=3e-3, liar=1e-6)
    with pytest.warns(
        RuntimeWarning, match=r"liar 1\.0 gave a wrong result .*matmul 64x64x64 float32: error .* at 197"
    ):
        choice = choose(tuner, machine, library("liar", liar))
    assert choice.name == "ours"
    assert "liar refused: wrong for matmul 64x64x64" in choice.text
    assert machine.checked == ["liar"]
    # Other shapes of the op, another process: it is not asked again and nothing is said twice.
    for again in (tuner, Tuner(tmp_path / "tuning.json")):
        other = Machine(ours=3e-3, liar=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            choice = choose(again, other, library("liar", liar), key=Key("matmul", "8x8x8", *_rest(KEY)))
        assert (choice.name, other.checked) == ("ours", [])
        assert "wrong for matmul 64x64x64" in choice.refused["liar"]


def _rest(key: Key) -> tuple[str, str, str]:
    return key.dtypes, key.strides, key.device


def test_refusal_ends_with_version_dtype_op_and_device() -> None:
    tuner, machine = Tuner(None), Machine(ours=3e-3, lib=1e-3)
    with pytest.warns(RuntimeWarning, match="wrong"):
        choose(tuner, machine, library("lib", liar))
    others = [
        (library("lib", version="1.1"), KEY),
        (library("lib"), Key("matmul", "64x64x64", "float64", "rows rows", KEY.device)),
        (library("lib"), Key("conv", "64x64x64", "float32", "rows rows", KEY.device)),
        (library("lib"), Key("matmul", "64x64x64", "float32", "rows rows", "rocm gfx942 304")),
    ]
    for candidate, key in others:
        assert choose(tuner, machine, candidate, key=key).name == "lib"


def test_a_choice_made_before_the_refusal_ends_with_it() -> None:
    tuner, machine = Tuner(None), Machine(ours=3e-3, lib=1e-3)
    assert choose(tuner, machine, library("lib")).name == "lib"
    with pytest.warns(RuntimeWarning, match="wrong"):
        choose(tuner, machine, library("lib", liar), key=Key("matmul", "65x64x64", *_rest(KEY)))
    assert choose(tuner, machine, library("lib")).name == "ours"


def test_a_library_that_raises(tmp_path: Path) -> None:
    tuner, machine = Tuner(tmp_path / "tuning.json"), Machine(ours=3e-3, broken=1e-3, fast=2e-3)
    candidates = (library("broken", failing), library("fast"))
    with pytest.warns(RuntimeWarning, match=r"broken 1\.0 failed for matmul 64x64x64 float32: .*no kernel image"):
        choice = choose(tuner, machine, *candidates)
    assert choice.name == "fast"
    assert "broken refused: it raised RuntimeError: no kernel image" in choice.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose(tuner, machine, *candidates).name == "fast"
    # It may have been a bad moment: another process tries again, and finds it well.
    assert choose(Tuner(tmp_path / "tuning.json"), machine, library("broken"), library("fast")).name == "broken"


def test_a_library_that_raises_when_it_is_checked() -> None:
    calls = []

    def twice() -> Any:
        calls.append(0)
        return honest() if len(calls) == 1 else failing()

    with pytest.warns(RuntimeWarning, match="no kernel image"):
        choice = choose(Tuner(None), Machine(ours=3e-3, broken=1e-3), library("broken", twice))
    assert (choice.name, list(choice.seconds)) == ("ours", ["ours"])


@pytest.mark.parametrize("error", [DeviceFaultError("gone"), OutOfMemoryError("full")], ids=str)
def test_errors_that_no_choice_helps(error: Exception) -> None:
    def fault() -> Any:
        raise error

    with pytest.raises(type(error)):
        choose(Tuner(None), Machine(ours=1.0, lib=1.0), library("lib", fault))


def test_our_own_error_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no kernel image"):
        Tuner(None).choose(
            [Candidate("ours", run=failing), library("lib")],
            KEY,
            Machine(ours=1.0, lib=1.0).measure,
            lambda c, o: Verdict(0.0, 0.0),
        )


def test_measured_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tuning.json"
    first, second = Machine(ours=3e-3, lib=1e-3), Machine(ours=3e-3, lib=1e-3)
    tuner = Tuner(path)
    assert choose(tuner, first, library("lib")).measured
    assert not choose(tuner, first, library("lib")).measured
    assert first.measured == ["ours", "lib"]
    known = choose(Tuner(path), second, library("lib"))
    assert (known.name, known.measured, second.measured, second.checked) == ("lib", False, [], [])
    assert known.text == "lib: measured 1 ms; ours 3 ms"
    # Another version of a library, another library beside it, other strides: another measurement.
    for candidates, key in (
        ([library("lib", version="2.0")], KEY),
        ([library("lib"), library("lib2")], KEY),
        ([library("lib")], Key("matmul", "64x64x64", "float32", "columns rows", KEY.device)),
    ):
        assert choose(Tuner(path), Machine(ours=3e-3, lib=1e-3, lib2=2e-3), *candidates, key=key).measured
    content = json.loads(path.read_text())
    assert content["form"] == module.FORM
    assert len(content["entries"]) == 4


def test_nothing_to_measure_without_libraries() -> None:
    machine = Machine()
    choice = choose(Tuner(None), machine)
    assert (choice.name, machine.measured, choice.text) == ("ours", [], "ours: the only one")


def test_needs_our_own() -> None:
    for candidates in ([library("lib")], [OURS, Candidate("also ours")]):
        with pytest.raises(ArgumentError, match="exactly one kernel of ours"):
            Tuner(None).choose(candidates, KEY, lambda c, best: 1.0, lambda c, o: Verdict(0.0, 0.0))


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"form": "PyFlame tuning 2", "entries": 1}', "\udcff"])
def test_damaged_file_is_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.warns(UserWarning, match=r"tuning\.json .*it is ignored"):
        assert choose(Tuner(path), Machine(ours=3e-3, lib=1e-3), library("lib")).measured
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not choose(Tuner(path), Machine(), library("lib")).measured


def test_another_format_is_left_alone_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text('{"form": "PyFlame tuning 99", "entries": {"a": 1}}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose(Tuner(path), Machine(ours=3e-3, lib=1e-3), library("lib")).measured


@pytest.mark.parametrize("entry", [None, 3, {}, {"winner": "gone", "seconds": {}, "refused": {}}, {"winner": "lib"}])
def test_altered_entry_is_measured_again(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "tuning.json"
    choose(Tuner(path), Machine(ours=3e-3, lib=1e-3), library("lib"))
    content = json.loads(path.read_text())
    content["entries"] = dict.fromkeys(content["entries"], entry)
    path.write_text(json.dumps(content))
    assert choose(Tuner(path), Machine(ours=3e-3, lib=1e-3), library("lib")).measured


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tuner = Tuner(tmp_path / "file" / "tuning.json")
    with pytest.warns(UserWarning, match="cannot be"):
        assert choose(tuner, Machine(ours=3e-3, lib=1e-3), library("lib")).measured
    assert not choose(tuner, Machine(), library("lib")).measured  # kept in memory


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    one, two = Tuner(path), Tuner(path)
    keys = [Key("matmul", str(i), *_rest(KEY)) for i in range(6)]
    for i, key in enumerate(keys):
        choose((one, two)[i % 2], Machine(ours=3e-3, lib=1e-3), library("lib"), key=key)
    assert not any(choose(Tuner(path), Machine(), library("lib"), key=key).measured for key in keys)


def test_threads_measure_once() -> None:
    tuner, machine = Tuner(None), Machine(ours=3e-3, lib=1e-3)
    names: list[str] = []
    threads = [
        threading.Thread(target=lambda: names.append(choose(tuner, machine, library("lib")).name)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == ["lib"] * 8
    assert machine.measured == ["ours", "lib"]


def test_clear(tmp_path: Path) -> None:
    tuner = Tuner(tmp_path / "tuning.json")
    choose(tuner, Machine(ours=3e-3, lib=1e-3), library("lib"))
    tuner.clear()
    assert choose(tuner, Machine(ours=3e-3, lib=1e-3), library("lib")).measured


def test_the_machines_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_shared", [])
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path))
    assert module.tuner() is module.tuner()
    choose(module.tuner(), Machine(ours=3e-3, lib=1e-3), library("lib"))
    assert (tmp_path / "tuning.json").exists()


# --- what keys and checks are made of ---------------------------------------------------------------------------------


def test_size_class() -> None:
    assert [size_class(n) for n in (1, 63, 64, 65, 96, 97)] == ["1", "63", "64", "80/1", "96/16", "112/1"]
    assert size_class(8192) == "8192/16"
    assert size_class(8191) == "8192/1" != size_class(8184) == "8192/8"
    assert len({size_class(n) for n in range(1, 1 << 14)}) < 300


def test_strides_class() -> None:
    assert strides_class((4, 8), (8, 1)) == "rows"
    assert strides_class((4, 8), (1, 4)) == "columns"
    assert strides_class((4, 8), (9, 1)) == "rows apart"
    assert strides_class((4, 8), (1, 5)) == "columns apart"
    assert strides_class((4, 8), (0, 1)) == "repeated"
    assert strides_class((4, 8), (16, 2)) == "apart"
    assert strides_class((2, 4, 8), (32, 8, 1)) == "rows"
    assert strides_class((1, 1), (7, 3)) == "rows"
    assert strides_class((), ()) == "rows"


def test_sample_positions() -> None:
    assert sample_positions(7).tolist() == list(range(7))
    for size in (4097, 8192 * 8192, (1 << 33) + 1):
        positions = sample_positions(size)
        assert len(positions) > 3000
        assert (positions[0], positions[-1]) == (0, size - 1)
        assert len(set(positions % 128)) == 128  # every column of a tile
        assert len(set(positions * 64 // size)) == 64  # every part of the result


def test_compare() -> None:
    left, right = RNG.standard_normal((200, 1024)), RNG.standard_normal((1024, 50))
    want = left @ right
    for dtype, low in (("float32", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        a, b = left.astype(low), right.astype(low)
        once = (a.astype(np.float32) @ b.astype(np.float32)).astype(low)
        # Sums in another order.
        again = (a.astype(np.float32)[:, ::-1] @ b.astype(np.float32)[::-1]).astype(low)
        assert compare(again, once, dtype, 1024).right
        wrong = once.copy()
        wrong[17, 3] *= 1.25
        verdict = compare(wrong, once, dtype, 1024)
        assert not verdict.right and f"at {17 * 50 + 3}:" in verdict.where
        assert not compare(np.zeros_like(once), once, dtype, 1024).right
    rounded = left.astype(np.float32).view(np.uint32) & 0xFFFFE000
    tf32 = rounded.view(np.float32).astype(np.float64) @ right
    assert compare(tf32, want, "tf32", 1024).right
    assert not compare(tf32, want, "float32", 1024).right


def test_compare_special_values() -> None:
    want = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    assert compare(want.copy(), want, "float32").right
    for i, bad in ((0, np.nan), (1, 0.0), (2, -np.inf), (3, 1.0), (0, np.inf)):
        got = want.copy()
        got[i] = bad
        assert not compare(got, want, "float32").right
    assert compare(np.zeros(3), np.zeros(3), "float64").right
    assert compare(np.zeros(0), np.zeros(0), "float64").right
    assert compare(np.array([1, 2]), np.array([1, 2]), "int32").right
    assert not compare(np.array([1, 3]), np.array([1, 2]), "int32").right
    assert not Verdict(float("nan"), 1.0).right
