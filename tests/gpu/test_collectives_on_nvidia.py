"""Collectives of tensors on a real NVIDIA GPU: NCCL with the one process that a GPU may have there, gloo with two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.processes import run_checks
from tests.gpu.nvidia import absent

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)


def test_nccl_takes_and_gives_memory_of_the_gpu(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.gpu.nccl_alone", str(tmp_path / "store")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("modules", [("data_parallel", "jitted"), ("sharded", "model_parallel")])
def test_two_processes_on_one_gpu_train_as_one(modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_DEVICE", "cuda")
    run_checks(2, *modules)
