"""Ten seconds of random calls, or five minutes, in a process of its own: a crash fails the test."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "seed"), [("10", "20000"), pytest.param("300", "1000000", marks=pytest.mark.thorough)]
)
def test_random_calls_never_crash(seconds: str, seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", seconds, "--seed", seed],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert " ok" in done.stdout
