"""What holds for every test."""

from __future__ import annotations

import os

# The tests are the CPU's, also on a machine with a GPU; those of a GPU name it. Programs that tests start inherit this.
os.environ.setdefault("PYFLAME_DEVICE", "cpu")

import pytest

import pyflame as pf


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in every run: a failure can be repeated."""
    pf.manual_seed(20261115)
