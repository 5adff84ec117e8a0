"""`pyflame selftest`: it covers every family, finds a wrong op, and outlives a case that aborts or hangs."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.device import CPU
from pyflame.core.errors import ArgumentError
from pyflame.doctor.closeness import allowed, gap
from pyflame.doctor.selftest import Outcome, all_cases, families, selftest
from pyflame.doctor.selftest import worker as workers
from pyflame.doctor.selftest.bench import Bench, Case, Result, run_case
from pyflame.doctor.selftest.cases import find_case, rounds
from pyflame.doctor.selftest.op_cases import family_of
from pyflame.doctor.selftest.worker import Worker
from pyflame.ir import OPS
from tests.doctor.texts import forget_texts


@pytest.fixture
def wrong_exp(monkeypatch: pytest.MonkeyPatch):
    """Kernels whose exp is off by a thousandth."""
    forget_texts()
    monkeypatch.setattr(OPS["exp"], "c", f"(({OPS['exp'].c}) * ({{T}})1.001)")
    yield
    monkeypatch.undo()
    forget_texts()


def test_every_op_is_a_case_of_its_family() -> None:
    names = {f"{family_of(op)}/{op.name}" for op in OPS.values() if op.samples is not None}
    assert names <= set(all_cases())
    for dtype in ("float16", "bfloat16", "float64"):
        assert {f"{dtype}/{name.partition('/')[2]}" for name in names} <= set(all_cases())


@pytest.mark.slow(16)
def test_a_simulated_gpu_in_no_time_is_touched_by_every_family() -> None:
    found = selftest("sim:gfx1100", 0, isolate=False)
    assert {r.family for r in found.results} == set(families())
    assert found.failures == []
    assert found.unreached == len(all_cases()) - len(families())


def test_a_wrong_op_is_found_and_named(wrong_exp: None) -> None:
    found = selftest("cpu", case="unary/exp", isolate=False)
    assert found.failed == 1
    assert "ulp), allowed" in found.failures[0].failures[0]
    report = found.report()
    assert "FAILED unary/exp" in report
    assert "pyflame selftest --device cpu --seed 0 --case unary/exp" in report
    assert find_case("unary/log") and selftest("cpu", case="unary/log", isolate=False).failed == 0


@pytest.mark.parametrize("name", ["copies", "memory", "random numbers", "graphs", "integers"])
def test_the_cpu_passes(name: str) -> None:
    cases = list(itertools.islice(itertools.chain(*rounds([name], 3)), 5))
    results = [run_case(case, CPU) for case in cases]
    assert [r for r in results if r.failures] == []
    assert sum(r.checks for r in results) > len(cases)


def test_zeta_has_a_pole_at_one() -> None:
    assert run_case(find_case("integers/zeta"), CPU).passed  # its reference divided by zero


def test_the_seed_orders_the_cases() -> None:
    def order(seed: int) -> list[str]:
        return [case.id for turn in rounds(["unary", "binary"], seed) for case in turn]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    assert [case.family for case in next(iter(rounds(families(), 0)))] == families()


def test_an_error_in_a_case_is_a_failure_of_it() -> None:
    def run(bench: Bench) -> None:
        raise RuntimeError("the driver said no")

    found = run_case(Case("copies", "odd", run), CPU)
    assert not found.passed and "RuntimeError: the driver said no" in found.failures[0]


def test_a_fault_of_the_device_leaves_it_usable() -> None:
    def run(bench: Bench) -> None:
        raise pf.DeviceFaultError("an illegal address")

    device = pf.device("sim:gfx1100").id
    assert run_case(Case("copies", "odd", run), device).fault
    assert run_case(find_case("copies/bytes"), device).passed


@pytest.mark.slow
def test_a_child_runs_cases_and_a_crash_or_hang_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case = find_case("copies/bytes")
    with Worker("cpu") as worker:
        assert worker.run(case).passed
        real = worker._command
        worker._end()
        worker._command = [sys.executable, "-c", _ABORTS]
        crashed = worker.run(case)
        assert crashed.fault and "signal SIGABRT: the last words" in crashed.failures[0]
        worker._command, worker._limit = [sys.executable, "-c", "import time; time.sleep(60)"], 0.5
        assert "had not ended" in worker.run(case).failures[0]
        worker._command, worker._limit = real, workers.LIMIT
        assert worker.run(case).passed


_ABORTS = "import os, sys; sys.stdin.readline(); print('the last words', file=sys.stderr, flush=True); os.abort()"


# A child that answers every case, but for those that its arguments name: "aborts" ends it, "hangs" keeps it silent,
# "once" aborts the first time that any child gets the case, "broken" also whatever comes after it.
_CHILD = """
import json, os, sys, time
folder, odd = sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])
def first(name):
    try:
        return os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return 0
