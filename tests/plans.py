"""Plans without a device: what a tensor would launch on a target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pyflame as pf
from pyflame.codegen import reuse
from pyflame.codegen.gpu_text import GpuText
from pyflame.core.targets import TARGETS
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.ir.kernel import Draft


def plan_of(*tensors: pf.Tensor, target: str = "cpu") -> Draft:
    return draft_plan(PendingGraph([t._node for t in tensors], keep_held=False), TARGETS[target])


def launches(*tensors: pf.Tensor, target: str = "cpu") -> int:
    return len(plan_of(*tensors, target=target).launches)


@contextmanager
def long_positions() -> Iterator[None]:
    """GPU texts as for tensors of more than 2^31 elements. Texts are found again, so those of before and these are
    forgotten."""
    reuse._known.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GpuText, "small", lambda self: False)
        yield
    reuse._known.cache_clear()
