"""Libraries in plans, from tensors to replayed graphs, on an emulated GPU with libraries whose work is NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.engine.libraries import decide as libraries
from pyflame.engine.libraries import tuner
from pyflame.engine.libraries.calls import LtProducts
from pyflame.engine.libraries.trial import Trial, TrialBuffers
from pyflame.libs.rocm.hipblaslt import HipBlasLt
from pyflame.runtime.gpu.memory import DevicePool
from pyflame.schedule.split import alone
from tests.libs.bench import NAME, Bench, bench, explained, prefer, random
from tests.libs.hosts import Spoil
from tests.libs.numpy_lt import BLAS, HIP, Lt
from tests.libs.ways import every_way

__all__ = ["bench"]  # a fixture


def test_deterministic_goes_by_no_clock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a library that promises nothing, nor what was measured on another day."""
    prefer(monkeypatch, library=True)
    a, b = (pf.tensor(v, device=str(NAME)) for v in (random(24, 40), random(40, 16)))
    product = pf.jit(lambda x, y: x @ y)

    def launch() -> Any:
        return explained(lambda: a @ b)[0].launches[0]

    product(a, b)
    assert launch().implementation == "hipBLASLt"
    with pf.deterministic():
        assert launch().implementation == "gemm_gpu"
        assert "hipBLASLt is left out of deterministic work" in launch().why
        product(a, b)
        assert product.reasons[-1] == "another determinism"
        monkeypatch.setattr(HipBlasLt, "reproducible", True)
        bench.forget()
        monkeypatch.setattr(libraries, "expected_seconds", lambda launch, offer, target: 0.0 if offer is None else 1.0)
        assert launch().implementation == "gemm_gpu"  # though the file says that the library is faster
    bench.forget()
    assert launch().implementation == "hipBLASLt"


