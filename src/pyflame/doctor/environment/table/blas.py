"""rocBLAS and hipBLASLt."""

from __future__ import annotations

from pyflame.doctor.environment.variable import Variable

_ROCBLAS = "https://rocm.docs.amd.com/projects/rocBLAS/en/latest/reference/env-variables.html"
_HIPBLASLT = "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html"

VARIABLES = (
    Variable(
        "ROCBLAS_USE_HIPBLASLT", "rocBLAS", "0: own kernels only, 1: hipBLASLt first; unset: by GPU", "0 or 1",
        pattern="[01]", source=_ROCBLAS,
    ),
    Variable("ROCBLAS_TENSILE_LIBPATH", "rocBLAS", "folder of kernel files, instead of its own", "a folder",
             source=_ROCBLAS),
    Variable("HIPBLASLT_TENSILE_LIBPATH", "hipBLASLt", "folder of kernel files, instead of its own", "a folder",
             source=_HIPBLASLT),
    Variable("HIPBLASLT_TUNING_FILE", "hipBLASLt", "file to write tuning results to", "a path", source=_HIPBLASLT),
)  # fmt: skip
