"""tools/gpu_tests.py and what tests/gpu/conftest.py does about a context that has ended, with no GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.gpu_tests import ROOT, main, part

CONFTEST = """
from tests.gpu import nvidia
from tests.gpu.conftest import *

nvidia.ended = lambda: "CUDA_ERROR_MISALIGNED_ADDRESS"
"""
FAULTS = """
def test_before(): pass
def test_faults(): raise RuntimeError("misaligned")
def test_after(): raise SystemError("the same words again")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def test_a_fault_ends_its_own_process(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_faulting.py").write_text(FAULTS)
    (folder / "test_fine.py").write_text("def test_fine(): pass\ndef test_other(): pass\n")
    assert main([str(folder), "--logs", str(folder / "logs"), "-k", "not other"]) == 1
    told = capfd.readouterr().out
    assert re.search(r"has ended, CUDA_ERROR_MISALIGNED_ADDRESS in \S*test_faulting.py::test_faults", told), told
    assert "the same words again" not in told
    faulting, fine = told.splitlines()[-2:]
    assert faulting.startswith("FAILED") and "1 failed, 1 passed, 1 error" in faulting
    assert fine.startswith("ok") and "1 passed, 1 deselected" in fine
    assert "misaligned" in (folder / "logs" / "test_faulting.1-of-1.log").read_text()


def test_parts_and_the_limit_of_time(folder: Path) -> None:
    file = folder / "test_many.py"
    file.write_text("def test_one(): assert False\ndef test_two(): pass\ndef test_three(): assert False\n")
    assert part(file, "2/2", [], folder / "log", "", 100.0)[0] == 0
    status, line = part(file, "1/2", [], folder / "log", "", 0.01)
    assert status == -1 and line.endswith("test_many 1/2: ended after 0 s")