A, B, BIAS, C = random(24, 40), random(40, 16), random(16), random(24, 16)
# program, what NumPy says, implementation of each launch
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[str]]] = {
    "product": (lambda a, b, v, c: a @ b, lambda a, b, v, c: a @ b, ["lib"]),
    "transposed": (lambda a, b, v, c: (b.T @ a.T).T, lambda a, b, v, c: a @ b, ["lib"]),
    "bias": (lambda a, b, v, c: a @ b + v, lambda a, b, v, c: a @ b + v, ["lib"]),
    "bias of another dtype": (
        lambda a, b, v, c: a @ b + (v * 2.0 - 1.0),
        lambda a, b, v, c: a @ b + (v * 2 - 1),
        ["generated", "lib"],
    ),
    "relu": (lambda a, b, v, c: pf.relu(a @ b + v), lambda a, b, v, c: np.maximum(a @ b + v, 0), ["lib with relu"]),
    "sum": (lambda a, b, v, c: c + a @ b, lambda a, b, v, c: c + a @ b, ["lib"]),
    "sum and bias": (lambda a, b, v, c: a @ b + v + c, lambda a, b, v, c: c + a @ b + v, ["lib"]),
    "what no library knows": (
        lambda a, b, v, c: pf.tanh(a @ b + v) * c,
        lambda a, b, v, c: np.tanh(a @ b + v) * c,
        ["lib", "generated"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_epilogues(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The library does what it knows, generated launches the rest, and the result is the same."""
    prefer(monkeypatch, library=True)
    program, reference, wanted = CASES[name]
    tensors = [pf.tensor(v, device=str(NAME)) for v in (A, B, BIAS, C)]
    report, got = explained(lambda: program(*tensors))
    np.testing.assert_allclose(got, reference(A, B, BIAS, C), rtol=1e-4, atol=1e-4)
    found = [x.implementation.replace("hipBLASLt", "lib") for x in report.launches]
    assert found == wanted
    assert "measured 1 ms" in next(x.why for x in report.launches if "hipBLASLt" in x.implementation)
    assert bench.products._lt.ran[-1]["workspaceSizeInBytes"] in (0, 128)  # what the algorithm asked for


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dtypes_and_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Batches that one stride describes are one call, others one for each step; results may lie turned."""
    prefer(monkeypatch, library=True)
    tolerance = 2e-1 if dtype == "bfloat16" else 1e-4
    q, k = random(2, 6, 3, 8), random(2, 5, 3, 8)
    x, y = (pf.tensor(v, device=str(NAME)).to(getattr(pf, dtype)) for v in (q, k))
    pf.eval(x, y)
    programs = (
        (lambda: x.permute(0, 2, 1, 3) @ y.permute(0, 2, 3, 1), lambda: np.einsum("bthd,bshd->bhts", q, k), 2),
        (
            lambda: (x.permute(0, 2, 1, 3) @ y.permute(0, 2, 3, 1)).permute(0, 2, 1, 3).reshape(2, 6, 15),
            lambda: np.einsum("bthd,bshd->bths", q, k).reshape(2, 6, 15),
            2,
        ),
        (lambda: x.reshape(12, 24) @ y.reshape(10, 24).T, lambda: q.reshape(12, 24) @ k.reshape(10, 24).T, 1),
        (lambda: x.reshape(2, 6, 24) @ y[0].reshape(5, 24).T, lambda: q.reshape(2, 6, 24) @ k[0].reshape(5, 24).T, 1),
        (
            lambda: (x.reshape(12, 24) @ y.reshape(10, 24).T).to(pf.float32),
            lambda: q.reshape(12, 24) @ k.reshape(10, 24).T,
            1,
        ),
    )
    for program, reference, count in programs if dtype == "float32" else programs[-2:]:
        report, got = explained(program)
        np.testing.assert_allclose(got.astype(np.float64), reference(), rtol=tolerance, atol=tolerance)
        (launch,) = [r for r in report.launches if "matmul" in r.ops]
        assert launch.implementation == "hipBLASLt", launch.why
        before = len(bench.products._lt.ran)
        program().numpy()
        assert len(bench.products._lt.ran) - before == count


def test_what_no_library_reads_is_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)
    x = pf.tensor(random(12, 16), device=str(NAME))
    for program, reference in (
        (lambda: x[:, ::2] @ x[:8, :], random(12, 16)[:, ::2] @ random(12, 16)[:8]),  # every second element
        (lambda: x.to(pf.int32) @ x.T.to(pf.int32), None),
    ):
        report, got = explained(program)
        assert report.launches[-1].implementation == "gemm_gpu"
        assert report.launches[-1].why == "own tiled GEMM; hipBLASLt does not take it"
        if reference is not None:
            np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-5)


def test_the_choice_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured once; another process finds the answer in the file and tries nothing out."""
    prefer(monkeypatch, library=True)
    x = pf.tensor(A, device=str(NAME))
    first, _ = explained(lambda: x @ x.T)
    (name,) = bench.records
    assert name.startswith("matmul | 1x24x24x40 | float32 -> float32 | rows columns | rocm emulated gfx942 304")
    assert bench.records[name]["winner"] == "hipBLASLt"
    bench.forget()
    monkeypatch.setattr("pyflame.engine.libraries.trial.TrialBuffers.__init__", None)  # nothing may be tried
    again, got = explained(lambda: x @ x.T)
    assert again.launches[0].why == first.launches[0].why
    assert again.launches[0].why == "measured 1 ms; hipBLASLt, proposal 2 1 ms; gemm_gpu 2 ms"
    np.testing.assert_allclose(got, A @ A.T, rtol=1e-4, atol=1e-4)


def test_ours_may_win(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=False)
    x = pf.tensor(A, device=str(NAME))
    report, _ = explained(lambda: pf.relu(x @ x.T))
    (launch,) = report.launches
    assert launch.implementation == "gemm_gpu"
    assert launch.why.startswith("own tiled GEMM; measured 1 ms; hipBLASLt 2 ms")


@pytest.mark.parametrize(("hopeless", "rounds"), [(1e9, 3), (1e-9, 1)], ids=["all", "the first"])
def test_times_are_of_graphs(bench: Bench, monkeypatch: pytest.MonkeyPatch, hopeless: float, rounds: int) -> None:
    """With nothing faked: both ways run, are captured and timed, and one wins. What is far behind gets no rounds."""
    monkeypatch.setattr("pyflame.engine.libraries.trial.HOPELESS", hopeless)
    x = pf.tensor(A, device=str(NAME))
    graphs = len(bench.device.driver.graphs)
    report, got = explained(lambda: x @ x.T)
    assert len(bench.device.driver.graphs) == graphs + 3 + rounds  # single runs, then rounds: ours and two proposals
    assert "measured" in report.launches[0].why and "ms" in report.launches[0].why
    np.testing.assert_allclose(got, A @ A.T, rtol=1e-4, atol=1e-4)


# --- libraries that cannot be trusted ---------------------------------------------------------------------------------


def one_wrong(result: np.ndarray[Any, Any]) -> None:
    result[3, 5] += 1


def no_number(result: np.ndarray[Any, Any]) -> None:
    result[-1, -1] = np.nan


def too_far(result: np.ndarray[Any, Any]) -> None:
    longer = np.lib.stride_tricks.as_strided(result, (result.size + 8,), (result.itemsize,))
    longer[-3] = 0


def failing(result: np.ndarray[Any, Any]) -> None:
    raise RuntimeError("no kernel image")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (one_wrong, r"hipBLASLt 1.4.2 gave a wrong result on rocm emulated gfx942 304 .*matmul 1x24x24x40 .*error"),
        (no_number, r"hipBLASLt 1.4.2 gave a wrong result .*error inf"),
        (too_far, r"hipBLASLt 1.4.2 gave a wrong result .*it wrote behind its buffer"),
        (failing, r"hipBLASLt 1.4.2 failed for matmul 1x24x24x40 .*no kernel image"),
    ],
)
def test_refusals(bench: Bench, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, words: str) -> None:
    prefer(monkeypatch, library=True)
    bench.spoil = spoil
    x = pf.tensor(A, device=str(NAME))
    with pytest.warns(RuntimeWarning, match=words) as caught:
        report, got = explained(lambda: x @ x.T)
    assert len([w for w in caught if "[tuner]" in str(w.message)]) == 1
    assert report.launches[0].implementation == "gemm_gpu"
    assert "hipBLASLt refused: " in report.launches[0].why
    np.testing.assert_allclose(got, A @ A.T, rtol=1e-4, atol=1e-4)
    if spoil is failing:
        return
    # It is not asked again for this op and dtype: not for other shapes, nor by another process.
    bench.forget()
    monkeypatch.setattr("pyflame.engine.libraries.trial.TrialBuffers.__init__", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report, _ = explained(lambda: x.T @ x)
    assert report.launches[0].implementation == "gemm_gpu"


VIEWS: dict[str, tuple[Callable[[pf.Tensor], pf.Tensor], Callable[[pf.Tensor], pf.Tensor]]] = {
    "rows apart": (lambda v: v[0, 0, :40, :16], lambda v: pf.tensor(random(24, 40)) @ v),
    "images apart": (lambda v: v[:, :4], lambda v: pf.conv2d(v, pf.tensor(random(4, 4, 3, 3)))),
    "flipped taps": (
        lambda v: pf.flip(v[:, :4, :3, :3], (2, 3)).transpose(0, 1),
        lambda v: pf.conv2d(pf.tensor(random(2, 2, 5, 5)), v, padding=1),
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_tried_on_numbers(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An evaluated view reaches beyond its own size, a flipped one before its address: there lie numbers too."""
    view, compute = VIEWS[name]
    seen = view(pf.tensor(random(2, 50, 50, 50)))
    pf.eval(seen)
    tried = []

    def decide(plan: Any, contest: Any, device: Any) -> tuner.Choice:
        product = alone(plan, contest.number)
        ((_, store),) = product.launches[0].kernel.stores
        buffers = TrialBuffers(device, product)
        Trial(buffers, product, {}).start()
        tried.append(buffers.result(store.buffer, store.dtype))
        assert not buffers.trespassed()
        return tuner.Choice(plan.launches[contest.number].implementation)

    monkeypatch.setattr(libraries, "_decide", decide)
    compute(seen).numpy()
    (result,) = tried
    assert np.isfinite(result).all()


def test_a_wrong_product_of_a_view_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)
    bench.spoil = one_wrong
    rows = pf.tensor(random(40, 50))[:, :16]
    pf.eval(rows)
    with pytest.warns(RuntimeWarning, match="hipBLASLt 1.4.2 gave a wrong result"):
        (pf.tensor(random(24, 40)) @ rows).numpy()


def test_an_activation_that_hides_nan_is_not_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own relu makes 0 of NaN; then it does the product alone, and nobody is alarmed."""
    prefer(monkeypatch, library=True)
    monkeypatch.setattr("tests.libs.numpy_lt.np.maximum", lambda a, b: np.where(a > b, a, b))
    x = pf.tensor(A, device=str(NAME))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report, got = explained(lambda: pf.relu(x @ x.T))
    assert [r.implementation for r in report.launches] == ["hipBLASLt", "generated"]
    assert "hipBLASLt with relu refused: wrong" in report.launches[0].why
    np.testing.assert_allclose(got, (A @ A.T).clip(0), rtol=1e-4, atol=1e-4)


def test_missing_libraries(bench: Bench) -> None:
    def missing(device: Any) -> Any:
        raise OSError("libhipblaslt.so: cannot open shared object file")

    bench.use({"matmul": {"hipBLASLt": missing}})
    x = pf.tensor(A, device=str(NAME))
    report, _ = explained(lambda: x @ x.T)
    assert (
        report.launches[0].why
        == "own tiled GEMM; hipBLASLt is missing: libhipblaslt.so: cannot open shared object file"
    )


def test_a_library_that_fails_before_it_works(bench: Bench) -> None:
    broken = HipBlasLt(Lt("HIPBLAS_STATUS_INTERNAL_ERROR"), BLAS, HIP)
    bench.use({"matmul": {"hipBLASLt": lambda device: LtProducts(broken)}})
    x = pf.tensor(A, device=str(NAME))
    with pytest.warns(RuntimeWarning, match="hipBLASLt on rocm:60 failed .*HIPBLAS_STATUS_INTERNAL_ERROR"):
        report, got = explained(lambda: x @ x.T)
    assert "hipBLASLt is missing: [hipBLASLt] expected algorithms" in report.launches[0].why
    np.testing.assert_allclose(got, A @ A.T, rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explained(lambda: x.T @ x)  # not asked again


# --- settings ---------------------------------------------------------------------------------------------------------


def test_libraries_can_be_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_LIBRARIES", "none")
    x = pf.tensor(A, device=str(NAME))
    report, _ = explained(lambda: x @ x.T)
    assert (report.launches[0].implementation, report.launches[0].why) == ("gemm_gpu", "own tiled GEMM")
    assert not bench.file.exists()


@pytest.mark.slow
def test_attention_is_one_kernel_where_no_library_does_its_products(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, library=True)
    x = pf.tensor(random(1, 2, 9, 8), device=str(NAME))

    def attended() -> tuple[dict[str, str], np.ndarray[Any, Any]]:
        report, got = explained(lambda: pf.scaled_dot_product_attention(x, x, x, is_causal=True))
        return {launch.implementation: launch.why for launch in report.launches}, got

    decomposed, wanted = attended()
    assert "hipBLASLt" in decomposed and "flash_gpu" not in decomposed
    with monkeypatch.context() as patch:  # more scores than may be in memory
        patch.setattr("pyflame.kernels.attention_gpu.SCORES_BYTES", 4 * 2 * 9 * 9 - 1)
        bench.forget()
        assert "flash_gpu" in attended()[0]
    bench.forget()
    with pf.deterministic():  # which this library does not promise to be
        assert "flash_gpu" in attended()[0]
    monkeypatch.setenv("PYFLAME_LIBRARIES", "none")
    bench.forget()
    fused, got = attended()
    assert fused == {"flash_gpu": "own blocks of scores, never stored; no library does products here"}
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    step = pf.jit(lambda x: pf.scaled_dot_product_attention(x, x, x, is_causal=True))
    assert {launch.implementation for launch in pf.explain(step, x).launches} == {"flash_gpu"}


@pytest.mark.slow
def test_expectations_decide_without_measurements(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_TUNE", "0")
    monkeypatch.setattr("pyflame.engine.libraries.trial.Trial.seconds", None)  # nothing may be timed
    large, small = (pf.tensor(random(n, n), device=str(NAME)).to(pf.bfloat16) for n in (256, 8))
    pf.eval(large, small)
    monkeypatch.setattr("pyflame.engine.libraries.decide.expected_seconds", lambda launch, offer, target: offer is None)
    report, _ = explained(lambda: large @ large)
    assert report.launches[0].implementation == "hipBLASLt"
    assert report.launches[0].why == "expected to be the fastest"
    assert [n.split(" | ")[0] for n in bench.records] == ["checked"]
    bench.spoil = one_wrong
    with pytest.warns(RuntimeWarning, match="gave a wrong result"):
        report, _ = explained(lambda: small @ small)
    assert report.launches[0].implementation == "gemm_gpu"


def test_what_is_expected() -> None:
    """Large products of 16 bits are the library's; small ones of float32 with much behind them are ours."""
    for size, dtype, ours in ((4096, "bfloat16", False), (16, "float32", True)):
        with pf.device("null:gfx942"):
            x = pf.zeros(size, size).to(getattr(pf, dtype))
            pf.eval(x)
            plan = libraries_plan(pf.tanh(x @ x) * x)
        from pyflame.schedule.split import Way, takes

        launch = next(y for y in plan.launches if y.kernel.anchor)
        offer = libraries.Offer(None, Way(takes(launch.kernel)[0], False), plan, 1, 1.0, False)  # type: ignore[arg-type]
        target = devices.get_device(DeviceId("null", 0, "gfx942")).target
        times = [libraries.expected_seconds(launch, o, target) for o in (None, offer)]
        assert (times[0] < times[1]) == ours


def libraries_plan(tensor: pf.Tensor) -> Any:
    from pyflame.engine.evaluate import PendingGraph
    from pyflame.engine.planning import draft_plan

    return draft_plan(PendingGraph([tensor._node]), devices.get_device(tensor._node.meta.device).target)


def test_float32_stays_float32_unless_allowed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)
    x = pf.tensor(A, device=str(NAME))

    def kinds() -> set[str]:
        report, _ = explained(lambda: x @ x.T)
        assert report.launches[0].implementation == "hipBLASLt"
        return {r["matmulDesc"].computeType.name for r in bench.products._lt.ran}

    assert kinds() == {"HIPBLAS_COMPUTE_32F"}
    pf.set_float32_matmul_precision("high")
    try:
        bench.products._lt.ran.clear()
        assert kinds() == {"HIPBLAS_COMPUTE_32F_FAST_TF32"}
    finally:
        pf.set_float32_matmul_precision("highest")
    assert {n.split(" | ")[2] for n in bench.records} == {"float32 -> float32", "tf32 -> float32"}
    with pytest.raises(pf.ArgumentError, match="expected one of highest, high, medium"):
        pf.set_float32_matmul_precision("low")


