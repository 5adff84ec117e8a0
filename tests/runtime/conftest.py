"""Machines with GPUs that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.runtime.cache import DiskCache
from tests.emulated import EmulatedDriver
from tests.runtime.fake import FakeCompiler, FakeDriver
from tests.runtime.machine import machine, vendor


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two AMD GPUs that do what they are given as late as they may; the first is the current device."""
    driver = FakeDriver(devices=2, kind="rocm")
    with machine(rocm=vendor("rocm", driver, lambda: FakeCompiler(DiskCache(tmp_path)))):
        pf.set_device("rocm")
        yield driver


@pytest.fixture
def two() -> Iterator[None]:
    """Two NVIDIA GPUs that compute."""

    class Driver(EmulatedDriver):
        kind = "cuda"

    with machine(cuda=vendor("cuda", Driver(("gfx1100", "gfx1100")))):
        yield
