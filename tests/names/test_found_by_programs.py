"""What public PyTorch programs, run with only their imports changed, found wrong here: one test for each cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide"])
@pytest.mark.parametrize("numbers", [(5, 3), (5, 3.0), (5.5, 3), (True, 2), (1j, 2), (2, 1j)])
def test_arithmetic_of_numbers_alone(name: str, numbers: tuple[Any, Any]) -> None:
    """Where PyTorch takes them: torch.mul(5, 5)."""
    try:
        theirs = getattr(torch, name)(*numbers)
    except RuntimeError:
        with pytest.raises(pf.PyFlameError):
            getattr(pf, name)(*numbers)
        return
    ours = getattr(pf, name)(*numbers)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
