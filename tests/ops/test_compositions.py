"""Ops that are right alone and were wrong together: each case is written once, for PyFlame and for torch.

A case is a function of `m` (either library) and its input tensors; what it returns and the gradients of its inputs must
agree. `tests/programs` draws such compositions at random; what it finds ends up here or among its kept programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

TORCH = SimpleNamespace(**{**vars(torch), **vars(torch.nn.functional)})
DEVICES = ("cpu", "sim:gfx942", "sim:gfx1100")
IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 5, 8, 9, 7, 9, 3, 2, 3]])
INDEX = np.array([0, 2, 2, 4, 1])

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def evaluated(x: Any) -> Any:
    """A view that lies in memory as such."""
    if isinstance(x, pf.Tensor):
        pf.eval(x)
    return x


def written(m: Any, x: Any) -> Any:
    z = evaluated(m.ones((4, 4), dtype=m.float64))  # one number in memory, seen as sixteen
    z[0] = x
    return z * 2


def several(m: Any, x: Any, v: Any, p: Any) -> Any:
    h = x * m.abs(v).rsqrt()
    return h, (p * h[:, None]).sum(1).sum(-1)


def rows_in_rows(m: Any, x: Any, p: Any) -> Any:
    h = x * x.sum(-1, keepdim=True)
    inner = (p * h[:, None]).sum(1)
    total = inner.sum(-1)
    return h, total, inner * total[:, None]


def nested_cats(m: Any, b: Any, d: Any, w: Any) -> Any:
    inner = m.cat([b, d], -1)
    return m.conv1d(m.cat([inner, d], -1), w).sum() + inner.sum()


def overwritten(m: Any, x: Any) -> Any:
    """Nothing is left of the row that is read, and as much is assigned as the gradient has elements."""
    y = x * 2.0
    y[-1, -1:] = -1.0
    return y[1]


def windows(m: Any, x: Any) -> Any:
    """x[i + j]: as many pairs as elements, and yet not each element once."""
    y = m.tanh(x * 3.0)
    return y[:3].unfold(0, 2, 1) * 2.0, y


CASES: dict[str, Case] = {
    "sort of a view": (lambda m, x: m.sort(evaluated(x[4:, 1]), 1)[0], ((8, 6, 5),)),
    "topk of a view": (lambda m, x: m.topk(evaluated(x[4:, 1]), 2, 1)[0], ((8, 6, 5),)),
    "cumsum of a view": (lambda m, x: m.cumsum(evaluated(x[4:, 1].permute(1, 0)), 0), ((8, 6, 5),)),
    "pool of a view": (lambda m, x: m.max_pool1d(evaluated(x[:, ::2].permute(1, 0, 2)), 2), ((3, 6, 8),)),
    "index_add of a view": (lambda m, x, y: m.index_add(evaluated(x[::2].T), 0, m.tensor(INDEX), y), ((9, 5), (5, 5))),
    "view beside its copy": (lambda m, x: m.cumsum(evaluated(x.T), 0) + evaluated(x.T) * x.sum(), ((5, 7),)),
    "flattened view": (lambda m, x: evaluated(x.T).reshape(12, 4) * 2 + x.T.reshape(12, 4), ((8, 6),)),
    "row of ones": (written, ((4,),)),
    "causal convolution": (lambda m, x, w: m.relu(m.conv1d(x, w, padding=3)[..., :-3]), ((2, 4, 20), (6, 4, 7))),
    "part of a convolution": (
        lambda m, x, w: m.tanh(m.conv2d(x, w)[:, 1:3, ::2, 1:]) * 0.5,
        ((2, 3, 9, 8), (5, 3, 3, 3)),
    ),
    "next-token loss": (
        lambda m, h, e: m.cross_entropy((h @ e.T)[:, :-1].reshape(-1, 50), m.tensor(IDS)[:, 1:].reshape(-1)),
        ((2, 9, 16), (50, 16)),
    ),
    "columns of a product": (lambda m, h, w: (h @ w)[:, :4] * 2, ((9, 16), (16, 50))),
    "rows of a product": (lambda m, h, w: m.relu((h @ w)[:3]), ((9, 16), (16, 20))),
    "part of a linear layer": (lambda m, x, w: m.linear(x, w)[..., :64] * 0.35, ((2, 64, 64), (256, 64))),
    "gather beside a product": (lambda m, t, x, w: t[m.tensor(INDEX)] + x @ w, ((10, 8), (5, 6), (6, 8))),
    "index_add beside a product": (
        lambda m, x, w: m.index_add(x, 0, m.tensor(INDEX), x * 0.5).sum() + (x @ w).sum(),
        ((5, 6), (6, 6)),
    ),
    "nested cats in a convolution": (nested_cats, ((2, 3, 4), (2, 3, 5), (4, 3, 3))),
    "negative padding": (
        lambda m, x, w: m.logsumexp(m.conv2d(m.pad(x, (-1, 2, 1, 0)), w), (0, 1, 2, 3)),
        ((2, 3, 8, 8), (4, 3, 3, 3)),
    ),
    "sums of many rows": (lambda m, x, b: (x + b).sum(0), ((257, 16), (16,))),
    "normed sums of many rows": (
        lambda m, x, w, b: m.layer_norm(m.tanh(x), (24,), w, b).square().mean(0),
        ((300, 24), (24,), (24,)),
    ),
    "linear and mse": (lambda m, x, w, b, y: m.mse_loss(m.linear(x, w, b), y), ((300, 7), (5, 7), (5,), (300, 5))),
    "batch norm of many rows": (
        lambda m, x, w, b: m.batch_norm(x, None, None, w, b, True).square(),
        ((300, 6), (6,), (6,)),
    ),
    "two reductions deep": (several, ((3, 7), (3, 1), (5, 1))),
    "rows in rows": (rows_in_rows, ((3, 7), (5, 1))),
    "convolution, norm and maximum": (
        lambda m, x, w, y: m.maximum(m.group_norm(m.conv1d(x, w), 2), y).sum(),
        ((2, 3, 12), (4, 3, 3), (2, 4, 10)),
    ),
    "overlapping windows": (windows, ((4,),)),
    "overwritten row": (overwritten, ((2, 1, 2),)),
    "softmax of the same numbers": (lambda m, x: m.softmax(x.expand((16, 2, 4, 2)).flatten(), -1), ((1, 1, 2),)),
    "product with its own transpose": (lambda m, x: (x.transpose(-1, -2) @ x) * 0.25, ((1, 16, 16),)),
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with pf.device(request.param):
        yield request.param


def outputs_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def ours(run: Callable[..., Any], arrays: list[np.ndarray], jit: bool) -> list[np.ndarray]:
    leaves = [pf.tensor(a).requires_grad_() for a in arrays]

    def step(*given: pf.Tensor) -> list[pf.Tensor]:
        outputs = outputs_of(run(pf, *given))
        sum(((o * o.detach().cos()).sum() for o in outputs), pf.tensor(0.0, dtype=pf.float64)).backward()
        return [*outputs, *(t.grad for t in leaves)]

    return [o.detach().numpy() for o in (pf.jit(lambda: step(*leaves)) if jit else lambda: step(*leaves))()]


def theirs(run: Callable[..., Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    leaves = [torch.tensor(a).requires_grad_() for a in arrays]
    outputs = outputs_of(run(TORCH, *leaves))
    sum((o * o.detach().cos()).sum() for o in outputs).backward()
    return [o.detach().numpy() for o in (*outputs, *(t.grad for t in leaves))]


# A traced function evaluates nothing on its way.
JITTED = [name for name in CASES if "view" not in name and name != "row of ones"]


@pytest.mark.share(8)
@pytest.mark.parametrize(("name", "jit"), [*((n, False) for n in CASES), *((n, True) for n in JITTED)])
def test_composition(name: str, jit: bool, device: str) -> None:
    run, shapes = CASES[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.standard_normal(s) for s in shapes]
    for got, want in zip(ours(run, arrays, jit), theirs(run, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def test_readers_that_become_one(device: str) -> None:
    """Two small kernels read a value that a third one stores; they are merged while that one is chosen."""
    x = pf.tensor(np.arange(4.0).reshape(1, 4) - 3)

    def several() -> list[pf.Tensor]:
        whole = x.clone()
        flat = whole.flatten()
        return [part.clone() for part in (flat.select(0, 0), flat.reshape(-1), whole, whole[..., -1])]

    assert [part.tolist() for part in pf.jit(several)()] == [-3, [-3, -2, -1, 0], [[-3, -2, -1, 0]], [0]]


def test_eager_phases(device: str) -> None:
    """The parts of a transposed convolution are written into one buffer, which is not read before all are there."""
    x, w = np.arange(4.0).reshape(2, 2, 1), np.arange(8.0).reshape(2, 2, 2) + 1
    with pf.eager():
        got = pf.conv_transpose1d(pf.tensor(x), pf.tensor(w).requires_grad_(), stride=2, output_padding=1, groups=2)
    want = torch.conv_transpose1d(torch.tensor(x), torch.tensor(w), stride=2, output_padding=1, groups=2)
    np.testing.assert_allclose(got.detach().numpy(), want.numpy())


@pytest.mark.slow
def test_a_held_view_keeps_what_it_shows(device: str) -> None:
    """A maximum found before its gradient is computed: its source is compared with it, and must not be made anew."""
    x = pf.tensor(np.linspace(-1, 2, 12).reshape(1, 1, 3, 4)).to(pf.float16)
    w = pf.tensor(np.full((1, 1, 1, 1), 0.731)).to(pf.float16).detach().requires_grad_()
    top = pf.amax(pf.conv2d(x, w, pf.full((1,), 0.317, dtype=pf.float16)), (0, 3))
    top.sum().backward()
    top.detach().numpy()
    np.testing.assert_allclose(w.grad.numpy().item(), x.numpy()[0, 0].max(1).sum(), rtol=2e-3)


def unet(nn: Any, m: Any) -> Any:
    """Down, up and a skip connection: GroupNorm, SiLU, max-pool and a transposed convolution."""

    class Net(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
            self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
            self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.out = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 1, 1))

        def forward(self, x: Any) -> Any:
            wide = self.down(x)
            return self.out(m.cat([self.up(self.middle(wide)), wide], 1))

    return Net()


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "side"), [(2, 16), (3, 20)])
def test_unet(batch: int, side: int) -> None:
    net, oracle = unet(pf.nn, pf), unet(torch.nn, torch)
    oracle.load_state_dict({k: torch.tensor(np.array(v.numpy())) for k, v in net.state_dict().items()})
    x = np.random.default_rng(side).standard_normal((batch, 3, side, side)).astype(np.float32)
    net(pf.tensor(x)).square().mean().backward()
    oracle(torch.tensor(x)).square().mean().backward()
    for got, want in zip(net.parameters(), oracle.parameters(), strict=True):
        np.testing.assert_allclose(got.grad.numpy(), want.grad.numpy(), rtol=1e-4, atol=1e-6)
