"""pf.profile on a real NVIDIA GPU: times by events agree with the host's clock and with each other."""

from __future__ import annotations

from itertools import pairwise

import pytest

import pyflame as pf
from pyflame import profiling
from pyflame.core.trace import DEVICE_KINDS
from pyflame.runtime.cuda.device import CUDA

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=CUDA.why_absent() or "there is one"),
]


def test_times_are_inside_of_the_region_and_in_order() -> None:
    with pf.device("cuda:0"):
        x = pf.randn(64 << 20)
        pf.eval(x, x * 2.0)
        with pf.profile() as p, pf.annotate("scale"):
            for _ in range(20):
                pf.eval(x * 2.0)
        events = [e for e in p.events if e.kind in DEVICE_KINDS]
        assert p.device_seconds["cuda:0"] <= p.seconds
        for before, after in pairwise(events):
            assert (
                before.seconds is not None and before.begin + before.seconds <= after.begin + 2e-5
            )  # how well both clocks are known to agree
        kernel = p.kernels[0]
        assert kernel.calls == 20 and p.ranges[0].launches >= 20
        share = kernel.of_limit(profiling.measure_limit("cuda:0"))
        assert share is not None and 0.5 < share < 1.3


def test_replays_take_no_longer_than_their_launches() -> None:
    with pf.device("cuda:0"):
        weight, x = pf.randn(512, 512), pf.randn(512, 512)
        step = pf.jit(lambda x: pf.tanh(pf.tanh(x @ weight) @ weight))
        for _ in range(4):
            step(x)
        with pf.profile() as eager:
            step(x)
        with pf.profile(graphs=True) as graph:
            for _ in range(5):
                step(x)
        replay = next(k for k in graph.kernels if k.kind == "graph")
        assert replay.shortest <= 1.2 * sum(k.seconds for k in eager.kernels)
