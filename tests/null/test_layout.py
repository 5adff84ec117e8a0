"""Plans of convolution networks: where they run channels-last, and what that costs in copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.shape import contiguous_strides
from pyflame.ir.kernel import Draft
from pyflame.passes.layout import reshaped_order
from tests.plans import plan_of

BATCH, SIZE, WIDTH = 8, 16, 32


def network() -> Any:
    """A stem, a pool and a residual block."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.pool = nn.Conv2d(3, WIDTH, 3, 1, 1), nn.MaxPool2d(2)
            self.norm = nn.BatchNorm2d(WIDTH, track_running_stats=False)
            self.narrow, self.group = nn.Conv2d(WIDTH, 16, 1), nn.GroupNorm(4, 16)
            self.middle, self.up = nn.Conv2d(16, 16, 3, 2, 1), nn.ConvTranspose2d(16, WIDTH, 2, 2)
            self.last = nn.Conv2d(2 * WIDTH, 4, 1)

        def forward(self, x: pf.Tensor) -> pf.Tensor:
            x = self.pool(pf.relu(self.norm(self.stem(x))))
            y = self.up(pf.relu(self.middle(nn.functional.silu(self.group(self.narrow(x))))))
            return self.last(pf.cat([x, y + x], 1)).mean((2, 3))

    return Net()


def plan(target: str, dtype: Any = pf.bfloat16) -> Draft:
    """Of a network and all of its gradients."""
    net = network().to(dtype)
    x = pf.tensor(np.zeros((BATCH, 3, SIZE, SIZE), np.float32)).to(dtype)
    out = net(x)
    loss = (out * out).sum()
    loss.backward()
    return plan_of(loss, *(p.grad for p in net.parameters()), target=target)


def images(draft: Draft) -> list[tuple[int, ...]]:
    """Shapes of what is stored for each pixel."""
    return [b.shape for b in draft.buffers if b.role != "input" and len(b.shape) > 2 and np.prod(b.shape) > 9000]


@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx1100"])
def test_channels_are_last_throughout(target: str) -> None:
    found = plan(target)
    kinds = {x.kernel.anchor.op.name for x in found.launches if x.kernel.anchor is not None}
    assert {"conv_general", "matmul", "max_pool", "max_pool_backward"} <= kinds
    stored = images(found)
    assert stored and all(shape[-1] in (3, 4, 16, 2 * WIDTH, WIDTH) and shape[1] != shape[-1] for shape in stored)
    # what only copies an image: its first conversion, and the gradient of cat's second half, which lies apart
    copies = [x for x in found.launches if set(x.ops) <= {"contiguous", "cast", "clone"} and np.prod(x.output) > 5000]
    assert [x.output for x in copies] == [(BATCH, 1, SIZE, SIZE, 1, 3), (BATCH, 1, SIZE // 2, SIZE // 2, 1, WIDTH)]


@pytest.mark.parametrize(
    ("target", "dtype"), [("cpu", pf.bfloat16), ("cpu", pf.float32), ("sm_90", pf.float32), ("gfx1030", pf.float16)]
)
def test_channels_stay_first(target: str, dtype: Any) -> None:
    """On the CPU, without matrix cores, and in float32 unless TF32 may do."""
    found = plan(target, dtype)
    assert (BATCH, 1, SIZE, SIZE, 1, 3) not in [x.output for x in found.launches]
    convolved = [x for x in found.launches if x.kernel.anchor is not None and x.kernel.anchor.op.name == "conv_general"]
    assert convolved and not any("contiguous" in x.ops for x in convolved)


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", "nhwc")
    assert (BATCH, 1, SIZE, SIZE, 1, 3) in [x.output for x in plan("gfx1030", pf.float32).launches]
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", "nchw")
    assert (BATCH, 1, SIZE, SIZE, 1, 3) not in [x.output for x in plan("sm_90").launches]
    monkeypatch.delenv("PYFLAME_CONV_LAYOUT")
    before = pf.get_float32_matmul_precision()
    pf.set_float32_matmul_precision("high")
    try:
        assert (BATCH, 1, SIZE, SIZE, 1, 3) in [x.output for x in plan("sm_90", pf.float32).launches]
    finally:
        pf.set_float32_matmul_precision(before)


def test_an_optimiser_leaves_weights_as_they_lie() -> None:
    """A step on the null device plans once: state that changed its strides would be another signature."""
    with pf.device("null:sm_90"):
        net = network()
        optimizer = pf.optim.AdamW(net.parameters())

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            with pf.autocast(pf.bfloat16):
                loss = (net(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        x = pf.zeros(BATCH, 3, SIZE, SIZE)
        for _ in range(3):
            step(x)
        for p in net.parameters():
            assert p.stride() == contiguous_strides(p.shape)


def test_reshaped_order() -> None:
    last = (0, 2, 3, 1)
    assert reshaped_order((2, 6, 4, 5), (2, 6, 20), last) == (0, 2, 1)
    assert reshaped_order((2, 6, 4, 5), (12, 4, 5), last) is None  # images and channels do not lie together
    assert reshaped_order((2, 6, 4, 5), (2, 120), last) is None
    assert reshaped_order((1, 6, 4, 5), (6, 1, 4, 5), last) in ((1, 2, 3, 0), (2, 3, 1, 0), (2, 1, 3, 0), (2, 3, 0, 1))