# --- whole programs ---------------------------------------------------------------------------------------------------


def trained(model: Callable[[], nn.Module], shape: tuple[int, ...], steps: int = 4) -> tuple[list[float], Any]:
    pf.manual_seed(3)
    made = model()
    optimizer = optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    x, y = pf.tensor(rng.standard_normal(shape, dtype=np.float32)), pf.tensor(rng.integers(0, 3, shape[0]))

    @pf.jit
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        loss = pf.cross_entropy(made(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [step(x, y).item() for _ in range(steps)]
    (traced,) = step.cache[next(iter(step.cache))]
    return losses, traced


@pytest.mark.slow
def test_training_replays_library_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))

    losses, traced = trained(model, (8, 5))
    assert traced.runner.why == "replayed as a graph"
    products = [x for x in traced.plan.launches if x.kernel.anchor is not None]
    assert len(products) == 5 and all("hipBLASLt" in x.implementation for x in products)
    given, launches = len(bench.products._lt.ran), bench.device.driver.launches
    with pf.device("cpu"):
        want, _ = trained(model, (8, 5))
    np.testing.assert_allclose(losses, want, rtol=1e-4)
    assert len(bench.products._lt.ran) == given and bench.device.driver.launches == launches


def test_replays_do_not_call_the_library(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)
    weight = pf.tensor(B, device=str(NAME))
    product = pf.jit(lambda x: pf.tanh(x @ weight))
    given = []
    for n in range(5):
        x = A + np.float32(n)
        np.testing.assert_allclose(product(pf.tensor(x)).numpy(), np.tanh(x @ B), rtol=1e-3, atol=1e-4)
        given.append(len(bench.products._lt.ran))
    assert given[1] > given[0] and given[2] == given[3] == given[4]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("options", "x", "w"),
    [
        (dict(padding=2, dilation=2, groups=2), (2, 4, 7, 6), (6, 2, 3, 3)),
        (dict(stride=(2, 1), padding=1), (2, 3, 7, 6), (4, 3, 3, 3)),
        (dict(padding=1), (2, 1, 7, 6), (4, 1, 3, 3)),
    ],
    ids=["dilation and groups", "stride", "one channel"],
)
def test_convolutions(bench: Bench, monkeypatch: pytest.MonkeyPatch, options: Any, x: Any, w: Any, layout: str) -> None:
    """Forward and both gradients are the library's, in either order, which leaves its result where it is wanted."""
    prefer(monkeypatch, library=True)
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", layout)

    def gradients() -> list[np.ndarray[Any, Any]]:
        a, b, v = pf.tensor(random(*x)), pf.tensor(random(*w)), pf.tensor(random(w[0]))

        def loss(a: pf.Tensor, b: pf.Tensor) -> pf.Tensor:
            return (pf.relu(pf.conv2d(a, b, v, **options)) ** 2).sum()

        value, (da, db) = pf.value_and_grad(loss, (0, 1))(a, b)
        return [np.array(t.numpy()) for t in (value, da, db)]

    got = gradients()
    with pf.device("cpu"):
        want = gradients()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
    assert {d for d, _ in bench.convolutions.asked} == {"forward", "backward_data", "backward_filter"}
    assert {s.groups for _, s in bench.convolutions.asked} == {options.get("groups", 1)}
    assert {s.channels_last for _, s in bench.convolutions.asked} == {layout == "nhwc"}


