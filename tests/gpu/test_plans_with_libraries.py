"""cuBLASLt and cuDNN in plans, on a real NVIDIA GPU: every way to run a product against float64, lies, graphs, TF32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import clear_plans
from pyflame.engine.libraries import decide as libraries
from pyflame.engine.libraries import tuner
from pyflame.ir.kernel import LibraryCall as Call
from pyflame.runtime.cuda.driver import CudaDriver
from tests.gpu.nvidia import absent
from tests.libs.ways import every_way

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

GPU = DeviceId("cuda", 0)
DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
# Of the largest result: about two units in the last place of what is stored.
TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A tuner that knows nothing, on the GPU."""
    monkeypatch.setattr(tuner, "_shared", [tuner.Tuner(tmp_path / "tuning.json")])
    clear_plans()
    with pf.device(str(GPU)):
        yield
    pf.set_float32_matmul_precision("highest")
    clear_plans()


def numbers(*shape: int, dtype: str = "float32") -> tuple[pf.Tensor, np.ndarray[Any, Any]]:
    """A tensor on the GPU, and the same in float64."""
    array = np.random.default_rng(sum(shape)).standard_normal(shape).astype(DTYPES[dtype])
    made = pf.tensor(array, device=str(GPU))
    pf.eval(made)
    return made, array.astype(np.float64)


def check(
    tensor: pf.Tensor, want: np.ndarray[Any, Any], tolerance: float, op: str = "matmul", least: int = 2
) -> list[str]:
    """All ways give what is wanted; there are so many at least."""
    names = []
    for name, got in every_way(tensor, op):
        far = np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-30)
        assert far <= tolerance, f"{name}: {far:.3g} of the largest result"
        names.append(name)
    print(names)
    assert len(names) >= least, names
    return names


def gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 1000, 513), (1000, 1, 513), (7, 5, 3), (257, 129, 65), (513, 1024, 2047)]
)
def test_awkward_shapes(dtype: str, m: int, n: int, k: int) -> None:
    (a, x), (b, y), (c, z) = (numbers(*s, dtype=dtype) for s in ((m, k), (n, k), (k, n)))
    least = 1 if m == n == k == 1 else 2  # of a single number a library may think that it is none of its business
    check(a @ b.T, x @ y.T, TOLERANCE[dtype], least=least)
    check(a @ c, x @ z, TOLERANCE[dtype], least=least)
    check((c.T @ a.T).T, x @ z, TOLERANCE[dtype], least=least)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(dtype: str) -> None:
    (q, x), (k, y) = numbers(3, 70, 4, 24, dtype=dtype), numbers(3, 50, 4, 24, dtype=dtype)
    scores = q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)
    check(scores, np.einsum("bthd,bshd->bhts", x, y), TOLERANCE[dtype])
    turned = (q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)).permute(0, 2, 1, 3).reshape(3, 70, 200)
    check(turned, np.einsum("bthd,bshd->bths", x, y).reshape(3, 70, 200), TOLERANCE[dtype])
    check(q @ k[0, 0, 0].reshape(24, 1), x @ y[0, 0, 0].reshape(24, 1), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_epilogues(dtype: str) -> None:
    (a, x), (b, y) = numbers(200, 96, dtype=dtype), numbers(96, 136, dtype=dtype)
    (v, bias), (c, addend) = numbers(136, dtype=dtype), numbers(200, 136, dtype=dtype)
    tolerance = TOLERANCE[dtype]
    check(a @ b + v, x @ y + bias, tolerance)
    check(c + a @ b, addend + x @ y, tolerance)
    names = check(pf.relu(a @ b + v), np.maximum(x @ y + bias, 0), tolerance)
    assert "cuBLASLt with relu" in names
    # The library's tanh may be the hardware's approximation: then the tuner refuses it in float32.
    names = check(pf.gelu(a @ b + v, "tanh"), gelu(x @ y + bias), max(tolerance, 1e-3))
    assert dtype == "float32" or "cuBLASLt with gelu" in names
    check(pf.tanh(a @ b + v) * c, np.tanh(x @ y + bias) * addend, 2 * tolerance)
    check((a @ b).to(pf.float32) + v.to(pf.float32), x @ y + bias, tolerance)
    check(a @ b + (v.to(pf.float32) * 2.0).to(getattr(pf, dtype)), x @ y + 2 * bias, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_choices(dtype: str) -> None:
    """Whatever wins is right, says why, and is not measured again."""
    (a, x), (b, y), (v, bias) = (numbers(*s, dtype=dtype) for s in ((512, 1024), (1024, 768), (768,)))
    for program, want in (
        (lambda: a @ b, x @ y),
        (lambda: pf.relu(a @ b + v), np.maximum(x @ y + bias, 0)),
        (lambda: pf.gelu(a @ b + v, "tanh"), gelu(x @ y + bias)),
    ):
        out = program()
        report = pf.explain(out, run=False)
        print(report)
        assert any("measured" in launch.why for launch in report.launches)
        assert any("cuBLASLt" in launch.implementation + launch.why for launch in report.launches)
        far = np.abs(out.numpy().astype(np.float64) - want).max() / np.abs(want).max()
        assert far <= max(TOLERANCE[dtype], 1e-5)
    clear_plans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyflame.engine.libraries.trial.TrialBuffers.__init__", None)  # nothing may be tried again
        (a @ b).numpy()


def test_what_nan_becomes() -> None:
    """Our relu keeps NaN. If the library's does not, it must not be used; either way the plan's result keeps it."""
    a = np.ones((64, 64), np.float32)
    a[3, 3] = np.nan
    got = pf.relu(pf.tensor(a, device=str(GPU)) @ pf.eye(64)).numpy()
    assert np.isnan(got[3]).all() and not np.isnan(np.delete(got, 3, 0)).any()


def prefer_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is right ours is the last choice."""
    monkeypatch.setattr(tuner, "_handicap", lambda candidate: 1e9 if candidate.ours else 1.0)


def test_a_library_that_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    device = get_device(GPU)
    real = libraries.OPENERS[CudaDriver]["matmul"]["cuBLASLt"](device)

    class Lying:
        name, version, reproducible = "Liar", real.version, True

        def offers(self, gemm: Any) -> list[Call]:
            return [self._lying(call) for call in real.offers(gemm)]

        def _lying(self, call: Call) -> Call:
            def start(addresses: Any, workspace: int, stream: int) -> None:
                call.start(addresses, workspace, stream)
                device.fill(addresses[2] + 512, 0x41, 4)

            return call._replace(library="Liar", start=start)

    monkeypatch.setitem(libraries.OPENERS, CudaDriver, {"matmul": {"Liar": lambda device: Lying()}})
    monkeypatch.setattr(libraries, "_libraries", type(libraries._libraries)())
    prefer_libraries(monkeypatch)
    (a, x), (b, y) = numbers(256, 128), numbers(128, 192)
    out = a @ b
    with pytest.warns(RuntimeWarning, match="Liar .* gave a wrong result .*error"):
        report = pf.explain(out, run=False)
    assert report.launches[0].implementation == "gemm_gpu" and "Liar refused" in report.launches[0].why
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=0, atol=1e-3)


def test_graphs_hold_library_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jitted step is replayed with the library's kernels inside; state and arguments change, results follow."""
    prefer_libraries(monkeypatch)
    (weight, w), (cell, start) = numbers(256, 256, dtype="bfloat16"), numbers(64, 256, dtype="bfloat16")
    cell = cell + 0.0
    pf.eval(cell)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        y = pf.relu(x @ weight) * 0.125
        cell.copy_(cell * 0.5 + y)
        return y

    want = start
    for n in range(6):
        x, exact = numbers(64, 256, dtype="bfloat16")
        x, exact = x * float(n % 3), exact * (n % 3)  # exact in bfloat16 but for a bit
        got = step(x).numpy().astype(np.float64)
        y = np.maximum(exact @ w, 0) * 0.125
        want = want * 0.5 + y
        assert np.abs(got - y).max() <= 2e-2 * max(np.abs(y).max(), 1.0)
        assert np.abs(cell.numpy().astype(np.float64) - want).max() <= 5e-2 * np.abs(want).max()
    (traced,) = step.cache[next(iter(step.cache))]
    assert traced.runner.why == "replayed as a graph"
    assert any("cuBLASLt" in launch.implementation for launch in traced.plan.launches), pf.explain(step, x, run=False)


def test_tf32_only_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    (a, x), (b, y) = numbers(1024, 1024), numbers(1024, 1024)
    want = x @ y

    def errors() -> dict[str, float]:
        return {n: float(np.abs(g - want).max() / np.abs(want).max()) for n, g in every_way(a @ b)}

    exact = errors()
    assert max(exact.values()) < 1e-5, exact
    pf.set_float32_matmul_precision("high")
    rounded = errors()
    assert 5e-5 < rounded["gemm_gpu"] < 2e-3, rounded
    assert 5e-5 < rounded["cuBLASLt"] < 2e-3, rounded


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((4, 16, 20, 24), (32, 16, 3, 3), dict(padding=1)),
    "stride and dilation": ((2, 8, 31, 29), (16, 8, 3, 5), dict(stride=(2, 3), padding=(2, 1), dilation=(2, 1))),
    "groups": ((2, 12, 14, 14), (24, 3, 3, 3), dict(padding=1, groups=4)),
    "1x1": ((3, 64, 9, 9), (32, 64, 1, 1), {}),
}


def convolved(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], options: dict[str, Any]) -> np.ndarray[Any, Any]:
    """In float64 on the CPU, whose kernels are tested against torch."""
    with pf.device("cpu"):
        return np.array(pf.conv2d(pf.tensor(x), pf.tensor(w), **options).numpy())


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_convolutions(name: str, dtype: str) -> None:
    shape, taps, options = CONVOLUTIONS[name]
    (a, x), (b, w) = numbers(*shape, dtype=dtype), numbers(*taps, dtype=dtype)
    tolerance = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}[dtype]
    channels_last = dtype != "float32"  # where one tap is a product
    op = "matmul" if channels_last and name == "1x1" else "conv_general"
    check(pf.conv2d(a, b, **options), convolved(x, w, options), tolerance, op)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions(name: str) -> None:
    shape, taps, options = CONVOLUTIONS[name]
    (a, x), (b, w) = numbers(*shape), numbers(*taps)

    def gradients(a: pf.Tensor, b: pf.Tensor) -> list[np.ndarray[Any, Any]]:
        def loss(a: pf.Tensor, b: pf.Tensor) -> pf.Tensor:
            return (pf.conv2d(a, b, **options) ** 2).sum()

        _, found = pf.value_and_grad(loss, (0, 1))(a, b)
        return [np.array(g.numpy()) for g in found]

    got = gradients(a, b)
    with pf.device("cpu"):
        want = gradients(pf.tensor(x), pf.tensor(w))
    for left, right in zip(got, want, strict=True):
        assert np.abs(left - right).max() <= 5e-5 * np.abs(right).max()


def test_a_training_step_in_bf16() -> None:
    """Losses of a small GPT, with libraries and without, go down alike."""
    from pyflame import nn, optim

    def losses() -> list[float]:
        pf.manual_seed(1)
        model = nn.GPT(nn.GPTConfig(vocab_size=101, context=64, layers=2, heads=4, width=64)).to(pf.bfloat16)
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        tokens = pf.tensor(np.random.default_rng(0).integers(0, 101, (8, 65)))

        @pf.jit
        def step(tokens: pf.Tensor) -> pf.Tensor:
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return [step(tokens).to(pf.float32).item() for _ in range(8)]

    with_libraries = losses()
    clear_plans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYFLAME_LIBRARIES", "none")
        without = losses()
    np.testing.assert_allclose(with_libraries, without, rtol=3e-2)
    assert with_libraries[-1] < with_libraries[0]


def test_order_of_streams() -> None:
    """Kernels and calls that depend on each other, given at once, keep their order."""
    a, x = numbers(128, 128, dtype="float64")
    out, want = a, x
    for n in range(1, 7):
        out, want = pf.tanh(out @ a) * float(n), np.tanh(want @ x) * n
    assert np.abs(out.numpy() - want).max() < 1e-6
