"""Plans without a device: what a tensor would launch on a target."""

from __future__ import annotations

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.ir.kernel import Draft


def plan_of(*tensors: pf.Tensor, target: str = "cpu") -> Draft:
    return draft_plan(PendingGraph([t._node for t in tensors], keep_held=False), TARGETS[target])


def launches(*tensors: pf.Tensor, target: str = "cpu") -> int:
    return len(plan_of(*tensors, target=target).launches)
