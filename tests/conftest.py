"""What holds for every test."""

from __future__ import annotations

import pytest

import pyflame as pf


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in every run: a failure can be repeated."""
    pf.manual_seed(20261115)
