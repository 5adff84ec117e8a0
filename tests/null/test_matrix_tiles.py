"""Matrix tiles (pf_mma.h): the plain ones run on the host in every block, what compilers make of all, and the table.

`tests/sim/test_matrix_tiles.py` runs MFMA and WMMA. Where there is an nvcc it says whether NVIDIA's text is right.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.targets import TARGETS
from pyflame.core.traced import Trace
from pyflame.engine.aot.resources import read_resources
from pyflame.kernels import conv_gpu, matmul_gpu
from pyflame.kernels.matrix_async import async_tiles
from pyflame.kernels.matrix_cores import MATRIX_KINDS, MatrixTile, matrix_kind, matrix_tiles
from pyflame.kernels.tile_gpu import LEAST_SIDE, TILES, Cut, best_cut, best_cuts
from pyflame.runtime.gpu.compiler import PREFIX
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.sources import include_dir
from tests.gpu import conv_cases
from tests.gpu.gemm_cases import Array, Build, Case, check, product, trained
from tests.gpu.programs import Program, named, symbol
from tests.null.test_gpu_kernels_gemm import AMD, Emulated
from tests.null.texts import clang

__all__ = ["clang"]  # a fixture
DTYPES = (pf.bfloat16, pf.float16, pf.int8, pf.float32, pf.float64)
VIEWS = (("plain", "transposed"), ("transposed", "plain"), ("plain", "plain"), ("transposed", "transposed"))


def forced(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let every product and convolution take this block of pf_mma_loop.h, or the last there is."""

    def only(*given: Any) -> tuple[MatrixTile, ...]:
        tiles = matrix_tiles(*given)
        return tiles[min(number, len(tiles) - 1) :][:1]

    for module in (matmul_gpu, conv_gpu):
        patch.setattr(module, "matrix_tiles", only)
        patch.setattr(module, "async_tiles", lambda *given, **named: ())


# --- numbers ----------------------------------------------------------------------------------------------------------


def around(target: Target, dtype: DType, number: int) -> dict[str, Build]:
    """Shapes with an edge in all three axes, and smaller than a block."""
    kind = matrix_kind(target, dtype)
    assert kind is not None
    tiles = matrix_tiles(target, kind, 4)
    tile, views = tiles[min(number, len(tiles) - 1)], VIEWS[number % 4]
    m, n, k = tile.rows + 8, tile.cols + 16, tile.depth + 16
    return {
        f"{dtype.name} edges": product((m, k), (k, n), dtype, views),
        f"{dtype.name} odd": product((tile.rows - 5, k + 1), (k + 1, tile.cols - 3), dtype, views),
    }


