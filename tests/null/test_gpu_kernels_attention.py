"""GPU attention and its gradients: run on the host by an emulation, against float64, and built for AMD by clang."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import read_resources
from pyflame.kernels.attention_gpu import WIDEST
from pyflame.runtime.rocm.clang import ClangHip
from tests.gpu.attention_cases import CASES, DECODED, DECODED_TILES, added, attention, packed, tiles_for_few_bytes
from tests.gpu.gemm_cases import check
from tests.gpu.programs import Program, named, symbol
from tests.null.test_gpu_kernels_gemm import RUN_ON, Emulated
from tests.null.test_matrix_tiles import nvcc
from tests.null.texts import clang
from tests.ops.test_attention_paged import CASES as PAGED
from tests.ops.test_attention_paged import numbers
from tests.plans import plan_of

__all__ = ["clang"]  # a fixture
THOROUGH = pytest.mark.thorough
# What the texts must hold so that nothing goes untested; the last numbers are ways, turned or not, and masks.
WAYS = (
    "64, 1", "64, 0", "128, 1", "256, 1", "256, 0", "PF_MIX, 0, 0", "PF_MIX, 0, 1",
    "PF_MIX, 0, 2", "PF_TOTALS, 0, 1", "PF_SLOPES, 0, 1", "PF_SLOPES, 1, 2", "PF_WEIGHTS, 1, 1",
    "PF_SLOPES, 0, 0, 1", "PF_SLOPES, 1, 2, 1", "PF_SLOPES, 1, 0, 0, 1", "PF_WEIGHTS, 1, 0, 0, 2",
)  # fmt: skip


# On matrix tiles: how many of a wave's own tiles, of the others and whether own lines are held; ways, turned, masks.
TILED_WAYS = (
    "4, 2, 64, 1", "4, 2, 32, 1", "4, 1, 64, 1", "4, 1, 32, 0", "2, 1, 32, 0", "PF_MIX, 0, 0", "PF_MIX, 0, 1",
    "PF_MIX, 0, 2", "PF_TOTALS, 0, 1",
    "PF_SLOPES, 0, 1", "PF_SLOPES, 1, 2", "PF_WEIGHTS, 1, 1", "0, PF_SLOPES", "1, PF_SLOPES", "PF_SLOPES, 1, 0, 1",
    "PF_SLOPES, 1, 0, 0, 1", "PF_WEIGHTS, 1, 0, 0, 2",
)  # fmt: skip

# Every branch, dtype and view is the matter of the simulated GPUs.
EMULATED = {
    "wave 64": (
        "plain",
        "causal, more keys",
        "odd, turned",
        "hidden",
        "added, grouped",
        "bfloat16",
        "forward",
        "window",
        "window, added",
        "16 bits, window",
        "256 numbers",
        "packed, window",
        "lengths, hidden",
        "16 bits, lengths",
    ),
    "wave 32, one unit": (
        "causal",
        "odd",
        "widest odd",
        "float16",
        "long",
        "two tiles, grouped",
        "capped",
        "16 bits, capped",
        "192 numbers",
        "lengths",
        "packed",
        "16 bits, packed",
        "256 numbers, forward",
    ),
}


@pytest.fixture(scope="module", params=EMULATED)
def emulated(request: pytest.FixtureRequest) -> Emulated:
    return Emulated(RUN_ON[request.param], {name: CASES[name] for name in EMULATED[request.param]})


@pytest.mark.slow
@pytest.mark.parametrize("target", RUN_ON.values(), ids=list(RUN_ON))
def test_decoding(target: Target) -> None:
    """With one split and with many."""
    with tiles_for_few_bytes():
        emulated = Emulated(target, {**DECODED, **DECODED_TILES})
    assert {p.plan.launches[-1].implementation for p in emulated.programs.values()} == {"decode_gpu"}
    assert {"_join" in text for text in emulated.texts} == {False, True}
    assert emulated.wrong(check, False) == emulated.wrong(check, True) == {}


@pytest.mark.slow(16)
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
def test_computes_what_float64_computes(emulated: Emulated, reverse: bool) -> None:
    assert emulated.wrong(check, reverse) == {}


@pytest.mark.slow
def test_decomposition_says_the_same() -> None:
    """What runs where a library does the products; in float64, for which the CPU has no kernel either."""
    for build in (
        attention((1, 4, 10, 8), (2, 70), 8, pf.float64, causal=True),
        attention((2, 2, 12, 9), (1, 35), 6, pf.float64, mask=added(2, 1, 12, 35)),
    ):
        case = build()
        ops = {op for launch in plan_of(*case.outputs).launches for op in launch.ops}
        assert "matmul" in ops and "attention" not in ops
        check([t.numpy() for t in case.outputs], case)


@pytest.mark.slow(16)
def test_every_way_is_taken() -> None:
    """By the cases above, on the targets above; and no case is decomposed."""
    programs = [Program(build().outputs, target) for target in RUN_ON.values() for build in CASES.values()]
    assert not any("matmul" in launch.ops for p in programs for launch in p.plan.launches)
    texts = [text for p in programs for text in p.texts]
    for file, ways in (("attention.hip", WAYS), ("attention_mma.hip", TILED_WAYS)):
        found = "".join(text for text in texts if f'"{file}"' in text)
        assert [way for way in ways if way not in found] == []


# Those that need most. For other targets tests/aot/test_kernels.py builds some.
BUILT = ("plain", "widest odd", "added, turned", "bfloat16 odd", "window, added")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gfx906", "gfx1030"])
def test_builds_without_spills(name: str, clang: ClangHip) -> None:
    target = TARGETS[name]
    programs = [Program(CASES[case]().outputs, target) for case in BUILT]
    sources = [s for program in programs for s in program.sources if "attention.hip" in s.text]
    phases = {symbol(s.text) + p.suffix: (s, p) for s in sources for p in s.phases}
    code = clang.build("\n".join(named(t) for t in sorted({s.text for s in sources})), target)
    for kernel, found in read_resources(code, {k: p.block for k, (_, p) in phases.items()}, target).items():
        source, phase = phases[kernel]
        shown = f"{found}\n{source.text}"
        assert found.clean, shown
        assert found.lds_bytes == phase.lds_bytes <= 48 * 1024, shown
        if "64, 1, PF_MIX" in source.text:
            assert found.occupancy >= 2 and (found.global_loads is None or found.global_loads.get(16)), shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "gfx942",
        "gfx1100",
        *(pytest.param(n, marks=pytest.mark.thorough) for n in ("gfx908", "gfx90a", "gfx950", "gfx1201")),
    ],
)
def test_tiles_build_without_spills(name: str, clang: ClangHip) -> None:
    """Lines of the usual lengths in bfloat16, which every such GPU multiplies."""
    target = TARGETS[name]
    programs = [
        Program(attention((1, 2, 160, size), (2, 160), size, pf.bfloat16, causal=True, softcap=cap)().outputs, target)
        for size in (64, 128, 256 if target.wave_size == 64 else 192)
        for cap in (None, 30.0)
    ]
    programs += [
        Program(packed((160, 2, size), (160, 2), size, ((80, 90), (80, 70)), pf.bfloat16)().outputs, target)
        for size in (64, 128)
    ]
    sources = [s for program in programs for s in program.sources if "attention_mma.hip" in s.text]
    phases = {symbol(s.text) + p.suffix: (s, p) for s in sources for p in s.phases}
    code = clang.build("\n".join(named(t) for t in sorted({s.text for s in sources})), target)
    for kernel, found in read_resources(code, {k: p.block for k, (_, p) in phases.items()}, target).items():
        _, phase = phases[kernel]
        assert found.clean and found.matrix_instructions, found
        assert found.lds_bytes == phase.lds_bytes <= 64 * 1024, found


def few(size: int, dtype: pf.DType, rows: int) -> list[pf.Tensor]:
    return attention((1, 2 * rows, 1, size), (2, 4096), size, dtype, gradient=False, softcap=30.0)().outputs


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", ["gfx906", "gfx942", "gfx1030", "gfx1100"])
def test_decoding_builds_without_spills(name: str, clang: ClangHip) -> None:
    target = TARGETS[name]
    cases = [few(size, dtype, 8) for size in (64, 128, 256) for dtype in (pf.float32, pf.bfloat16, pf.float16)]
    sources = [s for outputs in cases for s in Program(outputs, target).sources if "attention_decode" in s.text]
    phases = {symbol(s.text) + p.suffix: p for s in sources for p in s.phases}
    code = clang.build("\n".join(named(t) for t in sorted({s.text for s in sources})), target)
    for kernel, found in read_resources(code, {k: p.block for k, p in phases.items()}, target).items():
        assert found.clean and found.lds_bytes == phases[kernel].lds_bytes <= 48 * 1024, found
        if kernel.endswith("_few"):
            assert found.global_loads is None or (set(found.global_loads) == {16} and found.global_loads[16] >= 8), (
                found
            )


# --- choices ----------------------------------------------------------------------------------------------------------


def implementations(tensors: list[pf.Tensor]) -> set[str]:
    return {launch.implementation for launch in Program(tensors, TARGETS["gfx942"]).plan.launches}


def test_what_is_decomposed() -> None:
    """Few queries, lines that no block holds, and numbers that are not added in float."""
    for build in (
        attention((1, 2, 7, 8), (2, 40), 8),
        attention((1, 2, 9, 8), (2, 40), WIDEST + 1),
        attention((1, 2, 9, 8), (2, 40), 8, pf.float64),
    ):
        found = implementations(build().outputs)
        assert "gemm_gpu" in found and not found & {"flash_gpu", "flash_mma"}


def test_who_gets_matrix_tiles() -> None:
    """16-bit numbers in lines that registers and LDS hold, where the GPU multiplies them as they lie."""

    def chosen(target: str, dtype: pf.DType, size: int = 64, gradient: bool = False) -> set[str]:
        outputs = attention((1, 2, 40, size), (2, 40), size, dtype, gradient=gradient)().outputs
        return {launch.implementation for launch in Program(outputs, TARGETS[target]).plan.launches}

    assert "flash_mma" in chosen("gfx942", pf.bfloat16) & chosen("gfx1100", pf.float16)
    assert "flash_gpu" in chosen("gfx942", pf.float32)
    for target, most in (("gfx942", 256), ("gfx1100", 192), ("gfx1201", 192), ("sm_90", 128)):
        assert "flash_gpu" not in chosen(target, pf.bfloat16, 256) | chosen(target, pf.bfloat16, most, gradient=True)
        assert ("flash_gpu" in chosen(target, pf.bfloat16, most + 8, gradient=True)) == (most < 256)
    assert "flash_gpu" in chosen("gfx1030", pf.bfloat16) & chosen("gfx90a", pf.float16)


def test_no_scores_in_memory() -> None:
    program = Program(attention((1, 1, 512, 16), (1, 512), 16, causal=True)().outputs, TARGETS["gfx942"])
    assert max(b.nbytes for b in program.plan.buffers) < 512 * 512
    assert max(s.scratch_bytes for s in program.sources) == 16 * 512


def test_shapes_share_text() -> None:
    def texts(queries: int, keys: int, depth: int) -> set[str]:
        outputs = attention((2, 4, queries, depth), (2, keys), depth, causal=True)().outputs
        return {t for t in Program(outputs, TARGETS["gfx942"]).texts if "attention.hip" in t}

    assert texts(40, 40, 32) == texts(50, 45, 64)


@pytest.mark.slow(16)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_tiles_build_for_nvidia(arch: str, tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    target = replace(TARGETS["sm_90"], name=arch, matrix_core={"sm_80": "mma", "sm_90": "wgmma"}[arch])
    forward = [
        attention((1, 2, 160, size), (2, 160), size, pf.bfloat16, causal=True, gradient=False) for size in (192, 256)
    ]
    both = [attention((1, 2, 160, size), (2, 160), size, pf.bfloat16, causal=True, softcap=30.0) for size in (64, 128)]
    texts = {
        t for build in (*forward, *both) for t in Program(build().outputs, target).texts if "attention_mma.hip" in t
    }
    assert len(texts) >= 4
    for size in (64, 128, 256):
        for dtype in (pf.float32, pf.bfloat16):
            texts |= set(Program(few(size, dtype, 8), target).texts)
    for name in ("half", "int8", "float8", "half pages", "sinks"):
        tensors, named = numbers(PAGED[name])
        texts |= set(Program([pf.paged_attention(*tensors, **named)], target).texts)
    nvcc(texts, arch, tmp_path)
