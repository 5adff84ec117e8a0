"""Functions that kernels compute with a GPU's own instructions: how exact they are on the simulated ones."""

from __future__ import annotations

import pytest

from tests.gpu.function_errors import FUNCTIONS, check


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(name: str, target: str) -> None:
    assert check(name, f"sim:{target}", 4096) > 0.0
