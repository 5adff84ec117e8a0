"""Simulated GPUs and compiled kernels need a clang; torch.compile starts afresh in each test."""

from __future__ import annotations

import pytest

from pyflame.runtime.rocm.clang import find_clang
from tests.needs import need, torch


@pytest.fixture(scope="session")
def clang() -> str:
    return need(find_clang(), "a clang with the AMDGPU target")


@pytest.fixture(autouse=True)
def ready(clang: str) -> None:
    if torch is not None:
        torch._dynamo.reset()
