"""PyTorch's own samples and error inputs of ops: none may differ but on purpose. `python -m tests.op_db` runs all."""

from __future__ import annotations

import functools
import re
import string
import warnings
from typing import Any

import pytest

from tests.needs import needs_torch

NAMES = (
    "abs", "add", "addr", "allclose", "amax", "amin", "angle", "arange", "as_strided", "baddbmm", "bucketize", "chunk",
    "conj", "cummax", "cummin", "cumsum", "diagflat", "eq", "exp", "flip", "frexp", "gcd", "gradient", "histogramdd",
    "i0", "igamma", "igammac", "imag", "index_put", "index_reduce", "index_select", "istft", "lcm", "linalg.eig",
    "linalg.eigh", "linalg.lstsq", "linalg.norm", "linalg.pinv", "linalg.qr", "linalg.vander", "linspace", "max",
    "maximum", "median", "min", "minimum", "nanmedian", "narrow", "nextafter", "nn.functional.one_hot",
    "nn.functional.softmin", "permute", "real", "repeat_interleave", "roll", "scatter", "scatter_add", "searchsorted",
    "select_scatter", "slice_scatter", "special.i0e", "special.i1", "special.i1e", "stack", "sum", "sum_to_size",
    "take_along_dim", "tensor_split", "tensordot", "unbind", "view_as_complex", "view_as_real", "zero_",
)  # fmt: skip


@functools.cache
def table() -> list[Any]:
    from tests.op_db import op_db  # here: it imports much of torch

    return op_db()


def found(pattern: str, most: int) -> list[tuple[str, str, str]]:
    """All findings of the ops with such names, in so many samples of each dtype."""
    from tests.op_db import findings

    ops = [op for op in table() if re.fullmatch(pattern, op.name)]
    assert ops
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [finding for op in ops for finding in findings(op, most)]


@needs_torch
def test_other_tests_may_set_flags_of_torch() -> None:
    import torch

    assert table()
    assert not torch.backends.flags_frozen()


@pytest.mark.share(12)
@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_samples_and_error_inputs(name: str) -> None:
    assert found(re.escape(name), 10) == []


@needs_torch
@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["_.*", "[A-Z].*", *[f"{c}.*" for c in string.ascii_lowercase if c != "y"]])
def test_samples_and_error_inputs_of_all_ops(pattern: str) -> None:
    assert found(pattern, 40) == []
