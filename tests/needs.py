"""What a test needs of the machine. Without it the test skips and says why, or fails where CI must have it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from typing import Any

import pytest

# The oracle. The tests run without it only where `--without-torch` says so: see conftest.py.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def need(tool: str | None, what: str) -> str:
    if tool is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is missing on a CI machine")
        pytest.skip(f"{what} is not installed")
    return tool


def amd_bindings(name: str = "hip") -> Any:
    """A module of rocm-bindings-hip, which AMD ships for x86-64 only."""
    found = importlib.util.find_spec("rocm")
    if found is None and platform.machine() != "x86_64":
        pytest.skip(f"AMD has no rocm-bindings-hip for {platform.machine()}, only for x86-64")
    need(found and found.name, "rocm-bindings-hip")
    return importlib.import_module(f"rocm.bindings.{name}")
