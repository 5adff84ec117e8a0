"""ZeRO 1 to 3 on 2 and 4 processes: the losses and weights of one process."""

from __future__ import annotations

import pytest

from tests.distributed.processes import Results, names_of
from tests.needs import needs_torch

CHECKS = names_of("sharded")


@pytest.fixture(scope="module")
def two() -> Results:
    return Results("sharded", 2)


@pytest.fixture(scope="module")
def four() -> Results:
    return Results("sharded", 4)


@needs_torch
@pytest.mark.parametrize("name", CHECKS)
def test_two_processes(two: Results, name: str) -> None:
    two.check(name)


@needs_torch
@pytest.mark.thorough
@pytest.mark.parametrize("name", CHECKS)
def test_four_processes(four: Results, name: str) -> None:
    four.check(name)
