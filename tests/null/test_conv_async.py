"""Convolutions fed by asynchronous copies (conv_async.hip): every block on the host, and what nvcc says.

`tests/gpu/test_gemm_on_nvidia.py` runs the same cases where there is a GPU.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.engine.texts import gpu_source
from pyflame.kernels import conv_gpu
from pyflame.kernels.matrix_async import AsyncTile, async_tiles
from pyflame.kernels.matrix_cores import matrix_kind
from tests.gpu import conv_cases
from tests.gpu.gemm_cases import Build, check, convolution, fused_convolution, trained
from tests.gpu.programs import Program
from tests.null.test_gpu_kernels_gemm import Emulated
from tests.null.test_matrix_async import AMPERE, HOPPER
from tests.null.test_matrix_tiles import nvcc


def blocks(target: Target) -> tuple[AsyncTile, ...]:
    """Of convolutions."""
    kind = matrix_kind(target, pf.bfloat16)
    assert kind is not None
    return async_tiles(target, kind, 4, clusters=False)


BLOCKS = [(t, n) for t in (HOPPER, AMPERE) for n in range(len(blocks(t)))]


def only(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let every convolution take this block."""
    patch.setattr(conv_gpu, "async_tiles", lambda *given, **named: async_tiles(*given, **named)[number : number + 1])


def cases(dtype: pf.DType) -> dict[str, Build]:
    """Those of conv_cases.py that lie in vectors; edges in pixels, channels and k; results that lie otherwise."""
    names = ("last", "last, stride", "last, dilated", "last, 1d", "last, by turned", "last, long", "turned", "fused")
    found = {name: conv_cases.tiled(dtype)[f"{dtype.name} {name}"] for name in names}
    return found | {
        "groups": convolution((2, 2, 16, 1, 5, 6), (2, 16, 16, 1, 3, 3), dtype=dtype, views=conv_cases.LAST),
        "3d": convolution((1, 1, 16, 3, 5, 4), (1, 16, 16, 2, 3, 2), pad=(1, 1, 0), dtype=dtype, views=conv_cases.LAST),
        "fused, misaligned": fused_convolution((2, 16, 7, 8), (24, 16, 3, 3), dtype, "misaligned", padding=1),
        "gradients": trained(pf.conv2d, (2, 16, 8, 9), (24, 16, 3, 3), dtype, stride=2, padding=1),
        "gradients of more pixels": trained(pf.conv2d, (2, 16, 15, 17), (24, 16, 3, 3), dtype, stride=2, padding=1),
        "gradients of one tap": trained(pf.conv2d, (2, 16, 9, 8), (24, 16, 1, 1), dtype, stride=2),
        "gradients of a volume": trained(pf.conv3d, (1, 16, 4, 5, 6), (16, 16, 2, 3, 3), dtype, stride=(1, 2, 2)),
        "gradients of many pixels": trained(pf.conv2d, (9, 8, 24, 21), (24, 8, 3, 3), dtype, padding=1),
        "gradients of more taps": trained(pf.conv2d, (1, 16, 9, 10), (16, 16, 7, 7), dtype, padding=3),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("target", "number"), BLOCKS, ids=[f"{t.name} {blocks(t)[n].label}" for t, n in BLOCKS])
