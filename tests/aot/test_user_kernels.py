"""`pf.compile_kernel` for targets that are not here: code, resources, what pf_hip.h brings, and refused sources."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend.rocm import ROCmCompiler
from pyflame.core.errors import ArgumentTypeError, CompileError, DeviceError, HIPCompilationError, MatrixCoreError
from pyflame.core.targets import TARGETS
from pyflame.engine.user.kernels import number_word
from pyflame.runtime.rocm.metadata import KernelParameter, read_metadata

PLAIN = """
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
"""
# Everything that the header names, at least once.
EVERYTHING = """
__constant__ float table[4];
__device__ __forceinline__ float bent(float x) {
  return expf(x) + exp(x) + logf(x) + sinf(x) + cosf(x) + tanhf(x) + powf(x, 2.5f) + sqrtf(x) + rsqrtf(x) + fabsf(x)
       + floorf(x) + ceilf(x) + truncf(x) + roundf(x) + rintf(x) + fmaf(x, x, x) + fminf(x, 1) + fmaxf(x, 2) + erff(x)
       + log1pf(x) + expm1f(x) + atan2f(x, 2) + fmodf(x, 3) + copysignf(x, -1) + __expf(x) + __logf(x) + __sinf(x)
       + __powf(x, 3) + __fdividef(x, 7) + min(x, 2.0f) + max(x, 0.5f) + abs(x) + isnan(x) + isinf(x) + isfinite(x);
}
__device__ double bent(double x) { return exp(x) + log(x) + sin(x) + tanh(x) + pow(x, 3.0) + sqrt(x) + fma(x, x, x); }
__global__ void __launch_bounds__(128, 2) all(float4* v, float* f, double* d, int* i, unsigned* u, size_t n) {
  __shared__ float room[128];
  extern __shared__ double more[];
  const int block = blockIdx.y * gridDim.x + blockIdx.x, thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int at = block * blockDim.x * blockDim.y + thread;
  float4 x = v[at];
  room[threadIdx.x] = bent(x.x) + table[threadIdx.x & 3];
  more[threadIdx.x] = bent(d[at]);
  __syncthreads();
  float sum = room[blockDim.x - 1 - threadIdx.x];
  sum += __shfl(sum, 3) + __shfl_xor(sum, 1) + __shfl_up(sum, 2, 16) + __shfl_down(sum, 4);
  sum += __shfl_xor_sync(~0ull, sum, 1) + __shfl_down_sync(~0ull, sum, 1, 8);
  if (__any(sum > 1) && __all(sum < 9) && __ballot(sum > 2) && __ballot_sync(~0ull, sum > 3)) sum += __clz(5);
  sum += __popc(i[at]) + __popcll(i[at]) + __ffs(i[at]);
  __syncwarp();
  __threadfence();
  atomicAdd(f, sum); atomicAdd(d, 1.5); atomicAdd(i, 1); atomicSub(u, 1); atomicMin(i, 3); atomicMax(u, 4u);
  atomicAnd(u, 5u); atomicOr(i, 6); atomicXor(u, 7u); atomicExch(f, 8.0f); atomicCAS(u, 1u, 2u);
  atomicCAS(f, 1.0f, 2.0f);
  v[at] = make_float4(sum, (float)more[threadIdx.x], __int_as_float(__float_as_int(sum)), (float)warpSize);
}
"""
FAMILIES = ("gfx906", "gfx942", "gfx1030", "gfx1201")


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_target_that_is_not_here(target: str) -> None:
    kernel = pf.compile_kernel(PLAIN, "scale", target=target)
    assert (kernel.name, kernel.architecture) == ("scale", target)
    assert repr(kernel) == f"<BuiltKernel scale(float* x, float by, int n) for {target}>"
    found = read_metadata(kernel.code)["scale"]
    assert found.parameters == (
        KernelParameter(0, 8, True), KernelParameter(8, 4, False), KernelParameter(12, 4, False),
    )  # fmt: skip
    assert kernel.resources.clean and 0 < kernel.resources.vgprs <= 16 and kernel.resources.lds_bytes == 0
    with pytest.raises(DeviceError, match=rf"\[scale\] expected a kernel on a device .* only built, for {target}"):
        kernel(pf.ones(3), 2.0, 3, grid=1, block=64)


@pytest.mark.parametrize("target", FAMILIES)
def test_every_name_of_the_header(target: str) -> None:
    kernel = pf.compile_kernel(EVERYTHING, "all", target=target)
    assert kernel.resources.lds_bytes >= 512 and kernel.resources.threads == 128
    assert kernel.resources.clean


@pytest.mark.slow
def test_options_defines_and_folders(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text("#define ROOM 777\n")
    body = "__shared__ int room[ROOM * MANY]; room[x[0]] = x[1]; x[2] = room[x[3]];"
    source = f'#include "sizes.h"\n__global__ void k(int* x) {{ {body} }}'
    built = pf.compile_kernel(
        source, "k", target="gfx90a:sramecc+:xnack-", include_dirs=[tmp_path], defines={"MANY": 2}
    )
    assert built.resources.lds_bytes == 2 * 4 * 777
    slow = pf.compile_kernel(
        source, "k", target="gfx90a", include_dirs=[tmp_path], defines={"MANY": 2}, options=["-O0"]
    )
    assert slow.code != built.code


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("\n\n__global__ void k(int* x) {\n  x[0] = oops;\n}", ["kernel.hip:4:10: error", ">    4 |   x[0] = oops;"]),
        ('#include "gone.h"\n__global__ void k(int* x) {}', ["fatal error", '>    1 | #include "gone.h"']),
        # the fault shows in a header of ours; the line that led there is the user's
        (
            "struct odd {};\n__global__ void k(int* x) {\n  pf_max(odd(), odd());\n  pf_shuffle(*(odd(*)[9])x, 1);\n}",
            [">    3 |   pf_max(odd(), odd());"],
        ),
    ],
)
def test_refused_sources(source: str, lines: list[str]) -> None:
    with pytest.raises(HIPCompilationError) as refused:
        pf.compile_kernel(source, "k", target="gfx942")
    for line in lines:
        assert line in str(refused.value)


@pytest.mark.slow
def test_what_a_launch_cannot_pass() -> None:
    with pytest.raises(
        CompileError, match=r"expected parameter 1 \(pair p\) to be a pointer or a number of up to 8 bytes"
    ):
        pf.compile_kernel("struct pair { double a, b; };\n__global__ void k(int* x, pair p) {}", "k", target="gfx942")
    with pytest.raises(CompileError, match=r"expected 1 parameters, as its prototype seems to say, but the code has 2"):
        pf.compile_kernel("#define MORE , int n\n__global__ void k(int* x MORE) {}", "k", target="gfx942")
    with pytest.raises(
        CompileError, match=r"expected a kernel of this name in the code but it has _Z5otherv; declare it"
    ):
        pf.compile_kernel("#if 0\n__global__ void k() {}\n#endif\n__global__ void other() {}", "k", target="gfx942")
    with pytest.raises(
        pf.ArgumentError, match=r"expected one of gfx906, .*, sm_90 as target but got 'gfx943'; did you"
    ):
        pf.compile_kernel(PLAIN, "scale", target="gfx943")
    with pytest.raises(pf.ArgumentError, match="expected a device or a target"):
        pf.compile_kernel(PLAIN, "scale", target="gfx942", device="cpu")


MATRIX = """
typedef float f4 __attribute__((ext_vector_type(4)));
__global__ void k(float* x) { f4 a = {}; x[0] = __builtin_amdgcn_mfma_f32_4x4x1f32(x[0], x[1], a, 0, 0, 0)[0]; }
"""


def test_matrix_instructions_that_a_target_lacks() -> None:
    assert pf.compile_kernel(MATRIX, "k", target="gfx942").code
    for target, has in (("gfx1030", "it has none"), ("gfx1100", "its matrix instructions are WMMA")):
        with pytest.raises(MatrixCoreError, match=rf"(?s)mfma_f32.*{target} has no such matrix .*\({has}\); guard it"):
            pf.compile_kernel(MATRIX, "k", target=target)
    assert issubclass(MatrixCoreError, HIPCompilationError)


def test_numbers_of_types_that_only_the_compiler_knows() -> None:
    built: Any = pf.compile_kernel("typedef int count;\n__global__ void k(count n) {}", "k", target="gfx942")
    kernel = built._kernel
    assert number_word(kernel, 0, np.int32(-2)) == 2**32 - 2
    with pytest.raises(ArgumentTypeError, match=r"to be a number \(count n\) but got a NumPy int64 of 8 bytes"):
        number_word(kernel, 0, np.int64(3))
    with pytest.raises(ArgumentTypeError, match="give a NumPy scalar of its size"):
        number_word(kernel, 0, 3)


def test_the_compiler_of_the_backend_without_a_gpu() -> None:
    compiler = ROCmCompiler(target="gfx942")
    for _ in range(4):
        compiler.compile_kernel(PLAIN, "scale", defines={"FOR_THIS_TEST": 1})
    stats = compiler.get_compilation_stats()
    assert stats["kernels"] == 4 and stats["compiled"] <= 1 and stats["cache_hit_rate_percent"] >= 75.0


def test_headers_do_not_need_each_other(clang: Any, tmp_path: Path) -> None:
    """A user may include pf_hip.h again, or compile with it by hand."""
    file = tmp_path / "kernel.hip"
    file.write_text('#include "pf_hip.h"\n#include "hip/hip_runtime.h"\n' + PLAIN)
    command = clang.command(TARGETS["gfx1100"], str(file), str(tmp_path / "out"))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
