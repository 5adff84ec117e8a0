"""PyTorch's own samples and error inputs of ops: none may differ. `python -m tests.op_db` runs all of them."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

from tests.needs import needs_torch

NAMES = (
    "abs", "add", "amax", "amin", "angle", "arange", "bucketize", "chunk", "conj", "cummax", "cummin", "cumsum",
    "diagflat", "eq", "exp", "flip", "frexp", "gcd", "i0", "imag", "index_reduce", "index_select", "lcm", "linspace",
    "max", "maximum", "median", "min", "minimum", "nanmedian", "narrow", "nextafter", "nn.functional.one_hot",
    "nn.functional.softmin", "permute", "real", "repeat_interleave", "roll", "scatter", "scatter_add", "searchsorted",
    "select_scatter", "slice_scatter", "special.i0e", "special.i1", "special.i1e", "stack", "sum", "take_along_dim",
    "tensor_split", "unbind", "view_as_complex", "view_as_real",
)  # fmt: skip


@functools.cache
def table() -> list[Any]:
    from tests.op_db import op_db  # here: it imports much of torch

    return op_db()


@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_samples_and_error_inputs(name: str) -> None:
    from tests.op_db import findings, ours

    ops = [op for op in table() if op.name == name]
    assert ops
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [found for op in ops for found in findings(op, ours(name))] == []