def test_blocks_compute_what_numpy_computes(target: Target, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cases in every block, with an edge in all axes and more steps than LDS holds."""
    only(monkeypatch, number)
    tile = blocks(target)[number]
    shapes = (1, 1, 24, 1, 1, tile.rows + 18), (1, tile.cols + 8, 24, 1, 1, 3)
    edges = convolution(*shapes, dtype=pf.bfloat16, views=conv_cases.LAST)
    shapes = (1, 1, tile.depth, 1, 3, 5), (1, 16, tile.depth, 1, 3, 3)
    steps = convolution(*shapes, dtype=pf.float16, views=conv_cases.LAST)
    emulated = Emulated(target, {"edges": edges, "steps": steps})
    assert any("pf_conv_async" in t for t in emulated.texts) and not any("pf_conv_mma" in t for t in emulated.texts)
    assert emulated.wrong(check, reverse=bool(number % 2)) == {}


@pytest.mark.slow(16)
@pytest.mark.parametrize("workers", [1, 132], ids=["whole", "in parts"])
def test_geometries_compute_what_numpy_computes(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", "nhwc")
    builds = {f"{d.name} {name}": build for d in (pf.bfloat16, pf.float16) for name, build in cases(d).items()}
    emulated = Emulated(replace(HOPPER, workers=workers), builds)
    assert emulated.wrong(check, reverse=workers == 1) == {}
    texts = [t for t in emulated.texts if "pf_conv_async" in t]
    wanted = [
        "A_ALONG_K = 0", "A_ALONG_K = 1", "B_ALONG_K = 0", "B_ALONG_K = 1", "OUT_WIDTH = 8", "DILATED = 1", "MASK = 0",
        "MASK = 1", "MASK = 2", "PHASES = 4", "IN_TAP = 0", "IN_TAP = 1",
        "pf_conv_finish_turned" if workers > 1 else "TURNED = 1",
    ]  # fmt: skip
    assert [w for w in wanted if not any(w in t for t in texts)] == []


@pytest.mark.slow
def test_last_tiles_in_halves_compute_what_numpy_computes() -> None:
    """Four tiles of 128 pixels for three compute units: the last one, which has fewer pixels, by two blocks."""
    build = convolution((1, 1, 16, 1, 1, 450), (1, 256, 16, 1, 1, 3), dtype=pf.bfloat16, views=conv_cases.LAST)
    emulated = Emulated(replace(HOPPER, workers=3), {"halves": build})
    assert any("pf_conv_halves" in t for t in emulated.texts)
    assert emulated.wrong(check, reverse=True) == {}


@pytest.mark.slow
@pytest.mark.parametrize("taps", [1, 3], ids=["one tap", "taps"])
def test_a_block_takes_one_tile_after_the_other(taps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that are no multiple of a step, and that are: steps that lie in one tap."""
    number = next(n for n, tile in enumerate(blocks(HOPPER)) if tile.wgmma and tile.resident == 1)
    only(monkeypatch, number)
    tile = blocks(HOPPER)[number]

    def build(channels: int) -> Build:
        shapes = (1, 1, channels, 1, 1, 3 * tile.rows + 18), (1, tile.cols + 8, channels, 1, 1, taps)
        return convolution(*shapes, pad=(0, 0, 1), dtype=pf.bfloat16, views=conv_cases.LAST)

    builds = {"some": build(tile.depth + 8), "whole": build(2 * tile.depth)}
    emulated = Emulated(replace(HOPPER, workers=3), builds)
    texts = [t for t in emulated.texts if "pf_conv" in t]  # the others copy operands
    assert texts and all("MANY = 1" in t for t in texts)
    assert {"IN_TAP = 0" in t for t in texts} == ({False} if taps == 1 else {False, True})
    assert emulated.wrong(check, reverse=taps == 1) == {}


def test_others_go_other_ways() -> None:
    """Channels that fill no piece, and dtypes of other sizes."""
    for dtype, name in ((pf.bfloat16, "last"), (pf.bfloat16, "last, odd"), (pf.float32, "last")):
        case = conv_cases.tiled(dtype)[f"{dtype.name} {name}"]()
        found = any("pf_conv_async" in t for t in Program(case.outputs, HOPPER).texts)
        assert found == (name == "last" and dtype is pf.bfloat16), (dtype, name)


def test_large_convolutions_have_blocks_to_try() -> None:
    """Each is another text or cut; small ones are not worth the time."""

    def variants(size: int) -> list[tuple[str, tuple[int, ...]]]:
        x, w = (pf.tensor(np.zeros(s, pf.bfloat16.numpy)) for s in ((8, 64, size, size), (64, 64, 3, 3)))
        launches = Program([pf.conv2d(x, w, padding=1)], HOPPER).plan.launches
        (launch,) = (y for y in launches if y.kernel.anchor and y.kernel.anchor.op.name == "conv_general")
        tried = [replace(launch, variant=n) for n in range(len(conv_gpu.conv_variants(launch, HOPPER)))]
        sources = [gpu_source(y, HOPPER) for y in tried]
        return [(s.text, tuple(p.grid for p in s.phases)) for s in sources]

    assert len(set(variants(28))) == 4 and variants(4) == []


@pytest.mark.slow(16)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize(("target", "arch"), [(HOPPER, "sm_90a"), (AMPERE, "sm_80")], ids=["sm_90a", "sm_80"])
def test_nvcc_takes_the_text(target: Target, arch: str, tmp_path: Path) -> None:
    found: set[str] = set()
    for number in range(len(blocks(target))):
        with pytest.MonkeyPatch.context() as patch:
            only(patch, number)
            lasts = [build() for build in conv_cases.large(pf.bfloat16)[:3]]  # both along k, one, none
            found |= {s.text for case in lasts for s in Program(case.outputs, target).sources if "_async" in s.text}
    assert "serialized" not in nvcc(found, arch, tmp_path), "wgmma waits for other instructions"
