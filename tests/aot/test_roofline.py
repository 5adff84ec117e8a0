"""Estimates of `pyflame kernels`: published peaks, what bounds a kernel, and inner loops of listings."""

from __future__ import annotations

import pytest

import pyflame as pf
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.engine.aot.roofline import BY_TARGET, estimate
from pyflame.runtime.rocm.disassembly import find_objdump, parse
from pyflame.runtime.rocm.loops import inner_loops

# TFLOP/s as AMD's data sheets and product pages print them; of MI250X for one of two dies.
PUBLISHED = {
    "gfx90a": {"f64": 47.9, "f16": 191.5, "bf16": 191.5, "i8": 191.5},
    "gfx942": {"f64": 163.4, "f32": 163.4, "xf32": 653.7, "f16": 1307.4, "bf16": 1307.4, "f8": 2614.9, "i8": 2614.9},
    "gfx950": {"f64": 78.6, "f32": 157.3, "f16": 2516.6, "bf16": 2516.6, "f8": 5033.2, "i8": 5033.2},
    "gfx1100": {"f16": 122.9, "bf16": 122.9, "i8": 122.9},
    "gfx1201": {"f16": 194.6, "bf16": 194.6, "f8": 389.3, "i8": 389.3},
}
VECTOR = {"gfx90a": 23.9, "gfx942": 163.4, "gfx950": 157.3, "gfx1100": 61.4, "gfx1201": 48.7}


@pytest.mark.parametrize("target", PUBLISHED)
def test_peaks_are_the_published_ones(target: str) -> None:
    gpu = BY_TARGET[target]
    for kind, tflops in PUBLISHED[target].items():
        assert gpu.tflops(gpu.matrix[kind]) == pytest.approx(tflops, rel=2e-3)
    assert gpu.tflops(gpu.vector["f32"]) == pytest.approx(VECTOR[target], rel=2e-3)
    assert all(word in gpu.text for word in (gpu.name, "GB/s", "Source: "))


def test_what_bounds_a_kernel() -> None:
    gpu = BY_TARGET["gfx942"]
    loop = {"matrix f16 16x16x16": 16, "vector": 40}
    matrix = estimate(gpu, 2 * 4096**3, 3 * 4096**2 * 2, "f32", loop)
    assert matrix.bound == "matrix f16" and matrix.seconds == pytest.approx(2 * 4096**3 / 1307.4e12, rel=1e-3)
    assert estimate(gpu, 10, 53 * 10**6, "f32", loop).text == "10 us, memory"
    assert estimate(gpu, 10**9, 1, "f64", {"vector": 1}).seconds == pytest.approx(1e9 / 81.7e12, rel=1e-3)
    # a 16x16x16 instruction keeps a matrix unit for 16 cycles, a vector instruction a SIMD for 4
    busy = estimate(gpu, 2 * 4096**3, 1, "f32", {"matrix f16 16x16x16": 16, "vector": 128})
    assert busy.bound == "vector instructions beside matrix" and busy.seconds == pytest.approx(2 * matrix.seconds)
    unknown = estimate(BY_TARGET["gfx1100"], 10**12, 96 * 10**7, "f64", {"vector": 1})
    assert unknown.bound == "memory; no peak of f64 is published" and unknown.seconds == pytest.approx(1e-3)
    assert estimate(BY_TARGET["gfx1100"], 10**12, 1, "f32", {}).text == "16.3 ms, vector f32"


LISTING = """
<first>:
\ts_mov_b32 s0, 0
<L0>:
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
<L1>:
\tv_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
\tv_mfma_f32_32x32x8f16 v[0:15], v[4:5], v[6:7], v[0:15]
\tds_read_b128 v[0:3], v4
\tv_add_u32_e32 v0, 1, v0
\ts_cbranch_scc1 L2
\tv_add_u32_e32 v0, 1, v0
<L2>:
\ts_cbranch_scc1 L1
\ts_cbranch_vccnz L0
<L3>:
\tv_add_u32_e32 v0, 1, v0
\ts_branch L3
<second>:
\tv_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7]
\tv_mul_f32_e32 v0, v1, v2
"""


def test_inner_loops() -> None:
    """The innermost one that multiplies; of code without a loop all of it. Labels inside are no functions."""
    found = inner_loops(LISTING)
    assert found == {
        "first": {"lds": 1, "matrix bf16 16x16x16": 1, "matrix f16 32x32x8": 1, "vector": 2},
        "second": {"matrix i8 16x16x16": 1, "vector": 1},
    }
    assert {name: counts.matrix for name, counts in parse(LISTING).items()} == {"first": 2, "second": 1}


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_the_inner_loop_of_a_product(target: str) -> None:
    if find_objdump() is None:
        pytest.skip("there is no llvm-objdump")
    fn, inputs = PROGRAMS["matmul_float16"]()
    plan = pf.aot.compile(fn, *inputs, target=target)
    loop, (launch, *_) = plan.report.kernels[0].inner_loop, plan.launches
    assert loop is not None and loop["matrix f16 16x16x16"] >= 8 and loop["lds"] and loop["load"]
    assert launch.flops == 2 * 4096**3 and launch.nbytes == 3 * 4096**2 * 2 and launch.dtype == "f32"
    best = estimate(BY_TARGET[target], launch.flops, launch.nbytes, launch.dtype, loop)
    assert best.bound == "matrix f16"
