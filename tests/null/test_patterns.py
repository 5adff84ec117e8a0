"""Each named fusion pattern is really one launch."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import ArgumentError
from pyflame.schedule.patterns import FusedOpType, can_fuse
from tests.plans import launches


def leaf(*shape: int) -> pf.Tensor:
    return pf.tensor(np.ones(shape, np.float32))


def conv() -> pf.Tensor:
    return pf.conv2d(leaf(2, 3, 8, 8), leaf(4, 3, 3, 3))


GRAPHS = {
    FusedOpType.MATMUL_BIAS: lambda: leaf(8, 16) @ leaf(16, 32) + leaf(32),
    FusedOpType.MATMUL_BIAS_RELU: lambda: pf.relu(leaf(8, 16) @ leaf(16, 32) + leaf(32)),
    FusedOpType.MATMUL_BIAS_GELU: lambda: pf.gelu(leaf(8, 16) @ leaf(16, 32) + leaf(32)),
    FusedOpType.CONV_BIAS: lambda: conv() + leaf(4, 1, 1),
    FusedOpType.CONV_BIAS_RELU: lambda: pf.relu(conv() + leaf(4, 1, 1)),
    FusedOpType.CONV_BN_RELU: lambda: pf.relu(
        pf.batch_norm(conv(), leaf(4), leaf(4), leaf(4), leaf(4), training=False)
    ),
    FusedOpType.ADD_RELU: lambda: pf.relu(leaf(8, 16) + leaf(16)),
    FusedOpType.MUL_ADD: lambda: leaf(8, 16) * leaf(16) + leaf(8, 1),
}


@pytest.mark.parametrize("pattern", list(FusedOpType), ids=lambda p: p.name)
def test_pattern_is_one_launch(pattern: FusedOpType) -> None:
    assert can_fuse(pattern.value) is pattern
    assert launches(GRAPHS[pattern]()) == 1


def test_what_is_no_pattern() -> None:
    assert can_fuse(["relu", "matmul"]) is None
    assert can_fuse(["conv2d", "bias", "relu"]) is FusedOpType.CONV_BIAS_RELU
    with pytest.raises(ArgumentError, match="matmul"):
        can_fuse(["matmull"])
