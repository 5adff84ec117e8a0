"""rocBLAS's binding against a stand-in that computes: the right numbers come out only if every argument is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError
from pyflame.libs.binding import LibraryError
from pyflame.libs.gemm import GemmSpec
from pyflame.libs.rocm.rocblas import ROCmBLAS
from tests.libs.standin import StandIn, build

# Column-major GEMM as the BLAS standard defines it, for what a CPU can hold: float32, float64, int8.
GEMM = """
static double at(const void *p, int type, int64_t i) {
    return type == 151 ? ((const float *)p)[i] : type == 152 ? ((const double *)p)[i]
         : type == 160 ? ((const int8_t *)p)[i] : ((const int32_t *)p)[i];
}
static int gemm(int ta, int tb, int m, int n, int k, double alpha, const void *a, int at_, int lda, const void *b,
                int bt, int ldb, double beta, const void *c, int ct, int ldc, void *d, int dt, int ldd, int64_t oa,
                int64_t ob, int64_t oc, int64_t od) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double sum = 0;
            for (int p = 0; p < k; p++)
                sum += at(a, at_, oa + (ta == 111 ? i + (int64_t)p * lda : p + (int64_t)i * lda))
                     * at(b, bt, ob + (tb == 111 ? p + (int64_t)j * ldb : j + (int64_t)p * ldb));
            double r = alpha * sum + (beta ? beta * at(c, ct, oc + i + (int64_t)j * ldc) : 0);
            int64_t o = od + i + (int64_t)j * ldd;
            if (dt == 151) ((float *)d)[o] = r; else if (dt == 152) ((double *)d)[o] = r; else ((int32_t *)d)[o] = r;
        }
    return m < 1000 ? 0 : 6;
}
static double scalar(const void *p, int type) { return at(p, type, 0); }
"""
GEAM = """
for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++)
        (({0} *)C)[i + j * ldc] = *({0} *)alpha * (({0} *)A)[transA == 111 ? i + j * lda : j + i * lda]
                                + *({0} *)beta * (({0} *)B)[transB == 111 ? i + j * ldb : j + i * ldb];
