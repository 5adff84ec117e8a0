"""torchrun: a rank that is killed or raises ends the others, and a restart goes on from the last checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame import optim
from tests.distributed.processes import LIMIT
from tests.needs import needs_torch


def _torchrun(*args: str) -> tuple[int, str]:
    """The exit code and output. What torchrun starts, it also ends; SIGTERM makes it do so."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *args]
    env = {**os.environ, "PYFLAME_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            raise
    return process.returncode, output


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("restarts", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_job_whose_rank_dies_ends_with_the_weights_of_one_process(tmp_path: Path, restarts: int) -> None:
    from tests.distributed.data_parallel import _model, alone

    code, output = _torchrun("--max-restarts", "2", "-m", "tests.distributed.restarted", str(tmp_path), str(restarts))
    assert code == 0, output
    starts = range(restarts + 1)  # each goes one step further
    assert all(f"start {start} rank {rank} at step {start}" in output for start in starts for rank in (0, 1)), output
    assert "CollectiveError: [broadcast] expected all processes of the group to take part but rank 0 got" in output
    assert ("ValueError: a mistake on rank 1" in output) == (restarts == 2)
    model = _model(9)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    assert pf.distributed.load_checkpoint(tmp_path / "run.safetensors", model, optimizer) == {"step": 4}
    for got, want in zip(model.parameters(), alone()[1], strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=2e-3, atol=2e-5)
