"""hipBLASLt against a module of the bindings' shape that computes on the host (`numpy_lt.py`)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ROCmNotAvailableError
from pyflame.libs.binding import LibraryError
from pyflame.libs.gemm import GemmSpec
from pyflame.libs.rocm.hipblaslt import HipBlasLt
from tests.libs.numpy_lt import BLAS, FACTS, HIP, Lt


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def opened(module: Lt | None = None) -> tuple[HipBlasLt, Lt]:
    module = module or Lt()
    return HipBlasLt(module, BLAS, HIP), module


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("columns", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_matmul(dtype: str, batch: int, columns: tuple[bool, bool]) -> None:
    m, n, k, out = 5, 7, 3, {"int8": "int32"}.get(dtype, dtype)
    a = numbers(batch, k, m, dtype=dtype).swapaxes(1, 2) if columns[0] else numbers(batch, m, k, dtype=dtype)
    b = numbers(batch, n, k, dtype=dtype).swapaxes(1, 2) if columns[1] else numbers(batch, k, n, dtype=dtype)
    c = numbers(batch, m, n, dtype=out)
    before = c.copy()
    spec = GemmSpec(
        *(m, n, k, dtype),
        batch=batch,
        a=(1, m, m * k) if columns[0] else (k, 1, m * k),
        b=(1, k, k * n) if columns[1] else (n, 1, k * n),
        alpha=2.0,
        beta=3.0,
    )
    lt, module = opened()
    lt.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data, 0, 0x77, 0x1000, 4096)
    np.testing.assert_array_equal(c, 2 * (a.astype(out) @ b.astype(out)) + 3 * before)
    (ran,) = module.ran
    assert (ran["stream"], ran["workspace"], ran["workspaceSizeInBytes"], ran["chosen"]) == (0x77, 0x1000, 4096, 1000)
    assert module.preference == {"HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 4096}
    lt.close()  # asserts that nothing leaks


@pytest.mark.parametrize("activation", ["", "relu"])
def test_epilogue(activation: str) -> None:
    a, b, bias, c = numbers(4, 6), numbers(6, 5), numbers(5), np.zeros((4, 5), np.float32)
    lt, _ = opened()
    spec = GemmSpec(4, 5, 6, bias=True, activation=activation)
    lt.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data, bias.ctypes.data)
    want = a @ b + bias
    np.testing.assert_array_equal(c, np.maximum(want, 0) if activation else want)
    assert lt.version == "1.4.2"


def test_streams_share_no_synchroniser() -> None:
    a, c = numbers(4, 4), np.zeros((4, 4), np.float32)
    lt, module = opened()
    for stream in (0x77, 0x88, 0, 0x77, 0x88):
        lt.matmul(GemmSpec(4, 4, 4), a.ctypes.data, a.ctypes.data, c.ctypes.data, 0, stream)
        np.testing.assert_array_equal(c, a @ a)
    assert sorted(map(str, module.streams.values())) == ["0", "119", "136"]
    lt.close()
    assert not module.streams


def test_one_handle_for_two_streams_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's handles own a synchroniser, as the real ones do: without a handle per stream it would be seen."""
    a, c = numbers(4, 4), np.zeros((4, 4), np.float32)
    lt, _ = opened()
    monkeypatch.setattr(HipBlasLt, "_handle_of", lambda self, stream: self._handle)
    lt.matmul(GemmSpec(4, 4, 4), a.ctypes.data, a.ctypes.data, c.ctypes.data, 0, 0x77)
    with pytest.raises(AssertionError, match="synchroniser another stream may be using"):
        lt.matmul(GemmSpec(4, 4, 4), a.ctypes.data, a.ctypes.data, c.ctypes.data, 0, 0x88)


def test_every_name_exists() -> None:
    lt, _ = opened()
    for dtype in ("float16", "bfloat16", "float32"):
        for activation in ("", "relu", "gelu"):
            for bias in (False, True):
                assert lt.supports(GemmSpec(4, 4, 4, dtype, tf32=True, bias=bias, activation=activation))
    assert set(FACTS["result fields"]) >= {"algo", "workspaceSize", "state"}
    assert set(FACTS["result methods"]) >= {"allocate", "fromObj", "c_sizeof"}
    lt.close()


def test_algorithms() -> None:
    lt, module = opened()
    spec = GemmSpec(4, 4, 4)
    assert lt.count(spec, 1 << 20, wanted=4) == 3  # one of four has failed
    a, out = numbers(4, 4), np.zeros((4, 4), np.float32)
    where = (a.ctypes.data, a.ctypes.data, out.ctypes.data)
    lt.matmul(spec, *where, workspace_bytes=1 << 20, rank=0)
    assert lt.count(spec, 0, wanted=2) == 1
    with pytest.raises(LibraryError, match="algorithm number 1"):
        lt.matmul(spec, *where, rank=1)
    assert [r["chosen"] for r in module.ran] == [1000]


def test_refusals() -> None:
    refusing, _ = opened(Lt("HIPBLAS_STATUS_NOT_SUPPORTED"))
    assert not refusing.supports(GemmSpec(4, 4, 4))
    broken, _ = opened(Lt("HIPBLAS_STATUS_INTERNAL_ERROR"))
    with pytest.raises(LibraryError, match="HIPBLAS_STATUS_INTERNAL_ERROR"):
        broken.supports(GemmSpec(4, 4, 4))


def test_without_the_library() -> None:
    class Absent(Lt):
        def _Create(self, given: dict[str, Any]) -> Any:
            raise RuntimeError("failed to dlopen 'libhipblaslt.so'")

    with pytest.raises(LibraryError, match="failed to dlopen"):
        opened(Absent())


def test_the_bindings_themselves() -> None:
    """Where they are installed, they have what their stub says; where not, the way to get them is told."""
    try:
        modules = {name: importlib.import_module(f"rocm.bindings.{name}") for name in FACTS["enums"]}
    except ImportError:
        with pytest.raises(ROCmNotAvailableError, match=r"pip install 'pyflame-rocm\[rocm\]'"):
            HipBlasLt()
        return
    for module, found in modules.items():
        for name, members in FACTS["enums"][module].items():
            assert set(members) <= set(getattr(found, name).__members__)
    assert all(hasattr(modules["hipblaslt"], f) for f in FACTS["functions"])