"""
BEHAVIOUR = {
    "rocblas_get_version_string_size": "*(size_t *)len = 6;",
    "rocblas_get_version_string": 'strncpy(buf, "5.0.0", len);',
    "rocblas_gemm_ex": """
        status = gemm(transA, transB, m, n, k, scalar(alpha, compute_type), a, a_type, lda, b, b_type, ldb,
        scalar(beta, compute_type), c, c_type, ldc, d, d_type, ldd, 0, 0, 0, 0);""",
    "rocblas_gemm_strided_batched_ex": """for (int i = 0; i < batch_count; i++)
        status = gemm(transA, transB, m, n, k, scalar(alpha, compute_type), a, a_type, lda, b, b_type, ldb,
        scalar(beta, compute_type), c, c_type, ldc, d, d_type, ldd, i * stride_a, i * stride_b, i * stride_c,
        i * stride_d);""",
    "rocblas_sgeam": GEAM.format("float"),
    "rocblas_dgeam": GEAM.format("double"),
}


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build("rocblas", tmp_path_factory.mktemp("rocblas"), BEHAVIOUR, GEMM)


@pytest.fixture
def blas(standin: StandIn) -> Iterator[ROCmBLAS]:
    made = ROCmBLAS(standin.path)
    yield made
    made.close()
    assert standin.calls()[-1].name == "rocblas_destroy_handle"


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def test_handle(blas: ROCmBLAS, standin: StandIn) -> None:
    assert blas.version == "5.0.0"
    assert blas.handle() != 0
    blas.set_stream(0x7F0012345678)
    calls = {c.name: c for c in standin.calls()}
    assert calls["rocblas_set_stream"]["stream"] == 0x7F0012345678
    assert calls["rocblas_set_stream"]["handle"] == blas.handle()
    assert calls["rocblas_set_pointer_mode"]["pointer_mode"] == 0
    assert calls["rocblas_set_atomics_mode"]["atomics_mode"] == 0  # the same bits in every run


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
@pytest.mark.parametrize("c_by_columns", [False, True])
def test_matmul(
    blas: ROCmBLAS, dtype: str, batch: int, a_by_columns: bool, b_by_columns: bool, c_by_columns: bool
) -> None:
    m, n, k = 5, 7, 3

    def matrix(rows: int, cols: int, columns: bool, kind: str) -> np.ndarray[Any, Any]:
        if columns:
            return numbers(batch, cols, rows, dtype=kind).swapaxes(1, 2)
        return numbers(batch, rows, cols, dtype=kind)

    out = {"int8": "int32"}.get(dtype, dtype)
    a, b = matrix(m, k, a_by_columns, dtype), matrix(k, n, b_by_columns, dtype)
    c = matrix(m, n, c_by_columns, out)
    before = c.copy()

    def strides(x: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        item = x.itemsize
        return x.strides[1] // item, x.strides[2] // item, x.strides[0] // item

    spec = GemmSpec(m, n, k, dtype, batch=batch, a=strides(a), b=strides(b), c=strides(c), alpha=2.0, beta=3.0)
    assert blas.supports(spec)
    blas.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data, stream=5)
    np.testing.assert_array_equal(c, 2 * (a.astype(out) @ b.astype(out)) + 3 * before)


def test_repeated_operand(blas: ROCmBLAS) -> None:
    a, b, c = numbers(4, 3, 5), numbers(5, 2), np.zeros((4, 3, 2), np.float32)
    spec = GemmSpec(3, 2, 5, batch=4, b=(2, 1, 0))
    blas.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data)
    np.testing.assert_array_equal(c, a @ b)


def test_workspace_and_refusals(blas: ROCmBLAS, standin: StandIn) -> None:
    a = numbers(4, 4)
    out = np.zeros_like(a)
    where = (a.ctypes.data, a.ctypes.data, out.ctypes.data)
    blas.matmul(GemmSpec(4, 4, 4), *where, workspace=4096, workspace_bytes=1 << 33)
    assert next(c for c in standin.calls() if c.name == "rocblas_set_workspace")["size"] == 1 << 33
    for spec in (
        GemmSpec(4, 4, 4, bias=True),
        GemmSpec(4, 4, 4, activation="relu"),
        GemmSpec(4, 4, 4, a=(8, 2, 0)),
        GemmSpec(4, 4, 4, c=(0, 1, 0)),
        GemmSpec(1 << 32, 4, 4),
    ):
        assert not blas.supports(spec)
        with pytest.raises(LibraryError, match="rocBLAS"):
            blas.matmul(spec, *where)
    wide = np.zeros(1000, np.float32)
    one = np.zeros(1, np.float32)
    with pytest.raises(LibraryError, match=r"status 6 \(rocblas_status_internal_error\)"):
        blas.gemm("N", "N", 1000, 1, 1, 1.0, wide.ctypes.data, 1000, one.ctypes.data, 1, 0.0, wide.ctypes.data, 1000)


def test_methods_of_the_reference(blas: ROCmBLAS) -> None:
    """By columns, as the documents of old describe them."""
    a, b = np.asfortranarray(numbers(3, 4)), np.asfortranarray(numbers(5, 4))
    c = np.zeros((3, 5), np.float32, order="F")
    where = (a.ctypes.data, 3, b.ctypes.data, 5)
    blas.gemm("n", 112, 3, 5, 4, 0.5, *where, 0.0, c.ctypes.data, 3)
    np.testing.assert_array_equal(c, 0.5 * (a @ b.T))
    named = dict(A=a.ctypes.data, lda=3, B=b.ctypes.data, ldb=5, C=c.ctypes.data, ldc=3)
    blas.gemm(trans_a="N", trans_b="T", M=3, N=5, K=4, alpha=1.0, beta=0.0, **named)
    np.testing.assert_array_equal(c, a @ b.T)
    strides = dict(stride_a=0, stride_b=0, stride_c=0, batch_count=1)
    blas.gemm_strided_batched(trans_a="N", trans_b="T", M=3, N=5, K=4, alpha=2.0, beta=0.0, **named, **strides)
    np.testing.assert_array_equal(c, 2 * (a @ b.T))
    half = dict(named, B=a.ctypes.data, ldb=3)
    blas.geam(trans_a="N", trans_b="N", M=3, N=4, alpha=1.0, beta=1.0, **half)
    np.testing.assert_array_equal(c[:, :4], 2 * a)
    many = numbers(6, 2, 2)
    out = np.zeros((6, 2, 2), np.float32)
    at = many.ctypes.data
    blas.gemm_strided_batched("N", "N", 2, 2, 2, 1.0, at, 2, 4, at, 2, 4, 0.0, out.ctypes.data, 2, 4, 6)
    np.testing.assert_array_equal(out.swapaxes(1, 2), many.swapaxes(1, 2) @ many.swapaxes(1, 2))
    for dtype in ("float32", "float64"):
        x, y = np.asfortranarray(numbers(2, 3).astype(dtype)), np.asfortranarray(numbers(3, 2).astype(dtype))
        z = np.zeros((2, 3), dtype, order="F")
        blas.geam("N", "T", 2, 3, 2.0, x.ctypes.data, 2, -1.0, y.ctypes.data, 3, z.ctypes.data, 2, dtype=dtype)
        np.testing.assert_array_equal(z, 2 * x - y.T)
    with pytest.raises(ArgumentError, match="float16"):
        blas.geam("N", "N", 1, 1, 1.0, 0, 1, 1.0, 0, 1, 0, 1, dtype="float16")
    with pytest.raises(ArgumentError, match="'X'"):
        blas.gemm("X", "N", 1, 1, 1, 1.0, 0, 1, 0, 1, 0.0, 0, 1)


def test_missing_library(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"\[rocBLAS\] expected to find .*librocblas"):
        ROCmBLAS(str(tmp_path / "librocblas.so"))
