"""Whole programs on simulated AMD GPUs, through the public API: training, streams, graphs, and all that can fail.

What tests/sim/test_programs.py runs as well is not repeated here.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.device import parse_device
from pyflame.core.errors import AMDDeviceFaultError, HIPCompilationError, ROCmMemoryError
from pyflame.data import DataLoader, TensorDataset
from pyflame.engine import services
from tests.sim.devices import own_gpus

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MIB = 1 << 20
SCALE = """extern "C" __global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
"""
STRAY = 'extern "C" __global__ void stray(float* x, long at) { x[at + threadIdx.x] = 1; }'


@pytest.fixture(params=("gfx942", "gfx1100"))
def sim(request: pytest.FixtureRequest) -> str:
    return f"sim:{request.param}"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- training ---------------------------------------------------------------------------------------------------------

RUNS = {
    "mlp": ["--steps", "4", "--batch", "24", "--width", "16"],
    "gpt": [
        *("--steps", "3", "--batch", "2", "--context", "8", "--layers", "1", "--heads", "2", "--width", "8"),
        *("--bytes", "3", "--folder", str(EXAMPLES)),
    ],
}


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", RUNS)
def test_examples_learn_as_on_the_cpu(name: str, sim: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each loss that they print, and what the GPT writes."""
    before, shown = pf.get_device(), {}
    for device in ("cpu", sim):
        try:
            assert example(name).main([*RUNS[name], "--device", device]) == 0
        finally:
            pf.set_device(before)
        shown[device] = re.sub(r"[\d,]+ tokens/s", "", capsys.readouterr().out)
    numbers = {device: [float(n) for n in re.findall(r"\d+\.\d+", text)] for device, text in shown.items()}
    words = {device: re.sub(r"\d+\.\d+", "", text) for device, text in shown.items()}
    assert len(numbers["cpu"]) >= 6
    assert words[sim] == words["cpu"]
    np.testing.assert_allclose(numbers[sim], numbers["cpu"], rtol=2e-4, atol=1.01e-3)


