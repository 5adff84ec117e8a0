"""The whole path of a GPU, from tensors to launches, on a GPU that is emulated on the host (tests/emulated.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.value import Value
from pyflame.runtime.gpu.driver import KernelArguments
from pyflame.tensor import Tensor
from pyflame.tensor.creation import leaf
from tests.emulated import emulated_device

TARGETS = ("gfx1100",)  # waves of 64 as well: on simulated GPUs, in tests/sim


@pytest.fixture(params=TARGETS)
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    index = 40 + TARGETS.index(request.param)
    name = DeviceId("rocm", index)
    if name not in devices._open:
        devices._open[name] = emulated_device(index, request.param)
    with pf.device(str(name)):
        yield str(name)


def both(gpu: str, program: Callable[[], Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a program gives here and on the CPU, from the same random numbers."""
    out = []
    for name in (gpu, "cpu"):
        with pf.device(name):
            pf.manual_seed(3)
            result = program()
            out.append([np.array(t.numpy()) for t in (result if isinstance(result, (list, tuple)) else [result])])
    return out[0], out[1]


def agree(gpu: str, program: Callable[[], Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    ours, theirs = both(gpu, program)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def classifier(layers: list[Any], shape: tuple[int, ...], steps: int = 3) -> Callable[[], list[pf.Tensor]]:
    def program() -> list[pf.Tensor]:
        model = nn.Sequential(*[make() for make in layers])
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        rng = np.random.default_rng(0)
        x, y = pf.tensor(rng.standard_normal(shape, dtype=np.float32)), pf.tensor(rng.integers(0, 3, shape[0]))

        @pf.jit
        def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
            loss = pf.cross_entropy(model(x), y)
            loss.backward()
            optim.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return [*[step(x, y) for _ in range(steps)], *model.parameters()]

    return program


@pytest.mark.slow
def test_mlp_learns_as_on_the_cpu(gpu: str) -> None:
    agree(
        gpu, classifier([lambda: nn.Linear(5, 16), nn.GELU, lambda: nn.LayerNorm(16), lambda: nn.Linear(16, 3)], (8, 5))
    )


@pytest.mark.slow
def test_cnn_learns_as_on_the_cpu(gpu: str) -> None:
    layers = [lambda: nn.Conv2d(2, 4, 3, padding=1), nn.ReLU, lambda: nn.MaxPool2d(2), nn.Flatten]
    agree(gpu, classifier([*layers, lambda: nn.Linear(36, 3)], (2, 2, 6, 6), steps=2), rtol=1e-3, atol=1e-4)


@pytest.mark.slow(16)
def test_gpt_learns_as_on_the_cpu(gpu: str) -> None:
    def program() -> list[pf.Tensor]:
        model = nn.GPT(nn.GPTConfig(vocab_size=11, context=8, layers=1, heads=2, width=8))
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tokens = pf.tensor(np.random.default_rng(0).integers(0, 11, (2, 9)))
        losses = []
        for _ in range(2):
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
        return [*losses, model.wte.weight]

    agree(gpu, program)


@pytest.mark.parametrize(
    "program",
    [
        lambda: pf.sort(pf.randn(3, 50), -1)[0],
        lambda: pf.topk(pf.randn(4, 33), 5)[0],
        lambda: pf.cumsum(pf.randn(5, 40), 1),
        lambda: pf.zeros(6, 4).index_add(0, pf.tensor([1, 4, 1]), pf.randn(3, 4)),
        lambda: pf.avg_pool2d(pf.randn(1, 2, 7, 7), 3, 2, 1),
        lambda: pf.cat([pf.randn(2, 3), pf.randn(4, 3)], 0).T.contiguous(),
        lambda: pf.randn(4, 6)[:, 1::2] @ pf.randn(3, 2),  # a view whose elements lie misaligned
        lambda: pf.dropout(pf.ones(100), 0.5),
        lambda: (pf.randn(3, 70) * 2.0).var(1),
        lambda: [f(pf.rand(3, 7) * 0.9) for f in (pf.erfinv, pf.lgamma, pf.digamma, lambda x: pf.polygamma(2, x - 2))],
        lambda: [
            f(pf.rand(9).double() * 0.9) for f in (pf.erfinv, lambda x: pf.polygamma(1, x), lambda x: x.copysign(-x))
        ],
        lambda: [f(pf.randn(9).double() * 9) for f in (pf.i0, pf.special.i0e, pf.special.i1, pf.special.i1e)],
        lambda: [f(pf.rand(9).double() * 9, pf.rand(9).double() * 9) for f in (pf.igamma, pf.igammac)],
        lambda: [f(pf.rand(9) * 9) for f in (pf.special.bessel_y1, pf.special.airy_ai, pf.special.modified_bessel_k1)],
        lambda: [
            f(pf.rand(9).double() * 2 - 1, pf.arange(9) + 2)
            for f in (pf.special.chebyshev_polynomial_v, pf.special.legendre_polynomial_p)
        ],
        lambda: [*pf.frexp(pf.randn(9) * 9)],
        lambda: [f(pf.randint(-50, 50, (2, 9))[0], pf.arange(9)) for f in (pf.gcd, pf.lcm)],
        lambda: [pf.nextafter(pf.randn(9).to(t), pf.ones(9, dtype=t)) for t in (pf.float16, pf.float32, pf.float64)],
        lambda: [*pf.cummax(pf.randn(3, 9), 1), pf.quantile(pf.randn(3, 9), 0.3, 1), pf.logcumsumexp(pf.randn(5), 0)],
        lambda: [
            pf.unique(pf.tensor([3, 1, 3])),
            pf.bincount(pf.tensor([3, 1, 3])),
            pf.isin(pf.arange(5), pf.arange(20)),
        ],
    ],
)
def test_kernels(gpu: str, program: Callable[[], Any]) -> None:
    agree(gpu, program)


def test_state_is_updated_in_place(gpu: str) -> None:
    cell = pf.tensor(np.zeros(64, np.float32)) + 0.0
    pf.eval(cell)

    @pf.jit
    def step() -> None:
        cell.add_(1.0)

    step()
    address = cell._node.data.storage.address
    step()
    assert cell._node.data.storage.address == address
    np.testing.assert_array_equal(cell.numpy(), np.full(64, 2))


def test_bad_index_is_found_when_the_host_looks(gpu: str) -> None:
    rows = pf.embedding(pf.ones(4, 2), pf.tensor([0, 9]))
    with pytest.raises(pf.IndexError, match=r"expected an index in \[-4, 3\] but got 9; called at .*test_emulated"):
        rows.numpy()


def test_moves_between_devices(gpu: str) -> None:
    x = pf.tensor(np.arange(6.0).reshape(2, 3), device="cpu")
    there = x.T.to(gpu)
    assert there.device == gpu
    np.testing.assert_array_equal((there * 2).to("cpu").numpy(), np.arange(6.0).reshape(2, 3).T * 2)
    with pytest.raises(pf.DeviceError, match="expected all tensors on one device"):
        _ = there + x.T


def test_info_names_the_device(gpu: str) -> None:
    info = pf.device_info()
    assert info["type"] == "rocm" and info["wave_size"] in (32, 64) and info["total_memory"] > 0


def test_replays_are_graphs(gpu: str) -> None:
    weight, total = pf.randn(8, 8), pf.zeros(8) + 0.0
    pf.eval(weight, total)

    @pf.jit
    def step(x: pf.Tensor, scale: float) -> pf.Tensor:
        y = pf.tanh(x @ weight) * scale + pf.dropout(pf.ones(8), 0.5)
        total.add_(y.sum(0))
        return y

    pf.manual_seed(1)
    values = [step(pf.tensor(np.full((3, 8), n, np.float32)), 0.5 + n).numpy().copy() for n in range(5)]
    (traced,) = step.cache[next(iter(step.cache))]
    assert traced.runner.why == "replayed as a graph"
    kept = total._snapshot()
    before = kept.numpy().copy()
    step(pf.tensor(np.ones((3, 8), np.float32)), 1.0)
    assert "held by somebody else" in traced.runner.why
    np.testing.assert_array_equal(kept.numpy(), before)
    pf.manual_seed(1)
    for n, value in enumerate(values):
        noise = pf.dropout(pf.ones(8), 0.5)
        want = pf.tanh(pf.full((3, 8), float(n)) @ weight) * (0.5 + n) + noise
        np.testing.assert_allclose(value, want.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(before, sum(v.sum(0) for v in values), rtol=1e-4)
    del kept
    for _ in range(3):  # the first one moves state to memory of its own
        follows = total.detach()
        step(pf.tensor(np.ones((3, 8), np.float32)), 1.0)
        np.testing.assert_array_equal(follows.numpy(), total.numpy())
    assert traced.runner.why == "replayed as a graph"


def test_a_graph_does_not_hold_the_state_that_it_updates(gpu: str) -> None:
    cell = pf.tensor(np.zeros(8, np.float32)) + 0.0
    pf.eval(cell)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        cell.add_(x)
        return cell * 2.0

    x, why = pf.tensor(np.ones(8, np.float32)), []
    for n in range(1, 7):
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2.0 * n))
        (traced,) = step.cache[next(iter(step.cache))]
        why.append(traced.runner.why)
    assert why[1:] == ["replayed as a graph"] * 5


def test_a_graph_of_state_that_lies_askew(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported memory may begin anywhere: a graph of it holds kernels that rely on no alignment."""
    whole = pf.tensor(np.arange(65, dtype=np.float32)) + 0.0
    pf.eval(whole)
    value = Value(whole._node.data.storage, 4)
    state = Tensor(leaf(value, (64,), pf.float32, whole._node.meta.device, committed=False))
    relied, launch = [], GpuRunner.launch

    def spy(self: GpuRunner, kernel_args: KernelArguments, timed: bool = False) -> None:
        relied.append(self._misaligned(kernel_args.array))
        launch(self, kernel_args, timed)

    monkeypatch.setattr(GpuRunner, "launch", spy)
    step = pf.jit(lambda x: x * state)
    for _ in range(3):
        got = step(pf.tensor(np.full(64, 2.0, np.float32)))
        (traced,) = step.cache[next(iter(step.cache))]
        np.testing.assert_array_equal(got.numpy(), np.arange(1, 65) * 2.0)
    assert traced.runner.why == "replayed as a graph" and relied and not any(relied)


def test_a_bad_index_in_a_replay(gpu: str) -> None:
    table = pf.randn(5, 2)
    look = pf.jit(lambda at: pf.embedding(table, at))
    for _ in range(3):
        look(pf.tensor([1, 2])).numpy()
    with pytest.raises(pf.IndexError, match="but got 7"):
        look(pf.tensor([1, 7])).numpy()
    np.testing.assert_array_equal(look(pf.tensor([1, 2])).numpy(), table.numpy()[1:3])


def test_a_view_is_read_where_another_device_is_current(gpu: str) -> None:
    view = (pf.randn(3, 4) + 1.0).T
    pf.eval(view)
    assert view._node.data.strides is not None
    with pf.device("cpu"):
        assert view.numpy().shape == (4, 3)
