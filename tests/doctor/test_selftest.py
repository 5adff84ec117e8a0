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
from pyflame.doctor.selftest import all_cases, families, selftest
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
