"""Kernels over encoded weights, built for AMD's and NVIDIA's GPUs: every encoding, no spills, wide loads."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.core.device import DeviceId, Target
from pyflame.core.encoding import ENCODINGS, row_bytes
from pyflame.core.targets import TARGETS
from pyflame.engine import devices
from pyflame.engine.aot.resources import read_resources
from pyflame.engine.libraries import decide
from pyflame.engine.texts import gpu_source
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels import encoded_gemm_gpu
from pyflame.kernels.encoded_gemm_gpu import encoded_gemm_variants
from pyflame.kernels.tile_gpu import VARIANTS
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.disassembly import disassemble, find_objdump
from tests.emulated import emulated_device
from tests.gpu import encoded_cases
from tests.gpu.gemm_cases import Case
from tests.null.test_gpu_kernels_gemm import AMD, Emulated
from tests.null.test_matrix_async import AMPERE, BLOCKS, HOPPER, blocks, only
from tests.null.test_matrix_tiles import nvcc
from tests.null.texts import clang, metadata, named, planned, symbol

__all__ = ["clang"]  # a fixture
WIDTH = 4096
LAYERS = [(name, 1) for name, kind in ENCODINGS.items() if kind.pair] + [("f16", 1)]
LAYERS += [(name, rows) for name in ("q4_0", "q8_0", "q4_k", "f16", "int4_g128") for rows in (5, 16)]
FEW = ("q4_0", "q6_k", "f16")  # where all are built for another target
# encoding, tokens and matrices: one token, several that share matrices, prompts with short and with long parts
EXPERTS = (("q4_0", 1, 64), ("q4_k", 8, 16), ("q6_k", 128, 64), ("q8_0", 4096, 8), (None, 512, 128))


def source_of(launch: Launch, target: Target, aligned: bool) -> GpuSource | None:
    return gpu_source(launch, target, aligned)


def decoded(name: str) -> list[pf.Tensor]:
    return [pf.dequantize(pf.empty(64, row_bytes(name, WIDTH), dtype=pf.uint8), pf.bfloat16, encoding=name)]


def layer(name: str, rows: int, dtype: pf.DType) -> list[pf.Tensor]:
    data = pf.empty(14336, row_bytes(name, WIDTH), dtype=pf.uint8)
    return [pf.encoded_linear(pf.empty(rows, WIDTH, dtype=dtype), data, encoding=name, width=WIDTH)]


def experts(name: str | None, tokens: int, count: int, dtype: pf.DType) -> list[pf.Tensor]:
    wide, kind = (row_bytes(name, 2048), pf.uint8) if name else (2048, dtype)
    x, data = pf.empty(tokens, 2048, dtype=dtype), pf.empty(count, 768, wide, dtype=kind)
    return [pf.expert_linear(x, data, pf.empty(tokens, 8, dtype=pf.int64), encoding=name)]


def experts_sources(target: Target, dtype: pf.DType) -> list[GpuSource]:
    made = [planned(lambda case=case: experts(*case, dtype), target, source=source_of) for case in EXPERTS]
    return [s for plan in made for s in plan.sources if s]


def sources(
    target: Target, dtype: pf.DType, names: Sequence[str] = tuple(ENCODINGS)
) -> Iterator[tuple[str, GpuSource]]:
    for name in names:
        yield from ((name, s) for s in planned(lambda name=name: decoded(name), target, source=source_of).sources if s)
    for name, rows in LAYERS:
        if name not in names:
            continue
        plan = planned(lambda name=name, rows=rows: layer(name, rows, dtype), target, source=source_of)
        yield from ((name, s) for s in plan.sources if s)


@pytest.mark.slow(16)
@pytest.mark.parametrize(("name", "dtype"), [("gfx942", pf.bfloat16), ("gfx1030", pf.float32), ("gfx906", pf.float16)])
def test_builds_without_spills(name: str, dtype: pf.DType, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[name]
    found = list(sources(target, dtype, tuple(ENCODINGS) if name == "gfx942" else FEW))
    texts = {s.text for _, s in found}
    code = clang.build("\n".join(map(named, sorted(texts))), target)
    kernels = metadata(code, tmp_path)
    assert len(texts) == len(found) and sum("encoded.hip" in text for text in texts) >= 3
    assert sum("encoded_dots.hip" in text for text in texts) >= 2
    for text in texts:
        numbers = kernels[symbol(text) + "_0"]
        assert numbers["private_segment_fixed_size"] == 0, text
        assert numbers["vgpr_spill_count"] == numbers["sgpr_spill_count"] == 0, text
    objdump = find_objdump()
    if objdump is None or name != "gfx942":
        return
    listing = disassemble(code, objdump, "--no-show-raw-insn", "--no-leading-addr")
    bodies = dict(re.findall(r"^<(\w+)>:\n(.*?)(?=^<|\Z)", listing, re.MULTILINE | re.DOTALL))
    narrow = [kind for kind, s in found if "global_load_dwordx4" not in bodies[symbol(s.text) + "_0"]]
    # blocks of an odd number of bytes are loaded in as large parts as clang finds
    assert set(narrow) <= {"mxfp4"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("gfx90a", pf.float16), ("gfx1030", pf.bfloat16), ("gfx1201", pf.float32)])
def test_experts_build_without_spills(name: str, dtype: pf.DType, clang: ClangHip, tmp_path: Path) -> None:
    found = experts_sources(TARGETS[name], dtype)
    code = clang.build("\n".join(map(named, sorted({s.text for s in found}))), TARGETS[name])
    kernels = metadata(code, tmp_path)
    assert [len(s.phases) for s in found] == [1, 1, 2, 2, 2]
    for source in found:
        for phase in source.phases:
            numbers = kernels[symbol(source.text) + phase.suffix]
            spilled = [numbers[k] for k in ("private_segment_fixed_size", "vgpr_spill_count", "sgpr_spill_count")]
            assert spilled == [0, 0, 0], source.text


@pytest.mark.slow(16)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_takes_the_text(tmp_path: Path) -> None:
    nvcc({s.text for s in experts_sources(TARGETS["sm_90"], pf.bfloat16)}, "sm_90", tmp_path)
    nvcc({s.text for _, s in sources(TARGETS["sm_90"], pf.bfloat16)}, "sm_90", tmp_path)


# --- more rows: encoded_gemm.hip --------------------------------------------------------------------------------------


DECODING = [(target, n) for target, n in BLOCKS if blocks(target)[n].may_decode]
NAMES = [f"{target.name} {blocks(target)[n].label}" for target, n in DECODING]
EVERY = pytest.param(tuple(ENCODINGS), marks=pytest.mark.thorough, id="every encoding")
SOME = pytest.param(("q6_k",), id="one")


def ways(target: Target, name: str, rows: int, dtype: pf.DType) -> list[GpuSource]:
    """All ways that are worth timing."""
    (launch,) = planned(lambda: layer(name, rows, dtype), target, source=source_of).plan.launches
    variants = range(len(encoded_gemm_variants(launch, target)))
    return [gpu_source(replace(launch, variant=variant), target) for variant in variants]


@pytest.mark.slow
@pytest.mark.parametrize("names", [SOME, EVERY])
@pytest.mark.parametrize("name", AMD)
def test_tiles_build_without_spills(name: str, names: Sequence[str], clang: ClangHip) -> None:
    """In the largest block, which one compute unit takes, and dtypes that go other ways."""
    one = replace(target := TARGETS[name], workers=1)
    made = [ways(one, kind, 512, pf.bfloat16)[0] for kind in names]
    made += [ways(one, "q4_k", 512, pf.float16)[0], ways(one, "q4_0", 512, pf.float32)[0]]
    found = {source.text: source for source in made}
    phases = {symbol(t) + p.suffix: p for t, s in found.items() for p in s.phases}
    code = clang.build("\n".join(map(named, found)), target)
    for kernel, resources in read_resources(code, {k: p.block for k, p in phases.items()}, target).items():
        assert resources.clean and resources.lds_bytes == phases[kernel].lds_bytes <= target.lds_bytes, kernel


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize(("target", "arch"), [(HOPPER, "sm_90a"), (AMPERE, "sm_80")], ids=["sm_90a", "sm_80"])
@pytest.mark.parametrize("names", [SOME, EVERY])
def test_nvcc_takes_tiles(target: Target, arch: str, names: Sequence[str], tmp_path: Path) -> None:
    """The largest blocks and lines decoded first; with every encoding, every block, too."""
    texts = {s.text for kind in names for s in ways(target, kind, 512, pf.bfloat16)}
    for number in [n for t, n in DECODING if t is target and len(names) > 1]:
        with pytest.MonkeyPatch.context() as patch:
            only(patch, number)
            texts |= {s.text for s in ways(target, "q4_k", 64, pf.bfloat16)}
    assert "serialized" not in nvcc(texts, arch, tmp_path), "wgmma waits for other instructions"


@pytest.mark.slow
@pytest.mark.parametrize(("target", "number"), DECODING, ids=NAMES)
def test_blocks_compute_what_numpy_computes(target: Target, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks whose x is copied asynchronously, on the host: edges in all axes, more steps than LDS holds, a bias."""
    only(monkeypatch, number)
    tile, kinds = blocks(target)[number], ("q4_0", "q8_0", "mxfp4", "int4_g32")
    shapes = ((tile.rows + 8, tile.cols + 24, tile.depth + 32), (17, 16, (tile.stages + 1) * tile.depth + 32))
    given = [
        encoded_cases.random_layer(kinds[(number + n) % 4], m, out, (pf.bfloat16, pf.float16)[n], k // 32)
        for n, (m, out, k) in enumerate(shapes)
    ]
    builds = {
        f"{n}": lambda n=n, arrays=arrays: Case([encoded_cases.layer(kinds[(number + n) % 4], *arrays)], [])
        for n, arrays in enumerate(given)
    }
    emulated = Emulated(target, builds)
    assert all("pf_encoded_async" in text for text in emulated.texts)
    for n, arrays in enumerate(given):
        (got,) = emulated.run(str(n), reverse=bool(number % 2))
        encoded_cases.check_layer(got, kinds[(number + n) % 4], *arrays)


def test_who_decodes_lines_first() -> None:
    """Many rows, and what no matrix tile takes. Scratch is bounded however large the weight is."""
    (many,) = planned(lambda: layer("q4_0", 4096, pf.bfloat16), HOPPER, source=source_of).sources
    (few,) = planned(lambda: layer("q4_0", 64, pf.bfloat16), HOPPER, source=source_of).sources
    (wide,) = planned(lambda: layer("q4_0", 64, pf.float32), HOPPER, source=source_of).sources
    assert "pf_encoded_async<" in few.text and few.scratch_bytes < 1 << 24
    for source in (many, wide):
        assert "pf_encoded_" not in source.text and "pf_dequantize<" in source.text
    assert len(many.phases) > 2 and many.scratch_bytes <= 64 << 20


@pytest.mark.slow
def test_ways_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU of a vendor, which an emulated one is taken for here."""
    name = DeviceId("rocm", 78)
    monkeypatch.setitem(devices._open, name, emulated_device(78, "sm_90"))
    monkeypatch.setattr(decide.Libraries, "real", True)
    monkeypatch.setattr(encoded_gemm_gpu, "TIMED", 0)
    arrays = encoded_cases.random_layer("q4_0", 17, 16, pf.bfloat16, 2)
    found = encoded_cases.layer("q4_0", *arrays, device=str(name))
    said = " ".join(re.sub("[│┃]", " ", str(pf.explain(found))).split())
    assert "measured" in said and said.count(" ms") == VARIANTS
    encoded_cases.check_layer(found.numpy(), "q4_0", *arrays)