# gfx90a widens float16 on its way to LDS; both wave sizes; targets with and without matrix instructions
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("number", range(9))
def test_blocks_compute_what_numpy_computes(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS[name]
    forced(monkeypatch, number)
    builds: dict[str, Build] = {}
    for dtype in (pf.bfloat16, pf.float16, pf.int8):
        builds |= around(target, dtype, number)
    emulated = Emulated(target, builds)
    assert all("pf_gemm_mma" in text for text in emulated.texts)
    assert emulated.wrong(check, reverse=bool(number % 2)) == {}


CONV_FLAGS = ("X_VECTOR", "W_VECTOR", "X_ALONG_K", "W_ALONG_K", "C_LAST", "N_LAST", "DILATED", "O_LAST")


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", ["gfx90a", "gfx1030"])
def test_convolutions_compute_what_numpy_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both memory orders that a plan may have: between them they fetch and store in every way."""
    builds: dict[str, Build] = {}
    for dtype in (pf.bfloat16, pf.float16):
        builds |= conv_cases.tiled(dtype)
    builds["gradients"] = trained(pf.conv2d, (2, 16, 8, 9), (24, 16, 3, 3), pf.bfloat16, stride=2, padding=1)
    builds["gradients of one tap"] = trained(pf.conv2d, (2, 16, 9, 8), (24, 16, 1, 1), pf.bfloat16, stride=2)
    texts = ""
    for layout in ("nchw", "nhwc"):
        monkeypatch.setenv("PYFLAME_CONV_LAYOUT", layout)
        emulated = Emulated(TARGETS[name], builds)
        assert emulated.wrong(check, reverse=layout == "nhwc") == {}
        texts += "".join(t for t in emulated.texts if "pf_conv_mma" in t)
    assert [f for flag in CONV_FLAGS for n in (0, 1) if (f := f"{flag} = {n}") not in texts] == []
    stores = [f"O_LAST = {last}, OUT_WIDTH = {width}," for last in (0, 1) for width in (1, 8)]
    assert [s for s in stores if s not in texts] == [] and "PHASES = 4" in texts


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_blocks_of_convolutions(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with an edge in all three axes."""
    forced(monkeypatch, number)
    case = conv_cases.convolution(
        (1, 1, 24, 1, 1, 146), (1, 136, 24, 1, 1, 3), dtype=pf.bfloat16, views=conv_cases.LAST
    )
    for name in ("gfx90a", "gfx1030"):
        emulated = Emulated(TARGETS[name], {"one": case})
        assert any("pf_conv_mma" in text for text in emulated.texts)
        assert emulated.wrong(check, reverse=False) == {}


def test_tf32_is_rounded_to_nearest_and_only_where_allowed() -> None:
    target = TARGETS["sm_90"]
    a, b = (np.random.default_rng(n).standard_normal((32, 32)).astype(np.float32) for n in range(2))

    def run() -> Array:
        emulated = Emulated(target, {"one": lambda: _case(a, b)})
        return np.asarray(emulated.run("one", reverse=False)[0])

    exact = a.astype(np.float64) @ b
    np.testing.assert_allclose(run(), exact, rtol=1e-5, atol=1e-5)
    pf.set_float32_matmul_precision("high")
    try:
        rounded = run()
    finally:
        pf.set_float32_matmul_precision("highest")
    near = [(v.view(np.uint32) + 0xFFF + (v.view(np.uint32) >> 13 & 1) & 0xFFFFE000).view(np.float32) for v in (a, b)]
    np.testing.assert_allclose(rounded, near[0].astype(np.float64) @ near[1], rtol=1e-5, atol=1e-5)
    assert np.abs(rounded - exact).max() > 1e-4


def _case(a: Array, b: Array) -> Case:
    return Case([pf.tensor(a) @ pf.tensor(b)], [a @ b])


# --- what compilers make of them --------------------------------------------------------------------------------------


def largest(target: Target) -> list[Program]:
    """A product of each dtype that takes the largest block, and one of 16 rows; a convolution and its gradients."""
    found = []
    for dtype in DTYPES:
        if matrix_kind(target, dtype, matmul_gpu.tf32_allowed()) is not None:
            a, b, row = (pf.tensor(np.zeros(s, dtype.numpy)) for s in ((512, 128), (128, 512), (16, 128)))
            one = replace(target, workers=1)
            found += [Program([out], one) for out in (a @ b, a @ a.T, b.T @ b, row @ b)]
            found += [Program(build().outputs, one) for build in conv_cases.large(dtype) if dtype.is_float]
    return found


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", AMD)
def test_builds_without_spills(name: str, clang: ClangHip) -> None:
    target = TARGETS[name]
    sources = {s.text: s for program in largest(target) for s in program.sources}
    phases = {symbol(t) + p.suffix: (t, p) for t, s in sources.items() for p in s.phases}
    code = clang.build("\n".join(map(named, sources)), target)
    for kernel, found in read_resources(code, {k: p.block for k, (_, p) in phases.items()}, target).items():
        text, phase = phases[kernel]
        shown = f"{found}\n{text}"
        assert found.clean and found.occupancy >= 2, shown
        assert found.lds_bytes == phase.lds_bytes <= target.lds_bytes, shown
        if "pf_mma_" in text and found.matrix_instructions is not None:
            assert found.matrix_instructions == matrix_instructions(text, target), shown


def matrix_instructions(text: str, target: Target) -> int:
    """Those of one step: they stand nowhere but in the loop over k."""
    numbers = {n: int(v) for n, v in (c.split(" = ") for c in text.split("enum { ")[1].split(" };")[0].split(", "))}
    tiles = numbers["ROWS"] * numbers["COLS"] // 256 // (numbers["THREADS"] // target.wave_size)
    kind = text.split("typedef pf_mma_")[1].split(" ")[0]
    newest, older = target.name == "gfx950", target.name in ("gfx908", "gfx90a")
    if target.matrix_core == "wmma":
        each = {"f16": 2, "bf16": 2, "i8": 4}[kind]
    else:
        each = {"f16": 1 if newest else 2, "bf16": 1 if newest else 4 if target.name == "gfx908" else 2,
                "i8": 1 if newest else 4 if older else 2, "f32": 4, "f64": 2}[kind]  # fmt: skip
    return tiles * each * numbers["CHUNKS"]


@pytest.mark.slow(16)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvcc_takes_the_text(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyflame.kernels.matmul_gpu.tf32_allowed", lambda: True)
    for module in (matmul_gpu, conv_gpu):
        monkeypatch.setattr(module, "async_tiles", lambda *given, **named: ())
    texts = {s.text for program in largest(TARGETS["sm_90"]) for s in program.sources}
    assert {kind.name for kind in MATRIX_KINDS["mma"].values()} <= {
        w for t in texts for w in t.replace(" mma;", "").split() if w.startswith("pf_mma_")
    }
    nvcc(texts, arch, tmp_path)


def nvcc(texts: Iterable[str], arch: str, folder: Path, spilled: int = 16) -> str:
    """What NVIDIA's compiler tells of these texts, which it must take. `spilled`: bytes of a lane at most."""
    file = folder / "kernels.cu"
    file.write_text(PREFIX + "\n".join(map(named, sorted(texts))))
    folders = [f"-I{include_dir()}", f"-I{include_dir().parent}"]
    options = ["-gencode", f"arch=compute_{arch[3:]},code={arch}", "-std=c++17", "-DPF_WAVE=32", "-Xptxas=-v", "-cubin"]
    command = ["nvcc", *options, "-o", str(folder / "kernels"), *folders, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert spills and max(spills) <= spilled, "ptxas may give up a few registers for another wave, no more"
    return done.stderr


# --- the table --------------------------------------------------------------------------------------------------------


def test_float32_stays_float32_unless_the_user_allows_less() -> None:
    for target in TARGETS.values():
        kind = matrix_kind(target, pf.float32)
        assert kind is None or (kind.name, kind.made) == ("pf_mma_f32", "x")
    allowed = matrix_kind(TARGETS["sm_90"], pf.float32, tf32=True)
    assert allowed is not None and allowed.name == "pf_mma_tf32"


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "sm_90"])
def test_large_products_take_large_blocks_and_few_rows_small_ones(name: str) -> None:
    target = TARGETS[name]
    kind = matrix_kind(target, pf.bfloat16)
    assert kind is not None
    tiles = matrix_tiles(target, kind, 4)

    def best(m: int, n: int, k: int) -> tuple[int, int]:
        cut = best_cuts(tiles, m, n, k, 1, 4, target.workers)[0]
        return cut.tile.rows, cut.parts

    assert best(8192, 8192, 8192) == (128, 1)
    rows, parts = best(16, 4096, 4096)
    assert rows == 16 and parts > 1
    assert best(64, 64, 1 << 16)[1] > 1, "few outputs of a long k are cut"


def test_a_trace_notes_which_tile_a_product_takes_and_not_why() -> None:
    target = TARGETS["sm_90"]
    kind = matrix_kind(target, pf.bfloat16)
    assert kind is not None
    tiles = matrix_tiles(target, kind, 4)

    def cut(m: int) -> Cut[MatrixTile]:
        return best_cut(0, tiles, m, 512, 4096, 1, 4, target.workers)

    trace = Trace()
    (length,) = trace.numbers([100])
    again = trace.function(cut(length))
    same = [m for m in range(1, 1000) if cut(m).tile == cut(100).tile]
    assert len({cut(m).parts for m in same}) > 1, "so that more than one cut of k is found"
    assert [m for m in range(1, 1000) if again([m]) is not None] == same
    assert all(again([m]) == cut(m) for m in same)


def test_sides_of_tiles_are_multiples_of_what_lengths_are_rounded_to() -> None:
    found = [
        tile
        for target in TARGETS.values()
        for dtype in DTYPES
        if target.is_gpu and (kind := matrix_kind(target, dtype, tf32=True)) is not None
        for sums in (4, 8)
        for tile in (*matrix_tiles(target, kind, sums), *async_tiles(target, kind, sums))
    ]
    assert found and all(t.rows % LEAST_SIDE == t.cols % LEAST_SIDE == 0 for t in (*found, *TILES[4], *TILES[8]))


def test_blocks_fit() -> None:
    """LDS holds two blocks of every kind: a step of one is multiplied while the other waits for memory."""
    for target in TARGETS.values():
        for dtype in DTYPES:
            kind = matrix_kind(target, dtype) if target.is_gpu else None
            if kind is not None:
                sums = 8 if dtype is pf.float64 else 4
                for tile in matrix_tiles(target, kind, sums):
                    assert 2 * tile.lds_bytes(sums) <= target.lds_bytes, (target, tile)
