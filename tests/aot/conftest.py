"""What the tests of ahead-of-time compilation need: a clang for AMD GPUs, and a host that emulates them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyflame.runtime.rocm.clang import ClangHip, find_clang
from tests.aot.emulated import Emulation
from tests.needs import need


@pytest.fixture(autouse=True, scope="session")
def clang() -> ClangHip:
    return ClangHip(need(find_clang(), "a clang with the AMDGPU target"))


@pytest.fixture
def emulation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulation]:
    made = Emulation(monkeypatch, tmp_path)
    yield made
    made.close()
