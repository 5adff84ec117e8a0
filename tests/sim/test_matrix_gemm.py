"""GEMM tiles of HIP kernels with the compiler's matrix builtins, through the simulated machine, against NumPy.

D[64][64] = A[64][K] B[64][K]^T. Four waves of gfx942 compute a 32x32 quarter each; on gfx1100 each of four computes
four tiles of 16x16. How lanes load and store is written as a user would, from AMD's layouts.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import pytest

from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.sim.machine import RACES, UNINITIALISED, Machine
from pyflame.runtime.sim.memory import Memory
from tests.sim.matrix_formats import DTYPES

DEPTH = 64

CDNA = r"""
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef short short4_ __attribute__((ext_vector_type(4)));
typedef float float4_ __attribute__((ext_vector_type(4)));
typedef float float16_ __attribute__((ext_vector_type(16)));
typedef int int16_ __attribute__((ext_vector_type(16)));
#define LANE (__builtin_amdgcn_workitem_id_x() & 63)
#define QUARTER int wave = __builtin_amdgcn_workitem_id_x() >> 6, top = wave / 2 * 32, left = wave % 2 * 32

/* 32x32 tiles: lane = 32 * (k / P) + i; D: 4 rows at a time, 8 apart. */
#define BIG(NAME, T, V, ACC, OUT, P, CALL)                                                          \
extern "C" __attribute__((global)) void NAME(const T *a, const T *b, OUT *d, int depth) {           \
  QUARTER; const int lane = LANE, i = lane % 32, part = lane / 32;                                   \
  ACC acc = {};                                                                                     \
  for (int k = 0; k < depth; k += 2 * P) {                                                          \
    V x, y;                                                                                         \
    __builtin_memcpy(&x, a + (top + i) * depth + k + part * P, sizeof x);                           \
    __builtin_memcpy(&y, b + (left + i) * depth + k + part * P, sizeof y);                          \
    acc = CALL(x, y, acc, 0, 0, 0);                                                                 \
  }                                                                                                 \
  for (int n = 0; n < 16; n++) d[(top + 8 * (n / 4) + 4 * part + n % 4) * 64 + left + i] = acc[n];   \
}
/* 16x16 tiles: lane = 16 * (k / P) + i; D: row 4 * (lane / 16) + n. */
#define SMALL(NAME, T, V, P, CALL)                                                                  \
extern "C" __attribute__((global)) void NAME(const T *a, const T *b, float *d, int depth) {         \
  QUARTER; const int lane = LANE, i = lane % 16, part = lane / 16;                                   \
  for (int tile = 0; tile < 4; tile++) {                                                            \
    const int row = top + tile / 2 * 16, column = left + tile % 2 * 16;                             \
    float4_ acc = {};                                                                               \
    for (int k = 0; k < depth; k += 4 * P) {                                                        \
      V x, y;                                                                                       \
      __builtin_memcpy(&x, a + (row + i) * depth + k + part * P, sizeof x);                         \
      __builtin_memcpy(&y, b + (column + i) * depth + k + part * P, sizeof y);                      \
      acc = CALL(x, y, acc, 0, 0, 0);                                                               \
    }                                                                                               \
    for (int n = 0; n < 4; n++) d[(row + 4 * part + n) * 64 + column + i] = acc[n];                  \
  }                                                                                                 \
}
BIG(gemm_f16, _Float16, half4, float16_, float, 4, __builtin_amdgcn_mfma_f32_32x32x8f16)
BIG(gemm_bf16, short, short4_, float16_, float, 4, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k)
BIG(gemm_i8, char, long, int16_, int, 8, __builtin_amdgcn_mfma_i32_32x32x16_i8)
BIG(gemm_f32, float, float, float16_, float, 1, __builtin_amdgcn_mfma_f32_32x32x2f32)
SMALL(gemm_fp8, char, long, 8, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8)
SMALL(gemm_f16_16, _Float16, half4, 4, __builtin_amdgcn_mfma_f32_16x16x16f16)
"""

RDNA = r"""
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef short short16_ __attribute__((ext_vector_type(16)));
typedef int int4_ __attribute__((ext_vector_type(4)));
typedef float FACC __attribute__((ext_vector_type(256 / PF_WAVE)));
typedef int IACC __attribute__((ext_vector_type(256 / PF_WAVE)));
#define GROUPS (PF_WAVE / 16)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define W(name) JOIN(name, JOIN(_w, PF_WAVE))
#define TILES(NAME, T, V, ACC, OUT, CALL)                                                           \
extern "C" __attribute__((global)) void NAME(const T *a, const T *b, OUT *d, int depth) {           \
  const int wave = __builtin_amdgcn_workitem_id_x() / PF_WAVE, lane = __builtin_amdgcn_workitem_id_x() % PF_WAVE; \
  const int i = lane % 16;                                                                          \
  for (int tile = wave; tile < 16; tile += 4) {                                                     \
    const int row = tile / 4 * 16, column = tile % 4 * 16;                                          \
    ACC acc = {};                                                                                   \
    for (int k = 0; k < depth; k += 16) {                                                           \
      V x, y;                                                                                       \
      __builtin_memcpy(&x, a + (row + i) * depth + k, sizeof x);                                    \
      __builtin_memcpy(&y, b + (column + i) * depth + k, sizeof y);                                 \
      acc = CALL;                                                                                   \
    }                                                                                               \
    for (int n = 0; n < 256 / PF_WAVE; n++) d[(row + GROUPS * n + lane / 16) * 64 + column + i] = acc[n]; \
  }                                                                                                 \
}
TILES(gemm_f16, _Float16, half16, FACC, float, W(__builtin_amdgcn_wmma_f32_16x16x16_f16)(x, y, acc))
TILES(gemm_bf16, short, short16_, FACC, float, W(__builtin_amdgcn_wmma_f32_16x16x16_bf16)(x, y, acc))
TILES(gemm_i8, char, int4_, IACC, int, W(__builtin_amdgcn_wmma_i32_16x16x16_iu8)(1, x, 1, y, acc, 0))
"""

KERNELS = [
    *(("gfx942", 64, name) for name in ("f16", "bf16", "i8", "f32", "fp8", "f16_16")),
    *(("gfx1100", wave, name) for wave in (32, 64) for name in ("f16", "bf16", "i8")),
]


@functools.cache
def build(target: str, wave: int) -> bytes:
    compiler = ClangHip()
    if target == "gfx942":
        return compiler.compile(CDNA, TARGETS[target])
    options = ("-mwavefrontsize64", "-UPF_WAVE", "-DPF_WAVE=64") if wave == 64 else ()
    return compiler.compile(RDNA, TARGETS[target], options)


def place(memory: Memory, values: Any) -> int:
    address = memory.allocate(values.nbytes)
    memory.view(address, values.nbytes, write=True)[:] = values.view(np.uint8).reshape(-1)
    return address


@pytest.mark.parametrize(("target", "wave", "name"), KERNELS)
def test_tile(target: str, wave: int, name: str) -> None:
    kind = name.split("_")[0]
    rng = np.random.default_rng(0)
    if kind == "i8":
        a, b = (rng.integers(-128, 128, (64, DEPTH), np.int8) for _ in range(2))
    else:
        a, b = (rng.standard_normal((64, DEPTH)).astype(DTYPES[kind]) for _ in range(2))
    memory = Memory(1 << 22)
    machine = Machine(target, memory, checks=UNINITIALISED | RACES)
    module = machine.load(build(target, wave))
    out = memory.allocate(64 * 64 * 4)
    arguments = struct.pack("<QQQi", place(memory, a), place(memory, b), out, DEPTH)
    machine.launch(module.kernels[f"gemm_{name}"], (1, 1, 1), (4 * wave, 1, 1), 0, arguments)
    result = memory.view(out, 64 * 64 * 4)
    if kind == "i8":
        wanted = a.astype(np.int64) @ b.astype(np.int64).T
        np.testing.assert_array_equal(result.view(np.int32).reshape(64, 64), wanted)
        return
    left, right = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(result.view(np.float32).reshape(64, 64) - left @ right.T)
    # A rounding for each of the at most 64 steps, and what is cut off below them.
    assert (error <= DEPTH * 2.0**-23 * (np.abs(left) @ np.abs(right).T)).all()
