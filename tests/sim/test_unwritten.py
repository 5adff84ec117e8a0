"""Plans read no memory that nothing has written, not even to copy it. With bounds of its own for each tensor the
simulator sees every byte."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import pyflame as pf

def second(device):
    with pf.device(device):
        x = pf.tensor([0.3, -1.0, 0.5], requires_grad=True)
        y = pf.logcumsumexp(x, dim=-1)
        (g,) = pf.autograd.grad((y * y).sum(), [x], create_graph=True)
        (h,) = pf.autograd.grad((g * g).sum(), [x])
        return h.numpy()

assert abs(second(sys.argv[1]) - second("cpu")).max() < 1e-4
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
def test_copies_of_partly_written_buffers(device: str) -> None:
    """Gradients put together from parts, of which somebody else reads one before all are there."""
    environment = {**os.environ, "PYFLAME_MEMORY_POOL": "exact"}
    command = [sys.executable, "-c", PROGRAM, device]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