def test_convolutions_are_deterministic_on_demand(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, library=True)
    x, w = pf.tensor(random(1, 4, 9, 9)), pf.tensor(random(4, 4, 3, 3))
    want = pf.conv2d(x, w).numpy()
    assert bench.convolutions.asked and not bench.convolutions.deterministic
    bench.convolutions.asked.clear()
    with pf.deterministic():
        np.testing.assert_allclose(pf.conv2d(x, w).numpy(), want, rtol=1e-5, atol=1e-5)
    assert bench.convolutions.asked and bench.convolutions.deterministic


def test_memory_that_is_taken_over_is_read_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's new value, a product, lies where the old one lay, which the rest of the launch still reads."""
    prefer(monkeypatch, library=True)
    start = random(16, 16)
    weight, cell = pf.tensor(random(16, 16), device=str(NAME)), pf.tensor(start, device=str(NAME)) + 0.0
    pf.eval(weight, cell)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        old = cell.clone()
        cell.copy_(x @ weight)
        return pf.tanh(x @ weight) - old

    x, want = random(16, 16) / 4, start
    given = pf.tensor(x, device=str(NAME))
    for _ in range(4):
        np.testing.assert_allclose(step(given).numpy(), np.tanh(x @ random(16, 16)) - want, rtol=1e-4, atol=1e-4)
        want = x @ random(16, 16)
    np.testing.assert_allclose(cell.numpy(), want, rtol=1e-4, atol=1e-4)


