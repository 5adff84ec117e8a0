"""rocBLAS: matrix products and sums on AMD GPUs. Never run on hardware by us; see the package's first paragraph.

By ctypes, because AMD's Python bindings leave rocBLAS out. Constants and signatures are those of rocblas-types.h,
rocblas-auxiliary.h and rocblas-functions.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock
from pyflame.libs.binding import Library, statuses, stream_handle
from pyflame.libs.gemm import GemmSpec, by_columns
from pyflame.libs.rocm.errors import AMDLibraryError
from pyflame.libs.rocm.paths import find_rocm

FILES = ("librocblas.so.5", "librocblas.so.4", "librocblas.so")


class C:
    """Constants, by the names of the headers."""

    rocblas_status_success = 0
    rocblas_status_invalid_handle = 1
    rocblas_status_not_implemented = 2
    rocblas_status_invalid_pointer = 3
    rocblas_status_invalid_size = 4
    rocblas_status_memory_error = 5
    rocblas_status_internal_error = 6
    rocblas_status_perf_degraded = 7
    rocblas_status_invalid_value = 11
    rocblas_status_arch_mismatch = 15

    rocblas_operation_none = 111
    rocblas_operation_transpose = 112

    rocblas_datatype_f16_r = 150
    rocblas_datatype_f32_r = 151
    rocblas_datatype_f64_r = 152
    rocblas_datatype_i8_r = 160
    rocblas_datatype_i32_r = 162
    rocblas_datatype_bf16_r = 168

    rocblas_pointer_mode_host = 0
    rocblas_atomics_not_allowed = 0
    rocblas_gemm_algo_standard = 0
    rocblas_gemm_flags_none = 0
    rocblas_gemm_flags_fp16_alt_impl = 4


_OPERATIONS = "ptr handle, i32 transA, i32 transB, i32 m, i32 n"
_GEAM = f"{_OPERATIONS}, ptr alpha, ptr A, i32 lda, ptr beta, ptr B, i32 ldb, ptr C, i32 ldc"
FUNCTIONS = {
    "rocblas_create_handle": "ptr handle",
    "rocblas_destroy_handle": "ptr handle",
    "rocblas_set_stream": "ptr handle, ptr stream",
    "rocblas_set_pointer_mode": "ptr handle, i32 pointer_mode",
    "rocblas_set_atomics_mode": "ptr handle, i32 atomics_mode",
    "rocblas_set_workspace": "ptr handle, ptr addr, size size",
    "rocblas_get_version_string_size": "ptr len",
    "rocblas_get_version_string": "ptr buf, size len",
    "rocblas_gemm_ex": (
        f"{_OPERATIONS}, i32 k, ptr alpha, ptr a, i32 a_type, i32 lda, ptr b, i32 b_type, i32 ldb, ptr beta, "
        "ptr c, i32 c_type, i32 ldc, ptr d, i32 d_type, i32 ldd, i32 compute_type, i32 algo, i32 solution_index, "
        "u32 flags"
    ),
    "rocblas_gemm_strided_batched_ex": (
        f"{_OPERATIONS}, i32 k, ptr alpha, ptr a, i32 a_type, i32 lda, i64 stride_a, ptr b, i32 b_type, i32 ldb, "
        "i64 stride_b, ptr beta, ptr c, i32 c_type, i32 ldc, i64 stride_c, ptr d, i32 d_type, i32 ldd, i64 stride_d, "
        "i32 batch_count, i32 compute_type, i32 algo, i32 solution_index, u32 flags"
    ),
    "rocblas_sgeam": _GEAM,
    "rocblas_dgeam": _GEAM,
}
STRUCTS: dict[str, Any] = {}
TYPES = {
    "float16": C.rocblas_datatype_f16_r,
    "float32": C.rocblas_datatype_f32_r,
    "float64": C.rocblas_datatype_f64_r,
    "int8": C.rocblas_datatype_i8_r,
    "int32": C.rocblas_datatype_i32_r,
    "bfloat16": C.rocblas_datatype_bf16_r,
}
COMPUTE = {"float64": "float64", "int8": "int32"}  # dtype of sums, alpha and beta; else float32
SCALARS: dict[str, Any] = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32}
OPERATIONS = {"N": C.rocblas_operation_none, "T": C.rocblas_operation_transpose}
# A plan is chosen; "performance is degraded" is a remark, not an error.
FINE = (C.rocblas_status_success, C.rocblas_status_perf_degraded)
LIMIT = 2**31 - 1  # sizes are 32 bit


class ROCmBLAS:
    """rocBLAS on the GPU that HIP holds for current. Matrices lie by columns; `matmul` takes PyFlame's rows.

    >>> blas = ROCmBLAS()                                                              # doctest: +SKIP
    >>> blas.gemm("N", "N", M, N, K, 1.0, A, M, B, K, 0.0, C, M)                       # doctest: +SKIP
    """

    name = "rocBLAS"

    def __init__(self, path: str | None = None) -> None:
        loaded, self.path = find_rocm(self.name, "rocblas", FILES, path)
        self._library = Library(
            self.name, loaded, FUNCTIONS, statuses=statuses(C, "rocblas_status_"), error=AMDLibraryError
        )
        self._lock = lock()
        self.version = self._version()
        self._handle = self._library.create("rocblas_create_handle")
        self._library.call("rocblas_set_pointer_mode", self._handle, C.rocblas_pointer_mode_host)
        # some versions allow them by default; with them results vary from run to run
        self._library.call("rocblas_set_atomics_mode", self._handle, C.rocblas_atomics_not_allowed)

    def _version(self) -> str:
        size = self._library.number("rocblas_get_version_string_size")
        text = ctypes.create_string_buffer(max(size, 1))
        self._library.call("rocblas_get_version_string", text, len(text))
        return text.value.decode(errors="replace")

    def close(self) -> None:
        """Give the handle back."""
        if self._handle:
            self._library.call("rocblas_destroy_handle", self._handle)
            self._handle = 0

    def handle(self) -> int:
        """The address of rocBLAS's handle."""
        return self._handle

    def set_stream(self, stream: Any) -> None:
        """Start what follows on this stream: a pf.Stream, or a stream's handle."""
        self._library.call("rocblas_set_stream", self._handle, stream_handle(self.name, stream))

    def supports(self, spec: GemmSpec, workspace_bytes: int = 0) -> bool:
        """Whether this is one rocBLAS call: no bias, no activation, sizes of 32 bits."""
        problem = by_columns(spec)
        if problem is None or spec.bias or spec.activation or spec.tf32:
            return False
        sizes = (problem.m, problem.n, problem.k, problem.first.lead, problem.second.lead, problem.out.lead, spec.batch)
        return max(sizes) <= LIMIT

    def matmul(
        self,
        spec: GemmSpec,
        a: int,
        b: int,
        c: int,
        bias: int = 0,
        stream: int = 0,
        workspace: int = 0,
        workspace_bytes: int = 0,
        addend: int = 0,
    ) -> None:
        """Start C = alpha A B + beta C on a stream. All are addresses on the device.

        `addend`: where the C lies that is added, if not where the result goes.
        """
        problem = by_columns(spec)
        if problem is None or not self.supports(spec):
            raise AMDLibraryError(
                f"[{self.name}] expected a plain product of matrices by rows or columns but got {spec.text} with "
                f"strides {spec.a}, {spec.b}, {spec.c}; PyFlame's own kernel does it"
            )
        first, second = (b, a) if problem.swapped else (a, b)
        operands = ((first, problem.first), (second, problem.second), (c, problem.out))
        with self._lock:
            self.set_stream(stream)
            if workspace_bytes:
                self._library.call("rocblas_set_workspace", self._handle, workspace, workspace_bytes)
            left, right, out = ((address, o.lead, o.stride) for address, o in operands)
            flags = (_operation("NT"[problem.first.transposed]), _operation("NT"[problem.second.transposed]))
            batch = spec.batch if spec.batch > 1 else None
            sizes = (problem.m, problem.n, problem.k)
            self._gemm(*flags, *sizes, spec.alpha, left, right, out, spec.beta, batch, spec, addend)

    def _gemm(
        self,
        trans_a: int,
        trans_b: int,
        m: int,
        n: int,
        k: int,
        alpha: float,
        a: tuple[int, int, int],
        b: tuple[int, int, int],
        c: tuple[int, int, int],
        beta: float,
        batch: int | None,
        types: GemmSpec,
        addend: int = 0,
    ) -> None:
        compute = COMPUTE.get(types.dtype, "float32")
        scalar = SCALARS[compute]
        number = int if compute == "int32" else float
        one, two = scalar(number(alpha)), scalar(number(beta))
        source, result = TYPES[types.dtype], TYPES[types.out]
        flags = C.rocblas_gemm_flags_fp16_alt_impl if types.gradient else C.rocblas_gemm_flags_none
        ends = (TYPES[compute], C.rocblas_gemm_algo_standard, 0, flags)
        many = batch is not None
        name = "rocblas_gemm_strided_batched_ex" if many else "rocblas_gemm_ex"
        typed = ((a, source), (b, source), (c, result))
        left, right, out = ((at, kind, lead, stride)[: 3 + many] for (at, lead, stride), kind in typed)
        status = self._library.status(
            name,
            *(self._handle, trans_a, trans_b, m, n, k, ctypes.byref(one)),
            *left,
            *right,
            ctypes.byref(two),
            *(addend or out[0], *out[1:]),  # C is read where D is written, or elsewhere
            *out,
            *([batch] if many else []),
            *ends,
        )
        if status not in FINE:
            self._library.fail(name, status)

    def gemm(
        self,
        trans_a: str | int,
        trans_b: str | int,
        M: int,
        N: int,
        K: int,
        alpha: float,
        A: int,
        lda: int,
        B: int,
        ldb: int,
        beta: float,
        C: int,
        ldc: int,
    ) -> None:
        """C = alpha op(A) op(B) + beta C in float32, matrices by columns; op is "N" or "T"."""
        flags = (_operation(trans_a), _operation(trans_b))
        sides = ((A, lda, 0), (B, ldb, 0), (C, ldc, 0))
        self._gemm(*flags, M, N, K, alpha, *sides, beta, None, _SINGLE)

    def gemm_strided_batched(
        self,
        trans_a: str | int,
        trans_b: str | int,
        M: int,
        N: int,
        K: int,
        alpha: float,
        A: int,
        lda: int,
        stride_a: int,
        B: int,
        ldb: int,
        stride_b: int,
        beta: float,
        C: int,
        ldc: int,
        stride_c: int,
        batch_count: int,
    ) -> None:
        """`gemm` of a batch of matrices, each so many elements behind the one before."""
        flags = (_operation(trans_a), _operation(trans_b))
        sides = ((A, lda, stride_a), (B, ldb, stride_b), (C, ldc, stride_c))
        self._gemm(*flags, M, N, K, alpha, *sides, beta, batch_count, _SINGLE)

    def geam(
        self,
        trans_a: str | int,
        trans_b: str | int,
        M: int,
        N: int,
        alpha: float,
        A: int,
        lda: int,
        beta: float,
        B: int,
        ldb: int,
        C: int,
        ldc: int,
        dtype: str = "float32",
    ) -> None:
        """C = alpha op(A) + beta op(B), by columns: sums, scaled copies and transposition."""
        functions = {"float32": "rocblas_sgeam", "float64": "rocblas_dgeam"}
        if dtype not in functions:
            raise ArgumentError(f"[{self.name}] expected float32 or float64 but got {dtype}")
        one, two = SCALARS[dtype](alpha), SCALARS[dtype](beta)
        flags = (_operation(trans_a), _operation(trans_b))
        left, right = (ctypes.byref(one), A, lda), (ctypes.byref(two), B, ldb)
        self._library.call(functions[dtype], self._handle, *flags, M, N, *left, *right, C, ldc)


_SINGLE = GemmSpec(1, 1, 1)


def _operation(which: str | int) -> int:
    """ "N", "T" or the header's own number."""
    found = OPERATIONS.get(which.upper(), 0) if isinstance(which, str) else which
    if found not in OPERATIONS.values():
        raise ArgumentError(f"[rocBLAS] expected 'N' or 'T' but got {which!r}")
    return found
