"""Functions that kernels compute with a GPU's own instructions: how exact they are on the simulated ones, built by the
newest clang and by an older one, such as ROCm 6 and 7 bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyflame.core import knobs
from tests.gpu.function_errors import FUNCTIONS, check, check_remainders
from tests.needs import need

OLDER = "clang-19"
# Ops that a compiler may lower in its own way: divisions, roots, rounding, conversions, comparisons, sums over lanes.
LOWERED = (
    "fmod or remainder or floor_divide or div or sqrt or rsqrt or round or trunc or pow or frexp or ldexp or softmax "
    "or cumsum or argmax or matmul or float_power or atan2 or logaddexp or hypot or quantile"
)


@pytest.mark.share(3)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(name: str, target: str) -> None:
    assert check(name, f"sim:{target}", 4096) > 0.0


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders(dtype: type, device: str) -> None:
    check_remainders(device, dtype, 2000)


@pytest.mark.thorough
@pytest.mark.skipif(knobs.HIP_CLANG.text() == OLDER, reason="these are its tests")
def test_built_by_an_older_clang() -> None:
    need(shutil.which(OLDER), OLDER)
    files = [Path(__file__), Path(__file__).with_name("test_catalogue.py")]
    tests = f"test_errors or test_remainders or (test_op and gfx1100 and ({LOWERED}))"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files, "-k", tests],
        env=os.environ | {knobs.HIP_CLANG.name: OLDER}, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