def test_addresses_that_lie_askew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library is promised an alignment; where memory misses it our own kernel runs."""
    prefer(monkeypatch, library=True)
    flat = pf.tensor(random(1, 66), device=str(NAME))
    one = pf.eye(8, device=str(NAME))
    pf.eval(flat, one)
    for start, by_library in ((1, False), (0, True)):
        part = flat[0, start : 65 + start]  # a view of a view: the same plan, at another address
        pf.eval(part)
        want = random(1, 66)[0, start : start + 64].reshape(8, 8)
        (part[:64].reshape(8, 8) @ one).numpy()
        given = len(bench.products._lt.ran)
        got = (part[:64].reshape(8, 8) @ one).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5)
        assert (len(bench.products._lt.ran) > given) == by_library


@pytest.mark.slow
def test_plans_made_ahead_of_time_have_no_libraries(bench: Bench) -> None:
    plan = pf.aot.compile(lambda a, b: pf.relu(a @ b), pf.zeros(8, 8), pf.zeros(8, 8), target="gfx942")
    assert [x.implementation for x in plan.launches] == ["gemm_gpu"]
    assert not bench.file.exists()


def test_every_way_is_right(bench: Bench) -> None:
    """What `tests/gpu/test_plans_with_libraries.py` does on a real GPU."""
    a, b, v = (pf.tensor(x, device=str(NAME)) for x in (A, B, BIAS))
    found = dict(every_way(pf.relu(a @ b + v)))
    assert list(found) == [
        "gemm_gpu", "hipBLASLt with relu", "hipBLASLt with relu, proposal 2", "hipBLASLt", "hipBLASLt, proposal 2",
    ]  # fmt: skip
    for name, got in found.items():
        np.testing.assert_allclose(got, np.maximum(A @ B + BIAS, 0), rtol=1e-4, atol=1e-4, err_msg=name)


def test_products_in_exact_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial finds room for what a divided launch leaves for the one behind it, also where there is no arena."""
    prefer(monkeypatch, library=True)
    monkeypatch.setattr(bench.device, "pool", DevicePool(bench.device.guard, NAME.index, exact=True))
    a, b = random(12, 24, dtype="float64"), random(24, 10, dtype="float64")
    report, got = explained(lambda: (pf.tensor(a) @ pf.tensor(b)).to(pf.float32))
    assert [r.implementation for r in report.launches] == ["hipBLASLt", "generated"]
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("small", [True, False])
def test_small_launches_of_many_sizes_are_not_tried_out(
    small: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that grows would try out each length once."""
    prefer(monkeypatch, library=True)
    if not small:
        monkeypatch.setattr(libraries, "SMALL_FLOPS", 0)
    b = pf.tensor(B, device=str(NAME))
    for rows in range(3, 15):
        a = random(rows, 40)
        product, want = pf.tensor(a, device=str(NAME)) @ b, a @ B
        np.testing.assert_allclose(product.numpy(), want, rtol=1e-5, atol=1e-5)
    assert len([key for key in bench.records if key.startswith("matmul")]) == (8 if small else 12)
    monkeypatch.setattr(pf.core.state.state, "many_sizes", True)
    report = pf.explain(pf.tensor(random(20, 40), device=str(NAME)) @ b, run=False)
    assert ("nothing was tried out" in report.launches[0].why) == small


def test_a_call_must_gain_what_it_takes_the_host(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host gives launches one by one; a jitted function's are replayed."""

    def seconds(self: Any, best: float) -> float:
        self.start()
        return 2e-6 if any(not isinstance(run, list) for run in self._executable._runs) else 9e-6

    monkeypatch.setattr("pyflame.engine.libraries.trial.Trial.seconds", seconds)
    a, b = (pf.tensor(v, device=str(NAME)) for v in (A, B))
    (launch,) = pf.explain(a @ b, run=False).launches
    assert launch.implementation == "gemm_gpu" and "faster by less than its call takes the host" in launch.why
    product = pf.jit(lambda x, y: x @ y)
    product(a, b)
    (launch,) = pf.explain(product, a, b).launches
    assert launch.implementation == "hipBLASLt"