def regression(model: nn.Module) -> Callable[[pf.Tensor, pf.Tensor], pf.Tensor]:
    """A step of training, jitted: from the third call on it is the replay of a graph."""
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @pf.jit
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        loss = pf.mse_loss(pf.dropout(pf.tanh(model(x)), 0.1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def losses(device: str, batches: int = 5, pin_memory: bool = False) -> tuple[list[float], np.ndarray[Any, Any]]:
    """Of a regression from the batches of a loader; and the weights that it ends with."""
    rng = np.random.default_rng(0)
    data = TensorDataset(rng.standard_normal((8 * batches, 6), np.float32), rng.random((8 * batches, 3), np.float32))
    with pf.device(device):
        pf.manual_seed(0)
        model = nn.Linear(6, 3)
        step = regression(model)
        found = [step(x, y) for x, y in DataLoader(data, 8, shuffle=True, seed=1, pin_memory=pin_memory)]
        return [loss.item() for loss in found], np.array(model.weight.numpy())


@pytest.mark.slow(16)
def test_any_order_of_streams_learns_the_same() -> None:
    """Copies of pinned batches, launches and replayed graphs lie on several streams, which run as the seed has it."""
    want, weight = losses("cpu")
    found = []
    for seed in range(4):
        with own_gpus("gfx1100", seed=seed) as (gpu,):
            found.append(losses(str(gpu.id), pin_memory=True))
    np.testing.assert_allclose(found[0][0], want, rtol=1e-4)
    np.testing.assert_allclose(found[0][1], weight, rtol=1e-4, atol=1e-6)
    assert all(other[0] == found[0][0] and (other[1] == found[0][1]).all() for other in found[1:])


@pytest.mark.slow
def test_two_gpus_share_a_batch() -> None:
    """Each has half of it and a copy of the weights; gradients meet on the first."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 5), np.float32), rng.standard_normal((8, 2), np.float32)
    start = rng.standard_normal((5, 2), np.float32)

    def gradient(device: str, weight: pf.Tensor, part: slice) -> pf.Tensor:
        own = weight.to(device).detach().requires_grad_()
        left, right = (pf.tensor(a[part], device=device) for a in (x, y))
        ((pf.tanh(left @ own) - right) ** 2).sum().backward()
        assert own.grad is not None
        return own.grad

    def trained(first: str, second: str) -> np.ndarray[Any, Any]:
        weight = pf.tensor(start, device=first)
        for _ in range(3):
            halves = [gradient(first, weight, slice(4)), gradient(second, weight, slice(4, 8))]
            weight = weight - 0.05 * (halves[0] + halves[1].to(first))
        return np.array(weight.numpy())

    want = trained("cpu", "cpu")
    for seed in range(3):
        with own_gpus("gfx942", 2, seed=seed) as (one, other):
            np.testing.assert_allclose(trained(str(one.id), str(other.id)), want, rtol=1e-4, atol=1e-6)
            assert one.reaches(other)


# --- streams ----------------------------------------------------------------------------------------------------------


def handed_over(seed: int, event: bool) -> float:
    """A thread doubles a tensor on a stream of its own; this one adds 1 to it, with or without waiting for an event."""
    with own_gpus("gfx942", seed=seed) as (gpu,):
        name = str(gpu.id)
        scale = pf.compile_kernel(SCALE, "scale", device=name)
        x = pf.tensor(np.full(100, 3.0, np.float32), device=name)
        pf.eval(x)
        stream, marks = pf.Stream(name), list[pf.Event]()
        given, seen = threading.Event(), threading.Event()

        def double() -> None:
            with pf.device(name), stream:
                scale(x, 2.0, 100, grid=1, block=128)
                marks.append(stream.record_event())
                given.set()
                seen.wait(60)  # leaving the block would order all that follows behind it

        thread = threading.Thread(target=double)
        thread.start()
        assert given.wait(60)
        with pf.device(name):
            if event:
                marks[0].wait()
            y = x + 1.0
            pf.eval(y)
        seen.set()
        thread.join()
        return float(y.numpy()[7])


@pytest.mark.slow
def test_a_missing_event_shows() -> None:
    assert {handed_over(seed, event=True) for seed in range(4)} == {7.0}
    assert 4.0 in {handed_over(seed, event=False) for seed in range(4)}


# --- what fails -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_runs_out_and_comes_back() -> None:
    with own_gpus("gfx942", nbytes=64 * MIB, pool="cached") as (gpu,), pf.device(str(gpu.id)):
        held = [pf.zeros(5 * MIB) + n for n in range(2)]  # 20 MiB each
        pf.eval(*held)
        dropped = pf.zeros(4 * MIB) + 1.0
        pf.eval(dropped)
        del dropped  # 16 MiB go to the cache
        more = pf.zeros(5 * MIB) + 2.0
        pf.eval(more)  # … and are given back for 20
        stats = pf.memory_stats()
        assert (stats.retries, stats.out_of_memory) == (1, 0)
        with pytest.raises(ROCmMemoryError) as caught:
            pf.eval(pf.zeros(3 * MIB) * 2.0 + more.sum())
        for part in (
            f"[memory] expected 12 MiB on {gpu.id} but there is no room", "held 60 MiB", "cached ", "free ",
            "of 64 MiB", "Largest blocks in use: 3 x 20 MiB", "PYFLAME_SIM_MEMORY_MB",
        ):  # fmt: skip
            assert part in str(caught.value), (part, str(caught.value))
        assert pf.memory_stats().out_of_memory == 1
        held.clear()
        np.testing.assert_array_equal((more[:9] * 2.0).numpy(), np.full(9, 4.0))
        pf.eval(pf.zeros(9 * MIB) + 1.0)


def test_refused_kernels_show_the_line(sim: str) -> None:
    source = SCALE.replace("x[i] *= by;", "x[i] *= bye;")
    with pytest.raises(HIPCompilationError) as caught:
        pf.compile_kernel(source, "scale", device=sim)
    assert re.search(r">\s*3 \|   if \(i < n\) x\[i\] \*= bye;", str(caught.value)), str(caught.value)
    x = pf.tensor([1.0, 2.0], device=sim)
    pf.compile_kernel(SCALE, "scale", device=sim)(x, 3.0, 2, grid=1, block=32)
    assert x.tolist() == [3.0, 6.0]


@pytest.fixture
def broken(sim: str) -> Iterator[str]:
    yield sim
    services.reset_device(parse_device(sim))


def test_a_kernel_that_breaks_the_device(broken: str) -> None:
    """The error names it; other devices go on, and so does this one when it is reset."""
    elsewhere = "sim:gfx1100" if broken == "sim:gfx942" else "sim:gfx942"
    other = pf.tensor([1.0, 2.0, 3.0], device=elsewhere)
    pf.eval(other)
    x = pf.tensor(np.ones(100, np.float32), device=broken)
    pf.eval(x)
    pf.eval(x * 2.0)
    pf.compile_kernel(STRAY, "stray", device=broken)(x, 1 << 32, grid=1, block=64)  # 16 GiB behind x
    y = x + 1.0
    with pytest.raises(AMDDeviceFaultError) as caught:
        y.numpy()
    for part in ("[stray] expected a write", "inside an allocation", "Kernels launched last, newest first:", "stray"):
        assert part in str(caught.value), (part, str(caught.value))
    assert re.search(r"newest first: .*stray, (\w+_)?mul\w* \(k\w+\)", str(caught.value)), str(caught.value)
    with pytest.raises(AMDDeviceFaultError, match=f"expected {broken} to work but it broke before"):
        (pf.ones(3, device=broken) + 1.0).numpy()
    assert (other * 2.0).tolist() == [2.0, 4.0, 6.0]
    services.reset_device(parse_device(broken))
    again = pf.tensor(np.ones(100, np.float32), device=broken)
    pf.compile_kernel(SCALE, "scale", device=broken)(again, 2.0, 100, grid=1, block=128)
    np.testing.assert_array_equal((again + 1.0).numpy(), np.full(100, 3.0))


# --- looking and shipping ---------------------------------------------------------------------------------------------


def test_a_profile_sees_what_ran(sim: str) -> None:
    with pf.device(sim):
        x, w = pf.randn(12, 8), pf.randn(8, 5)
        pf.eval(x, w, pf.relu(x @ w).sum(1))
        with pf.profile() as p:
            for _ in range(3):
                got = pf.relu(x @ w).sum(1)
                pf.eval(got)
            got.numpy()
    found = {k.ops: k for k in p.kernels if k.kind == "kernel"}
    product = next(k for ops, k in found.items() if "matmul" in ops)
    assert (product.calls, product.device, product.implementation) == (3, sim, "gemm_gpu")
    assert product.flops >= 3 * 2 * 12 * 8 * 5
    assert {k.calls for k in found.values()} == {3}
    assert 0 < p.device_seconds[sim] <= p.seconds
    assert any(k.kind == "copy" and k.bytes == 48 for k in p.kernels)


@pytest.mark.slow(16)
def test_a_plan_made_ahead_of_time(sim: str, tmp_path: Path) -> None:
    """A training step, compiled without the device, saved, loaded and run on it: its state goes on from run to run."""
    rng = np.random.default_rng(0)
    x, y = pf.tensor(rng.standard_normal((6, 5), np.float32)), pf.tensor(rng.standard_normal((6, 2), np.float32))

    def step_of() -> tuple[Callable[[pf.Tensor, pf.Tensor], pf.Tensor], nn.Module]:
        pf.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 2))
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
            loss = pf.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, model

    target = sim.partition(":")[2]
    with pf.device("cpu"):
        pf.aot.compile(step_of()[0], x, y, target=target).save(tmp_path / "step.pfaot")
        step, _ = step_of()
        want = [step(x, y).item() for _ in range(4)]
    plan = pf.aot.load(tmp_path / "step.pfaot")
    with pf.device(sim):
        found = [plan.run(x, y).item() for _ in range(4)]
    plan.close()
    np.testing.assert_allclose(found, want, rtol=1e-5)
    assert want[3] < want[0]
