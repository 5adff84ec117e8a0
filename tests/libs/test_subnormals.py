"""gfx90a multiplies float16 with subnormals as zeros: gradients go to a library that is asked not to, and shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.engine.evaluate import clear_plans
from pyflame.engine.libraries import decide, tuner
from pyflame.engine.libraries.calls import LtProducts, MiopenConvolutions, RocblasProducts
from pyflame.ir.graph import Graph
from pyflame.libs.gemm import GemmSpec
from pyflame.libs.rocm.rocblas import ROCmBLAS
from tests.emulated import EmulatedDriver, emulated_device
from tests.libs.hosts import HostDnn, array_at, host_lt

COMPOSED = ("linear", "matmul_of_rows")
TINY = 2.0**-14  # the smallest normal number of float16


def flushed(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As gfx90a's MFMA_F16 reads it."""
    return np.where(np.abs(x) < TINY, 0, x).astype(np.float32)


class HostBlas:
    """rocBLAS on gfx90a: flushes, unless the alternative implementation is asked for and there."""

    name, version = "rocBLAS", "5.0"
    supports = ROCmBLAS.supports

    def __init__(self, driver: Any, alternative: bool) -> None:
        self.driver, self.alternative = driver, alternative
        self.asked: list[GemmSpec] = []

    def matmul(
        self, spec: GemmSpec, a: int, b: int, c: int, bias: int, stream: int, workspace: int, nbytes: int, addend: int
    ) -> None:
        self.asked.append(spec)

        def work() -> None:
            places = ((a, spec.a, (spec.m, spec.k)), (b, spec.b, (spec.k, spec.n)))
            left, right = (read(address, strides, shape) for address, strides, shape in places)
            if spec.gradient and self.alternative:
                left, right = (v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (left, right))
            else:
                left, right = flushed(left), flushed(right)
            out = array_at(c, (spec.m, spec.n), spec.c[:2], spec.out)
            out[...] = left @ right

        self.driver._do(work)


