"""The bridge's way on a GPU, without one: torch's memory of the CPU stands for memory of an emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import pyflame.bridge.torch as bridge
from pyflame.bridge.torch import crossing, program
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.runtime.gpu.device import GpuDevice
from tests.emulated import emulated_device, host_compiler

STREAM = 77  # torch's


class _Stream:
    """In the place of TorchStream, which asks CUDA's torch."""

    def __init__(self, gpu: GpuDevice) -> None:
        self.gpu = gpu

    def __enter__(self) -> None:
        self.chosen = self.gpu.follow(STREAM)

    def __exit__(self, *exc: object) -> None:
        self.gpu.unfollow(self.chosen)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuDevice]:
    if host_compiler() is None:
        pytest.skip("the emulation needs a C++ compiler")
    name = DeviceId("rocm", 58)
    device = devices._open[name] = emulated_device(name.index)
    monkeypatch.setattr(crossing, "gpu_at", lambda _: device)
    for module in (crossing, program):
        monkeypatch.setattr(module, "device_of", lambda _: name)
    monkeypatch.setattr(program, "gpu_at", lambda _: device)
    monkeypatch.setattr(program, "TorchStream", _Stream)
    monkeypatch.setattr(program, "to_torch", _no_copies)
    yield device
    del devices._open[name]


def _no_copies(*_: Any) -> Any:
    raise AssertionError("expected a plan that runs on torch's memory")


def launched(device: GpuDevice) -> list[int]:
    """Have the streams noted that kernels are given to."""
    streams: list[int] = []
    driver: Any = device.driver
    launch = driver.launch

    def noted(function: Any, grid: Any, block: Any, lds: int, stream: int, *rest: Any) -> None:
        streams.append(stream)
        launch(function, grid, block, lds, stream, *rest)

    driver.launch = noted
    return streams


@pytest.mark.slow
def test_a_training_step_runs_on_torchs_stream_and_memory(gpu: GpuDevice) -> None:
    streams = launched(gpu)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3))
    compiled: Any = torch.compile(model, backend=bridge.backend)
    for _ in range(3):
        x = torch.randn(4, 6, requires_grad=True)
        model.zero_grad()
        model(x).square().mean().backward()
        want = [x.grad, *(p.grad for p in model.parameters())]
        x.grad = None
        model.zero_grad()
        compiled(x).square().mean().backward()
        got = [x.grad, *(p.grad for p in model.parameters())]
        torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-4)
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)  # type: ignore[arg-type]
    assert streams and set(streams) == {STREAM}
    assert gpu.chosen is gpu.main  # nothing is left behind in this thread


def test_results_views_and_random_numbers(gpu: GpuDevice) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2, x.flip(0), x.T + 1, y.mul_(3), x[1:], torch.rand_like(x)

    compiled: Any = torch.compile(fn, backend=bridge.backend)
    for _ in range(3):
        x, y = torch.randn(4, 4), torch.randn(3)
        torch.manual_seed(5)
        want = fn(x, y.clone())
        torch.manual_seed(5)
        got = compiled(x, kept := y.clone())
        again = compiled(x, y.clone())[5]
        for g, w in zip(got[:5], want[:5], strict=True):
            assert torch.equal(g, w) and g.stride() == w.stride()
        assert torch.equal(kept, y * 3) and got[4].data_ptr() == x[1:].data_ptr()
        assert not torch.equal(got[5], again)
        torch.manual_seed(5)
        assert torch.equal(compiled(x, y.clone())[5], got[5])


def test_streams_that_change_wait_for_each_other(gpu: GpuDevice) -> None:
    driver: Any = gpu.driver
    waits: list[int] = []
    driver.stream_wait_event = lambda stream, event: waits.append(stream)
    before = gpu.follow(5)
    gpu.unfollow(before)
    gpu.unfollow(gpu.follow(5))
    assert waits == [5]  # behind our own stream, once
    gpu.unfollow(gpu.follow(0))
    gpu.unfollow(gpu.follow(5))
    assert waits == [5, 0, 5]
    assert gpu.chosen is gpu.main
