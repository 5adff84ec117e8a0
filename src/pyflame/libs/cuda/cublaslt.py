"""cuBLASLt: matrix products with bias and activation on NVIDIA GPUs.

Constants and signatures are those of cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13, and are checked
against facts read from them (`tests/libs/facts`). By ctypes, because NVIDIA's Python bindings of cuBLASLt live in
another package of a few hundred megabytes, and fourteen functions are all that is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from pyflame.libs.binding import Library, find, statuses
from pyflame.libs.gemm import ColumnGemm, GemmSpec, Operand
from pyflame.libs.lt import Algorithm, Described, LtMatmul

FILES = ("libcublasLt.so.13", "libcublasLt.so.12")
FOLDERS = ("nvidia/cu13/lib", "nvidia/cublas/lib", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64")


class C:
    """Constants, by the names of the headers."""

    CUBLAS_STATUS_SUCCESS = 0
    CUBLAS_STATUS_NOT_INITIALIZED = 1
    CUBLAS_STATUS_ALLOC_FAILED = 3
    CUBLAS_STATUS_INVALID_VALUE = 7
    CUBLAS_STATUS_ARCH_MISMATCH = 8
    CUBLAS_STATUS_MAPPING_ERROR = 11
    CUBLAS_STATUS_EXECUTION_FAILED = 13
    CUBLAS_STATUS_INTERNAL_ERROR = 14
    CUBLAS_STATUS_NOT_SUPPORTED = 15
    CUBLAS_STATUS_LICENSE_ERROR = 16

    CUBLAS_OP_N = 0
    CUBLAS_OP_T = 1

    CUBLAS_COMPUTE_32F = 68
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
    CUBLAS_COMPUTE_64F = 70
    CUBLAS_COMPUTE_32I = 72

    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_R_16F = 2
    CUDA_R_8I = 3
    CUDA_R_32I = 10
    CUDA_R_16BF = 14

    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6

    CUBLASLT_MATMUL_DESC_TRANSA = 3
    CUBLASLT_MATMUL_DESC_TRANSB = 4
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8

    CUBLASLT_EPILOGUE_DEFAULT = 1
    CUBLASLT_EPILOGUE_RELU = 2
    CUBLASLT_EPILOGUE_BIAS = 4
    CUBLASLT_EPILOGUE_RELU_BIAS = 6
    CUBLASLT_EPILOGUE_GELU = 32
    CUBLASLT_EPILOGUE_GELU_BIAS = 36

    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8


FUNCTIONS = {
    "cublasLtCreate": "ptr lightHandle",
    "cublasLtDestroy": "ptr lightHandle",
    "cublasLtMatrixLayoutCreate": "ptr matLayout, i32 type, u64 rows, u64 cols, i64 ld",
    "cublasLtMatrixLayoutDestroy": "ptr matLayout",
    "cublasLtMatrixLayoutSetAttribute": "ptr matLayout, i32 attr, ptr buf, size sizeInBytes",
    "cublasLtMatmulDescCreate": "ptr matmulDesc, i32 computeType, i32 scaleType",
    "cublasLtMatmulDescDestroy": "ptr matmulDesc",
    "cublasLtMatmulDescSetAttribute": "ptr matmulDesc, i32 attr, ptr buf, size sizeInBytes",
    "cublasLtMatmulPreferenceCreate": "ptr pref",
    "cublasLtMatmulPreferenceDestroy": "ptr pref",
    "cublasLtMatmulPreferenceSetAttribute": "ptr pref, i32 attr, ptr buf, size sizeInBytes",
    "cublasLtMatmulAlgoGetHeuristic": (
        "ptr lightHandle, ptr operationDesc, ptr Adesc, ptr Bdesc, ptr Cdesc, ptr Ddesc, ptr preference, "
        "i32 requestedAlgoCount, ptr heuristicResultsArray, ptr returnAlgoCount"
    ),
    "cublasLtMatmul": (
        "ptr lightHandle, ptr computeDesc, ptr alpha, ptr A, ptr Adesc, ptr B, ptr Bdesc, ptr beta, ptr C, ptr Cdesc, "
        "ptr D, ptr Ddesc, ptr algo, ptr workspace, size workspaceSizeInBytes, ptr stream"
    ),
}
PLAIN = {"cublasLtGetVersion": (ctypes.c_size_t, "")}


class MatmulAlgo(ctypes.Structure):
    """cublasLtMatmulAlgo_t: opaque."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", MatmulAlgo),
        ("workspaceSize", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("wavesCount", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


STRUCTS = {"cublasLtMatmulAlgo_t": MatmulAlgo, "cublasLtMatmulHeuristicResult_t": HeuristicResult}

TYPES = {
    "float32": C.CUDA_R_32F,
    "float64": C.CUDA_R_64F,
    "float16": C.CUDA_R_16F,
    "bfloat16": C.CUDA_R_16BF,
    "int8": C.CUDA_R_8I,
    "int32": C.CUDA_R_32I,
}
COMPUTE = {  # dtype of A and B -> (precision of sums, dtype of alpha and beta)
    "float64": (C.CUBLAS_COMPUTE_64F, C.CUDA_R_64F),
    "int8": (C.CUBLAS_COMPUTE_32I, C.CUDA_R_32I),
}
EPILOGUES = {
    ("", False): C.CUBLASLT_EPILOGUE_DEFAULT,
    ("", True): C.CUBLASLT_EPILOGUE_BIAS,
    ("relu", False): C.CUBLASLT_EPILOGUE_RELU,
    ("relu", True): C.CUBLASLT_EPILOGUE_RELU_BIAS,
    ("gelu", False): C.CUBLASLT_EPILOGUE_GELU,
    ("gelu", True): C.CUBLASLT_EPILOGUE_GELU_BIAS,
}
# "This library cannot do it", as opposed to "something is broken".
REFUSED = (C.CUBLAS_STATUS_NOT_SUPPORTED, C.CUBLAS_STATUS_INVALID_VALUE, C.CUBLAS_STATUS_ARCH_MISMATCH)


class CublasLt(LtMatmul):
    """cuBLASLt on the device whose context is current when this is made.

    >>> lt = CublasLt()                                                     # doctest: +SKIP
    >>> lt.matmul(GemmSpec(64, 32, 16), a, b, c, stream=stream)             # doctest: +SKIP
    """

    name = "cuBLASLt"

    def __init__(self, path: str | None = None) -> None:
        super().__init__()
        loaded, self.path = find(self.name, FILES, FOLDERS, path)
        self._library = Library(self.name, loaded, FUNCTIONS, PLAIN, statuses(C, "CUBLAS_STATUS_"))
        number = int(self._library.plain("cublasLtGetVersion"))
        major, rest = divmod(number, 10000)
        self.version = f"{major}.{rest // 100}.{rest % 100}"
        self._handle = self._library.create("cublasLtCreate")

    def close(self) -> None:
        super().close()
        if self._handle:
            self._library.call("cublasLtDestroy", self._handle)
            self._handle = 0

    def _set(self, what: str, target: int, attribute: int, value: Any) -> None:
        function = f"cublasLt{what}SetAttribute"
        self._library.call(function, target, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def _operation(self, spec: GemmSpec, problem: ColumnGemm) -> int:
        single = C.CUBLAS_COMPUTE_32F_FAST_TF32 if spec.tf32 and spec.dtype == "float32" else C.CUBLAS_COMPUTE_32F
        compute, scale = COMPUTE.get(spec.dtype, (single, C.CUDA_R_32F))
        made = self._library.create("cublasLtMatmulDescCreate", compute, scale)
        operands = (
            (C.CUBLASLT_MATMUL_DESC_TRANSA, problem.first),
            (C.CUBLASLT_MATMUL_DESC_TRANSB, problem.second),
        )
        for attribute, operand in operands:
            self._set(
                "MatmulDesc", made, attribute, ctypes.c_int32(C.CUBLAS_OP_T if operand.transposed else C.CUBLAS_OP_N)
            )
        epilogue = ctypes.c_uint32(EPILOGUES[spec.activation, spec.bias])
        self._set("MatmulDesc", made, C.CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)
        return made

    def _layout(self, dtype: str, operand: Operand, batch: int) -> int:
        made = self._library.create(
            "cublasLtMatrixLayoutCreate", TYPES[dtype], operand.rows, operand.cols, operand.lead
        )
        if batch > 1:
            self._set("MatrixLayout", made, C.CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ctypes.c_int32(batch))
            stride = ctypes.c_int64(operand.stride)
            self._set("MatrixLayout", made, C.CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride)
        return made

    def _search(self, found: Described, workspace: int, aligned: Sequence[int], wanted: int) -> list[Algorithm]:
        preference = self._library.create("cublasLtMatmulPreferenceCreate")
        try:
            size = ctypes.c_uint64(workspace)
            self._set("MatmulPreference", preference, C.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, size)
            alignments = (
                (C.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]),
                (C.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]),
                (C.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]),
                (C.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]),
            )
            for attribute, value in alignments:
                self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(value))
            results = (HeuristicResult * wanted)()
            count = ctypes.c_int()
            first, second, out = found.layouts
            arguments = (self._handle, found.operation, first, second, out, out, preference)
            ends = (wanted, ctypes.byref(results), ctypes.byref(count))
            status = self._library.status("cublasLtMatmulAlgoGetHeuristic", *arguments, *ends)
        finally:
            self._library.call("cublasLtMatmulPreferenceDestroy", preference)
        if status in REFUSED:
            return []
        if status != C.CUBLAS_STATUS_SUCCESS:
            self._library.fail("cublasLtMatmulAlgoGetHeuristic", status)
        good = [r for r in results[: count.value] if r.state == C.CUBLAS_STATUS_SUCCESS]
        return [Algorithm(MatmulAlgo.from_buffer_copy(r.algo), r.workspaceSize) for r in good]

    def _set_bias(self, operation: int, address: int) -> None:
        self._set("MatmulDesc", operation, C.CUBLASLT_MATMUL_DESC_BIAS_POINTER, ctypes.c_void_p(address))

    def _run(
        self, found: Described, algorithm: Algorithm, addresses: Sequence[int], stream: int, workspace: int, size: int
    ) -> None:
        first, second, out = found.layouts
        a, b, c, d = addresses
        self._library.call(
            "cublasLtMatmul",
            self._handle,
            found.operation,
            ctypes.byref(found.alpha),
            a,
            first,
            b,
            second,
            ctypes.byref(found.beta),
            c,
            out,
            d,
            out,
            ctypes.byref(algorithm.data),
            workspace,
            size,
            stream,
        )

    def _forget(self, found: Described) -> None:
        self._library.call("cublasLtMatmulDescDestroy", found.operation)
        for layout in found.layouts:
            self._library.call("cublasLtMatrixLayoutDestroy", layout)
