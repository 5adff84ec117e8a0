"""Convolution networks channels-last on simulated GPUs, forward and gradients, jitted and not, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

Network = Callable[[Any, Any], Any]  # (nn, torch or pyflame) -> module


def residual(nn: Any, lib: Any) -> Any:
    """Batch norm, a one-tap convolution with a stride, max pooling."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.pool, self.narrow = nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 4, 1, bias=False)
            self.middle, self.wide = nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 8, 1)
            self.around, self.after = nn.Conv2d(8, 8, 1, 2), nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            x = self.pool(lib.relu(self.norm(self.stem(x))))
            y = self.after(self.wide(lib.relu(self.middle(self.narrow(x)))))
            return self.head(lib.relu(y + self.around(x)).mean((2, 3)))

    return Net()


def unet(nn: Any, lib: Any) -> Any:
    """Group norm, SiLU, a transposed convolution, cat, average pooling."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
            self.down, self.low = nn.AvgPool2d(2), nn.Conv2d(4, 8, 3, padding=1)
            self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 3, padding=1)

        def forward(self, x: Any) -> Any:
            a = nn.functional.silu(self.norm(self.first(x)))
            b = nn.functional.silu(self.low(self.down(a)))
            return self.last(lib.cat([self.up(b), a], 1))

    return Net()


def gated(nn: Any, lib: Any) -> Any:
    """Depthwise and grouped convolutions, a gate per channel, resizing, padding, slices and a flattened end."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.deep, self.groups = nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.Conv2d(6, 4, 3, padding=2, dilation=2)
            self.gate, self.flat = nn.Conv2d(4, 4, 1), nn.Linear(4 * 8 * 8 // 2, 2)

        def forward(self, x: Any) -> Any:
            f = nn.functional
            y = self.groups(f.pad(self.deep(x), (1, 0, 0, 1)))[:, :, 1:, :-1]
            y = y * lib.sigmoid(self.gate(f.adaptive_avg_pool2d(y, 1)))
            y = f.interpolate(f.interpolate(y, scale_factor=2.0), size=(8, 8), mode="bilinear")
            return self.flat(y.transpose(2, 3).flip(3)[:, :2].flatten(1))

    return Net()


def volume(nn: Any, lib: Any) -> Any:
    """One and three axes."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line, self.cube = nn.Conv1d(3, 4, 3, padding=1), nn.Conv3d(4, 2, (1, 3, 3), padding=(0, 1, 1))
            self.back = nn.ConvTranspose1d(2, 3, 3, stride=2)

        def forward(self, x: Any) -> Any:
            y = self.line(x.flatten(2)).reshape(2, 4, 1, 8, 8)
            y = nn.functional.max_pool3d(lib.relu(self.cube(y)), (1, 2, 2))
            return self.back(y.flatten(2))

    return Net()


NETWORKS: dict[str, Network] = {"residual": residual, "unet": unet, "gated": gated, "volume": volume}
X = np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)


def loss_of(module: Any, x: Any) -> Any:
    return (module(x) ** 2).sum()


@pytest.fixture(scope="module", params=NETWORKS)
def case(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """A network's name, its state, and what torch makes of it."""
    torch.manual_seed(5)
    theirs = NETWORKS[request.param](torch.nn, torch)
    state = {name: v.detach().clone() for name, v in theirs.state_dict().items()}
    x = torch.tensor(X, requires_grad=True)
    loss = loss_of(theirs, x)
    loss.backward()
    assert x.grad is not None
    want = {"loss": loss.detach().numpy(), "x": x.grad.numpy()}
    want |= {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    want |= {name: b.numpy() for name, b in theirs.named_buffers() if "num_batches" not in name}
    return request.param, state, want


@pytest.mark.slow
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_networks(case: Any, target: str, jitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name, state, want = case
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", "nhwc")
    with pf.device(f"sim:{target}"):
        ours = NETWORKS[name](pf.nn, pf)
        ours.load_state_dict({k: pf.tensor(v.numpy()) for k, v in state.items()})
        x = pf.tensor(X, requires_grad=True)

        def step(x: pf.Tensor) -> tuple[pf.Tensor, Any]:
            loss = loss_of(ours, x)
            loss.backward()
            return loss, x.grad

        got: dict[str, Any] = dict(zip(("loss", "x"), (pf.jit(step) if jitted else step)(x), strict=True))
        got |= {n: p.grad for n, p in ours.named_parameters()} | dict(ours.named_buffers())
        for n, value in want.items():
            atol = 2e-5 * max(float(np.abs(value).max()), 1.0)
            np.testing.assert_allclose(got[n].numpy(), value, rtol=2e-4, atol=atol, err_msg=n)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_long_columns(target: str, dtype: str) -> None:
    """Batch norm over rows (N, C): sums across memory as vectors of rows, with what was known of each row before."""
    rng = np.random.default_rng(7)
    x, g = (rng.standard_normal((1300, 24)).astype(np.float32) for _ in range(2))
    w, b = (rng.standard_normal(24).astype(np.float32) for _ in range(2))

    def step(lib: Any, x: Any, g: Any, w: Any, b: Any) -> list[Any]:
        y = lib.relu(lib.nn.functional.batch_norm(x, None, None, w, b, True))
        (y * g).sum().backward()
        return [y, x.grad, w.grad, b.grad]

    def given(lib: Any, low: bool = False) -> list[Any]:
        kind = getattr(lib, dtype if low else "float32")
        low_ones = [lib.tensor(v).to(getattr(lib, dtype)).to(kind) for v in (x, g)]
        found = [*low_ones, *(lib.tensor(v) for v in (w, b))]
        return [v.detach().requires_grad_(n != 1) for n, v in enumerate(found)]

    want = step(torch, *given(torch))
    with pf.device(f"sim:{target}"):
        got = step(pf, *given(pf, low=True))
        for a, e in zip(got, want, strict=True):
            far = {"float32": 2e-5, "bfloat16": 2e-2}[dtype] * float(e.detach().abs().max())
            np.testing.assert_allclose(a.to(pf.float32).numpy(), e.detach().numpy(), rtol=0, atol=far)
