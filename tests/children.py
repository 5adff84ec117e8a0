"""Programs that run in processes of their own: with other knobs, which are read when a process begins."""

from __future__ import annotations

import os
import subprocess
import sys


def ended(code: str, *args: str, **knobs: str) -> subprocess.CompletedProcess[str]:
    """How a program has ended, and what it has printed."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, env={**os.environ, **knobs}, capture_output=True, text=True, check=False)


def printed(code: str, *args: str, **knobs: str) -> str:
    """What a program prints; it must end well."""
    done = ended(code, *args, **knobs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_by_threads(code: str) -> list[str]:
    """What a program prints with one and with three threads."""
    return [printed(code, PYFLAME_THREADS=count) for count in ("1", "3")]
