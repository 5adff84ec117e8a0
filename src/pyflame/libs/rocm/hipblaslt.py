"""hipBLASLt: matrix products with bias and activation on AMD GPUs, through AMD's bindings (`rocm.bindings.hipblaslt`).

Never run on hardware by us; see the package's first paragraph. Constants come from the bindings by name. The names and
parameters used here are checked against the bindings' stub of version 10.0 (`tests/libs/facts/hipblaslt.json`).
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ROCmNotAvailableError
from pyflame.libs.gemm import ColumnGemm, GemmSpec, Operand
from pyflame.libs.lt import Algorithm, Described, LtMatmul
from pyflame.libs.rocm.errors import AMDLibraryError, AMDLibraryMissingError

TYPES = {
    "float32": "HIP_R_32F",
    "float64": "HIP_R_64F",
    "float16": "HIP_R_16F",
    "bfloat16": "HIP_R_16BF",
    "int8": "HIP_R_8I",
    "int32": "HIP_R_32I",
}
COMPUTE = {  # dtype of A and B -> (precision of sums, dtype of alpha and beta)
    "float64": ("HIPBLAS_COMPUTE_64F", "HIP_R_64F"),
    "int8": ("HIPBLAS_COMPUTE_32I", "HIP_R_32I"),
}
EPILOGUES = {
    ("", False): "HIPBLASLT_EPILOGUE_DEFAULT",
    ("", True): "HIPBLASLT_EPILOGUE_BIAS",
    ("relu", False): "HIPBLASLT_EPILOGUE_RELU",
    ("relu", True): "HIPBLASLT_EPILOGUE_RELU_BIAS",
    ("gelu", False): "HIPBLASLT_EPILOGUE_GELU",
    ("gelu", True): "HIPBLASLT_EPILOGUE_GELU_BIAS",
}
REFUSED = ("HIPBLAS_STATUS_NOT_SUPPORTED", "HIPBLAS_STATUS_INVALID_VALUE", "HIPBLAS_STATUS_ARCH_MISMATCH")


class HipBlasLt(LtMatmul):
    """hipBLASLt on the current AMD GPU. The modules may be replaced, as tests and the simulator do.

    >>> lt = HipBlasLt()                                                    # doctest: +SKIP
    >>> lt.matmul(GemmSpec(64, 32, 16, "bfloat16"), a, b, c, stream=stream) # doctest: +SKIP
    """

    name = "hipBLASLt"
    error = AMDLibraryError
    reproducible = False  # AMD's documents say nothing of it

    def __init__(self, lt: Any = None, blas: Any = None, hip: Any = None) -> None:
        super().__init__()
        self._lt = lt or _bindings("hipblaslt")
        self._blas = blas or _bindings("hipblas")
        self._hip = hip or _bindings("hip")
        # A handle owns the buffer by which blocks of a split product wait for each other: calls that run at the same
        # time need one each, or they wait for ever (ROCm/rocm-libraries pull request 10951).
        self._handles: dict[int, Any] = {}
        try:
            self._handle = self._handles[0] = self._call("hipblasLtCreate")
        except (RuntimeError, OSError) as error:
            if isinstance(error, AMDLibraryError):
                raise
            # The bindings open the library at the first call.
            raise AMDLibraryMissingError(
                f"[{self.name}] expected libhipblaslt.so but got: {error}; install hipBLASLt"
            ) from error
        number = int(self._call("hipblasLtGetVersion", self._handle))
        self.version = f"{number // 100000}.{number // 100 % 1000}.{number % 100}"

    def close(self) -> None:
        super().close()
        while self._handles:
            self._call("hipblasLtDestroy", self._handles.popitem()[1])

    def _handle_of(self, stream: int) -> Any:
        if stream not in self._handles:
            self._handles[stream] = self._call("hipblasLtCreate")
        return self._handles[stream]

    def _call(self, function: str, *arguments: Any) -> Any:
        """What a call gives behind its status."""
        status, *values = getattr(self._lt, function)(*arguments)
        if int(status) != 0:
            raise self.error(
                f"[{self.name}] expected {function} to succeed but got {getattr(status, 'name', status)}; PyFlame's "
                "own kernels do not need this library"
            )
        return values[0] if values else None

    def _set(self, what: str, target: Any, attribute: Any, value: Any) -> None:
        # The bindings take addresses as whole numbers; `value` lives until the call is over.
        arguments = (target, attribute, ctypes.addressof(value), ctypes.sizeof(value))
        self._call(f"hipblasLt{what}SetAttribute", *arguments)

    def _operation(self, spec: GemmSpec, problem: ColumnGemm) -> Any:
        single = "HIPBLAS_COMPUTE_32F_FAST_TF32" if spec.tf32 and spec.dtype == "float32" else "HIPBLAS_COMPUTE_32F"
        compute, scale = COMPUTE.get(spec.dtype, (single, "HIP_R_32F"))
        kinds = (self._blas.hipblasComputeType_t[compute], self._hip.hipDataType[scale])
        made = self._call("hipblasLtMatmulDescCreate", *kinds)
        known, operation = self._lt.hipblasLtMatmulDescAttributes_t, self._blas.hipblasOperation_t
        operands = (("HIPBLASLT_MATMUL_DESC_TRANSA", problem.first), ("HIPBLASLT_MATMUL_DESC_TRANSB", problem.second))
        for name, operand in operands:
            flag = operation["HIPBLAS_OP_T" if operand.transposed else "HIPBLAS_OP_N"]
            self._set("MatmulDesc", made, known[name], ctypes.c_int32(int(flag)))
        epilogue = self._lt.hipblasLtEpilogue_t[EPILOGUES[spec.activation, spec.bias]]
        self._set("MatmulDesc", made, known["HIPBLASLT_MATMUL_DESC_EPILOGUE"], ctypes.c_uint32(int(epilogue)))
        if spec.bias:  # unlike cuBLASLt, the bias may have a dtype of its own, and its default is not ours
            kind = ctypes.c_int32(int(self._hip.hipDataType[TYPES[spec.out]]))
            self._set("MatmulDesc", made, known["HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE"], kind)
        return made

    def _layout(self, dtype: str, operand: Operand, batch: int) -> Any:
        kind = self._hip.hipDataType[TYPES[dtype]]
        made = self._call("hipblasLtMatrixLayoutCreate", kind, operand.rows, operand.cols, operand.lead)
        if batch > 1:
            known = self._lt.hipblasLtMatrixLayoutAttribute_t
            self._set("MatrixLayout", made, known["HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT"], ctypes.c_int32(batch))
            stride = ctypes.c_int64(operand.stride)
            self._set("MatrixLayout", made, known["HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"], stride)
        return made

    def _search(self, found: Described, workspace: int, aligned: Sequence[int], wanted: int) -> list[Algorithm]:
        preference = self._call("hipblasLtMatmulPreferenceCreate")
        try:
            known = self._lt.hipblasLtMatmulPreferenceAttributes_t
            size = ctypes.c_uint64(workspace)
            self._set("MatmulPreference", preference, known["HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"], size)
            results = self._lt.hipblasLtMatmulHeuristicResult_t.allocate(wanted)
            first, second, out = found.layouts
            arguments = (self._handle, found.operation, first, second, out, out, preference, wanted, results)
            status, count = self._lt.hipblasLtMatmulAlgoGetHeuristic(*arguments)
        finally:
            self._call("hipblasLtMatmulPreferenceDestroy", preference)
        if getattr(status, "name", "") in REFUSED:
            return []
        if int(status) != 0:
            raise self.error(f"[{self.name}] expected algorithms but got {getattr(status, 'name', status)}")
        # Elements lie one behind the other; the bindings' own indexing of an array counts the fields of its first one.
        kind, size_of = self._lt.hipblasLtMatmulHeuristicResult_t, results.c_sizeof()
        each = [kind.fromObj(int(results) + i * size_of) for i in range(count)]
        # `results` goes along: it owns the memory that the algorithms lie in.
        return [Algorithm((r.algo, results), int(r.workspaceSize)) for r in each if int(r.state) == 0]

    def _set_bias(self, operation: Any, address: int) -> None:
        attribute = self._lt.hipblasLtMatmulDescAttributes_t["HIPBLASLT_MATMUL_DESC_BIAS_POINTER"]
        self._set("MatmulDesc", operation, attribute, ctypes.c_void_p(address))

    def _run(
        self, found: Described, algorithm: Algorithm, addresses: Sequence[int], stream: int, workspace: int, size: int
    ) -> None:
        first, second, out = found.layouts
        a, b, c, d = addresses
        alpha, beta = ctypes.addressof(found.alpha), ctypes.addressof(found.beta)
        choice = algorithm.data[0]
        arguments = (self._handle_of(stream), found.operation, alpha, a, first, b, second, beta, c, out, d, out, choice)
        self._call("hipblasLtMatmul", *arguments, workspace, size, stream)

    def _forget(self, found: Described) -> None:
        self._call("hipblasLtMatmulDescDestroy", found.operation)
        for layout in found.layouts:
            self._call("hipblasLtMatrixLayoutDestroy", layout)


def _bindings(name: str) -> Any:
    try:
        return importlib.import_module(f"rocm.bindings.{name}")
    except ImportError as error:
        raise ROCmNotAvailableError(
            f"[hipBLASLt] expected AMD's bindings but got: {error}; pip install 'pyflame-rocm[rocm]'"
        ) from error