for line in sys.stdin:
    family, name = line.strip().split("/")
    do = odd.get(line.strip(), "")
    if do == "hangs":
        time.sleep(60)
    if do == "aborts" or (do == "once" and first("once")) or do == "broken" or os.path.exists(f"{folder}/broken"):
        if do == "broken":
            first("broken")
        os.abort()
    time.sleep(0.01)
    print(json.dumps({"family": family, "name": name, "checks": os.getpid()}), flush=True)
"""


def _tried(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int, *odd: str) -> Outcome:
    """A self-test of three small families by so many children, in which some cases are odd."""

    class Odd(Worker):
        def __init__(self, device: str, seed: int = 0) -> None:
            super().__init__(device, seed, limit=2.0)
            self._command = [sys.executable, "-c", _CHILD, str(folder), *odd]

    monkeypatch.setattr("pyflame.doctor.selftest.Worker", Odd)
    monkeypatch.setattr("pyflame.doctor.selftest.workers_for", lambda device: count)
    return selftest("cpu", 60, only=["copies", "memory", "encoded linear"])


@pytest.mark.parametrize("count", [1, 3])
def test_cases_that_crash_and_hang_are_named_and_all_others_run(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _tried(
        monkeypatch, tmp_path, count, "copies/views=aborts", "memory/reuse=hangs", "encoded linear/q4_1=once"
    )
    failures = {f"{r.family}/{r.name}": r.failures[0] for r in found.failures}
    lost = {"copies/views", "memory/reuse"} | ({"encoded linear/q4_1"} if count == 1 else set())
    assert set(failures) == lost and "SIGABRT" in failures["copies/views"]
    assert "had not ended" in failures["memory/reuse"]
    assert sorted(f"{r.family}/{r.name}" for r in found.results) == sorted(
        case.id for case in all_cases().values() if case.family in ("copies", "memory", "encoded linear")
    )
    if count > 1:  # a case that is lost beside others only may be their victim
        assert "only beside other cases: its process ended with signal SIGABRT" in found.report()
    assert found.unreached == 0 and found.broken == ""


def test_a_child_is_used_again_until_it_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({r.checks for r in _tried(monkeypatch, tmp_path, 1).results}) == 1
    assert len({r.checks for r in _tried(monkeypatch, tmp_path, 3).results}) == 3


@pytest.mark.parametrize("count", [1, 3])
def test_a_device_that_stays_broken_is_told(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _tried(monkeypatch, tmp_path, count, "memory/counts=broken")
    assert found.broken.startswith("the device does not even copy any more since ")
    assert found.unreached > 0 and found.failed > 0
    assert found.broken in found.summary() and found.to_json()["broken"] == found.broken


def test_command_exits_with_1_and_writes_json(
    wrong_exp: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class InThisProcess(Worker):
        def run(self, case: Case) -> Result:
            return run_case(case, CPU)

    monkeypatch.setattr("pyflame.doctor.selftest.Worker", InThisProcess)
    file = tmp_path / "found.json"
    assert main(["selftest", "--device", "cpu", "--case", "unary/exp", "--json", str(file)]) == 1
    shown, found = capsys.readouterr().out, json.loads(file.read_text())
    assert "FAILED unary/exp" in shown and "python" in shown
    assert found["failed"] == 1 and found["results"][0]["repeat"].endswith("--case unary/exp")
    assert found["machine"]["device type"] == "cpu"
    assert main(["selftest", "--device", "cpu", "--case", "copies/bytes"]) == 0
    assert main(["selftest", "--family", "reductions"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_what_it_refuses() -> None:
    with pytest.raises(ArgumentError, match="only plans"):
        selftest("null")
    with pytest.raises(pf.NotAvailableError):
        selftest("rocm:63")
    with pytest.raises(ArgumentError, match="expected a case"):
        selftest("cpu", case="unary/expp")


def test_closeness_scales_with_dtype_and_terms() -> None:
    assert allowed(pf.float32, 4) < allowed(pf.float32, 400) < allowed(pf.bfloat16, 400) < 0.1
    ones = np.ones(4, np.float32)
    assert gap(ones, ones, pf.float32).error == 0
    assert gap(ones * np.float32(1 + 2**-20), ones, pf.float32).ulp == pytest.approx(4)
    assert "NaN" in gap(np.float32([1, np.nan]), ones[:2], pf.float32).words
    assert "infinity" in gap(np.float32([1, np.inf]), np.float32([1, -np.inf]), pf.float32).words
    assert gap(np.float16([np.inf]), np.float64([1e6]), pf.float16).error == 0  # more than it can hold
    assert gap(np.int64([1, 2]), np.int64([1, 3]), pf.int64).words == "1 of 2 differ"
