"""The GPU benchmark, tried on the CPU with tiny sizes: it runs, and reports what fails instead of ending there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.harness import Bench, Line, compare
from benchmarks.rocm_benchmark import translated
from tests.needs import needs_torch


@pytest.fixture(autouse=True)
def same_precision() -> Iterator[None]:
    """Benchmarks set the precision of float32 products, for all that comes after them."""
    before = pf.get_float32_matmul_precision()
    yield
    Bench("cpu").set_precision(before)


@pytest.fixture
def bench() -> Bench:
    return Bench("cpu", small=True, rounds=1, iterations=2, warmup=1, limit=100e9)


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(
    "names",
    [
        ("long", "matmul"),
        pytest.param(("own", "conv", "unet"), marks=pytest.mark.thorough),  # minutes, where torch has no fast bfloat16
    ],
    ids=["products", "networks"],
)
def test_it_runs(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS"):
        monkeypatch.setenv(variable, "")  # so that what it sets is forgotten
        monkeypatch.delenv(variable)
    out = tmp_path / "out.json"
    options = ["--device", "cpu", "--small", "--rounds", "1", "--iterations", "1", "--warmup", "1", "--json", str(out)]
    assert main([*names, *options, "--skip", "torch.compile,jax"]) == 0
    found = json.loads(out.read_text())
    assert found["conditions"]["device"] == "cpu"
    assert set(found["results"]) == {"copy", *names}
    lines = [line for section in found["results"].values() for line in section]
    assert all(not line["failed"] and line["ours"] and "torch" in line["rates"] for line in lines)
    said = capsys.readouterr().out
    assert all(name in said for name in names)
    assert "x torch" in said


@pytest.mark.slow
def test_what_fails_is_reported_and_the_rest_goes_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> dict[str, object]:
        raise ValueError("no such\nthing")

    one = pf.ones(3)
    wrong = np.array([1.0, 1.0, 7.0])
    groups = {
        "pyflame": lambda: {"pyflame": lambda: one},
        "torch": broken,
        "peer": lambda: {"peer": lambda: np.ones(3), "other": lambda: wrong},
    }
    seconds, failed = bench.measure(groups, 1e-3)
    assert seconds.keys() == {"pyflame", "peer"}
    assert failed["torch"] == "ValueError: no such"
    assert "differs from that of peer by 6" in failed["other"]
    bench.add("some", Line("work", 1e9, "GB/s", seconds, failed=failed, goals={"torch": 1.0}))
    bench.show("some")
    said = capsys.readouterr()
    assert "torch not measured of 1.00" in said.out
    assert "FAILED work, torch: ValueError" in said.err


def test_ratios(bench: Bench) -> None:
    seconds = {"pyflame": 0.5, "pyflame jit": 0.02, "torch": 0.03}
    line = Line("work", 1e9, "GB/s", seconds, goals={"copy": 0.9, "torch": 1.5})
    assert line.who == "pyflame jit"
    assert line.against("copy", bench.limit) == pytest.approx(0.5)
    assert line.against("torch", bench.limit) == pytest.approx(1.5)
    assert line.verdict(bench.limit) == "copy 0.50 of 0.90 SHORT, torch 1.50 of 1.50"


def test_results_that_are_no_numbers() -> None:
    assert compare({"pyflame": np.array([np.nan])}, np.inf) == {"pyflame": "the result is not finite"}
    assert "another size" in compare({"torch": np.ones(2), "pyflame": np.ones(3)}, 0.1)["pyflame"]


def test_names_of_the_guide() -> None:
    assert translated(["--all"]) == ["--device", "rocm:0"]
    given = ["--matmul", "--conv", "--iterations", "200", "--warmup", "20"]
    assert translated(given) == ["matmul", "conv", "--device", "rocm:0", "--iterations", "200", "--warmup", "20"]


def test_no_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf, "devices", lambda: ["cpu"])
    assert main([]) == 1
    assert "no GPU was found" in capsys.readouterr().out
    assert main(["nothing"]) == 2