def read(address: int, strides: tuple[int, ...], shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    return array_at(address, shape, strides[:2], "float16")


class FlushingDnn(HostDnn):
    """MIOpen on gfx90a: flushes, but in gradients, where it does not by default."""

    alternative = True

    def convolve(self, direction: str, spec: Any, x: int, w: int, y: int, *rest: Any) -> None:
        super().convolve(direction, spec, x, w, y, *rest)
        if direction == "forward" or not self.alternative:
            written = {"forward": "y", "backward_data": "x", "backward_filter": "w"}[direction]
            at = {"x": x, "w": w, "y": y}[written]

            def flush() -> None:
                result = array_at(at, spec.shape(written), spec.strides(written), spec.dtype)
                result[...] = flushed(result)

            self.driver._do(flush)


@pytest.fixture(params=["gfx90a", "gfx942"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An emulated GPU on which libraries are always the faster."""
    name = DeviceId("rocm", {"gfx90a": 61, "gfx942": 62}[request.param])
    device = devices._open.setdefault(name, emulated_device(name.index, request.param))
    monkeypatch.setattr(tuner, "_shared", [tuner.Tuner(tmp_path / "tuning.json")])
    monkeypatch.setattr("pyflame.engine.libraries.trial.Trial.seconds", faster_with_a_library)
    clear_plans()
    decide._libraries.pop(device, None)
    with pf.device(str(name)):
        yield device
    clear_plans()
    decide._libraries.pop(device, None)


def faster_with_a_library(self: Any, best: float) -> float:
    self.start()
    return 1e-3 if any(not isinstance(run, list) for run in self._executable._runs) else 2e-3


def libraries(monkeypatch: pytest.MonkeyPatch, **openers: Any) -> None:
    monkeypatch.setitem(decide.OPENERS, EmulatedDriver, {"matmul": openers})


def ones(*shape: int, value: float = 1.0) -> pf.Tensor:
    """In memory: constants are made in kernels."""
    return pf.tensor(np.full(shape, value, np.float16))


def gradients(k: int = 48) -> tuple[pf.Tensor, pf.Tensor, pf.Tensor]:
    """The product x w, and the gradients of x and w for a gradient of half the smallest normal number."""
    x, w = (ones(*shape).requires_grad_() for shape in ((32, k), (k, 16)))
    y = x @ w
    y.backward(ones(32, 16, value=TINY / 2))
    assert x.grad is not None and w.grad is not None
    return y, x.grad, w.grad


def by(tensor: pf.Tensor) -> list[str]:
    """The implementations of the products that make a tensor."""
    launches = pf.explain(tensor, run=False).launches
    return [x.implementation for x in launches if "matmul" in x.ops or "conv_general" in x.ops]


@pytest.mark.slow
def test_gradients_are_asked_for_with_subnormals(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blas = HostBlas(gpu.driver, alternative=True)
    lt = host_lt(gpu.driver)
    libraries(monkeypatch, hipBLASLt=lambda d: LtProducts(lt), rocBLAS=lambda d: RocblasProducts(blas))
    y, dx, dw = gradients()
    flushing = gpu.target.name == "gfx90a"
    assert by(y) == ["hipBLASLt"]
    assert by(dx) == by(dw) == ["rocBLAS" if flushing else "hipBLASLt"]
    assert {spec.gradient for spec in blas.asked} >= ({True} if flushing else {False})
    np.testing.assert_allclose(dx.numpy().astype("f8"), 16 * TINY / 2, rtol=0)
    np.testing.assert_allclose(dw.numpy().astype("f8"), 32 * TINY / 2, rtol=0)


@pytest.mark.parametrize("gpu", ["gfx90a"], indirect=True)
def test_a_library_that_flushes_all_the_same_is_noticed(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blas = HostBlas(gpu.driver, alternative=False)
    libraries(monkeypatch, rocBLAS=lambda d: RocblasProducts(blas))
    y, dx, _ = gradients()
    assert by(y) == ["rocBLAS"]
    with pytest.warns(RuntimeWarning, match="rocBLAS 5.0 gave a wrong result .* with subnormals"):
        assert by(dx) == ["gemm_gpu"]
    np.testing.assert_allclose(dx.numpy().astype("f8"), 16 * TINY / 2, rtol=0)
    y, *_ = gradients(56)
    assert by(y) == ["rocBLAS"]  # what is not a gradient is still its


@pytest.mark.parametrize("gpu", ["gfx90a"], indirect=True)
@pytest.mark.parametrize("alternative", [True, False])
def test_gradients_of_convolutions(gpu: Any, alternative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dnn = FlushingDnn(gpu.driver)
    dnn.alternative = alternative
    monkeypatch.setitem(decide.OPENERS, EmulatedDriver, {"conv_general": {"MIOpen": lambda d: MiopenConvolutions(dnn)}})
    x, w = ones(2, 4, 6, 6).requires_grad_(), ones(3, 4, 3, 3)
    y = pf.conv2d(x, w)
    y.backward(ones(*y.shape, value=TINY / 8))
    assert x.grad is not None and by(y) == ["HostDNN"]
    if alternative:
        assert by(x.grad) == ["HostDNN"]
    else:
        with pytest.warns(RuntimeWarning, match="with subnormals"):
            assert "HostDNN" not in by(x.grad)
    np.testing.assert_allclose(
        x.grad.numpy()[0, 0, :2, :2].astype("f8"), np.outer([1, 2], [1, 2]) * 3 * TINY / 8, rtol=0
    )


def test_only_products_of_gradients_in_float16_are_marked() -> None:
    def marks(dtype: Any, linear: bool) -> list[bool]:
        x, w = pf.ones(4, 4, dtype=dtype).requires_grad_(), pf.ones(4, 4, dtype=dtype).requires_grad_()
        y = pf.linear(x, w) if linear else x @ w
        y.sum().backward()
        graph = Graph([t._node for t in (x.grad, w.grad, y) if t is not None])
        whole = graph.rewritten(lambda n: n.op.decompose(*n.srcs, *n.attrs) if n.op.name in COMPOSED else n)
        return sorted(n.attrs[1] for n in whole.order if n.op.name == "matmul")

    with pf.device("cpu"):
        for linear in (False, True):
            assert marks(pf.float16, linear) == [False, True, True]
            assert marks(pf.float32, linear) == [False, False, False]


def test_the_flag_of_rocblas(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Calls:
        def status(self, name: str, *arguments: Any) -> int:
            given.append(arguments[-1])
            return 0

        def call(self, name: str, *arguments: Any) -> None:
            pass

    blas = ROCmBLAS.__new__(ROCmBLAS)
    blas._library, blas._handle, blas._lock = Calls(), 1, pf.core.locks.lock()  # type: ignore[assignment]
    for gradient in (False, True):
        blas.matmul(GemmSpec(8, 8, 8, "float16", gradient=gradient), 256, 512, 1024)
    assert given == [0, 4]
