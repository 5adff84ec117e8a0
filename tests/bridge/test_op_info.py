"""PyTorch's samples of its ops through the compiled path: some in each run, all of them in the thorough one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.sweep import op_db, ours, outcomes

QUICK = (
    "add", "cumsum", "gather", "index_put", "logsumexp", "nn.functional.conv2d", "nn.functional.group_norm",
    "nn.functional.max_pool2d", "scatter_add", "sort", "std", "where",
)  # fmt: skip
OPS = [op for op in op_db() if ours(op)]


def _named(op: Any) -> str:
    return f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}"


def _check(op: Any, most: int) -> int:
    """How many samples ran; all of them gave torch's results."""
    count = 0
    for sample, outcome in outcomes(op, most):
        assert not outcome.wrong, f"{sample}: {outcome.wrong}"
        count += 1
    return count


@pytest.mark.parametrize("op", [op for op in OPS if op.name in QUICK], ids=_named)
def test_some_ops(op: Any) -> None:
    assert _check(op, 1) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("op", OPS, ids=_named)
def test_every_op(op: Any) -> None:
    _check(op, 6)
