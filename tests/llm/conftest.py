"""The default model, for the tests that need a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyflame.llm.default import MEMBER, default_model, models_dir


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct where it has been fetched (`pyflame chat` does); CI fetches it."""
    if not (models_dir() / Path(MEMBER).name).exists() and not os.environ.get("CI"):
        pytest.skip("SmolLM2 has not been fetched; run `pyflame chat` once")
    return default_model()
