"""Attention by wgmma (attention_async.hip): on the host against float64, and what nvcc says of it.

On the host the warpgroup that copies computes besides, and nobody waits for anybody but at barriers: that tells whether
layouts, edges and the order of turns are right. `tests/gpu/test_attention_on_nvidia.py` runs the instructions.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.targets import TARGETS
from pyflame.ir.kernel import GpuPhase
from tests.gpu.attention_cases import ASYNC, DECODED_TILES, added, attention, tiles_for_few_bytes
from tests.gpu.gemm_cases import Build, check
from tests.gpu.programs import Program
from tests.null.test_gpu_kernels_gemm import Emulated
from tests.null.test_matrix_tiles import nvcc

HOPPER = TARGETS["sm_90"]
ONE_WORKER = replace(HOPPER, workers=1)
PF_ATT_TOGETHER = 43
AMPERE = replace(HOPPER, name="sm_80", workers=108, lds_bytes=163 * 1024, matrix_core="mma")


@pytest.mark.slow
@pytest.mark.parametrize("name", ASYNC)
def test_computes_what_float64_computes(name: str) -> None:
    emulated = Emulated(HOPPER, {name: ASYNC[name]})
    assert sum('"attention_async.hip"' in text for text in emulated.texts) == (
        1 if "wide" in name or "lengths" in name else 2
    )
    assert emulated.wrong(check, reverse=sorted(ASYNC).index(name) % 2 == 1) == {}


@pytest.mark.slow(16)
@pytest.mark.parametrize("target", [HOPPER, AMPERE], ids=["sm_90", "sm_80"])
def test_decoding_by_tiles(target: Target) -> None:
    """By asynchronous copies where lines are whole chunks that lie in pieces."""
    with tiles_for_few_bytes():
        emulated = Emulated(target, DECODED_TILES)
    rings = re.findall(r"pf_attend_few_mma<pf_\w+, pf_mma_\w+, \d, \d, (\d+), (\d), (\d)", "".join(emulated.texts))
    assert "0" not in {stages for _, _, stages in rings} and {rows for rows, *_ in rings} == {"4", "8", "16"}
    assert emulated.wrong(check, False) == emulated.wrong(check, True) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "more queries", "behind a window", "grouped", "hidden"])
def test_a_block_takes_one_tile_after_the_other(name: str) -> None:
    emulated = Emulated(ONE_WORKER, {name: ASYNC[f"pieces, {name}"]})
    assert {call.grid for call in emulated.programs[name].calls if call.block == 384} == {1}
    assert emulated.wrong(check, reverse=False) == {}


def shares(build: Build) -> list[tuple[int, ...]]:
    """Of each launch of the latest pass the blocks, how many tiles one takes together, and MANY of its template."""
    source = next(s for s in reversed(Program(build().outputs, HOPPER).sources) if "attend_async" in s.text)
    many = map(int, re.findall(r"pf_attention_async_of<.*?(\d)>", source.text))
    return [(p.grid, p.args[PF_ATT_TOGETHER], m) for p, m in zip(source.phases, many, strict=True)]


def test_blocks_for_tiles() -> None:
    def of(tiles: int, **options: Any) -> tuple[int, ...]:
        (only,) = shares(attention((1, tiles, 100, 16), (tiles, 100), 16, pf.bfloat16, gradient=False, **options))
        return only

    assert of(100) == (100, 1, 0) and of(500) == (132, 1, 1), "one for each compute unit"
    assert of(528, causal=True) == (132, 2, 1), "much and little to see together"
    assert of(540, causal=True) == (540, 1, 0), "270 pairs would take three rounds for two and a bit"
    assert of(500, lengths=np.array([9])) == (500, 1, 0), "nobody knows what lines see"


def test_a_tile_that_sees_much_has_a_block() -> None:
    """But for gradients of keys and values, which lose nothing."""

    def of(keys: int, **options: Any) -> list[tuple[int, ...]]:
        return shares(attention((1, 200, 16, 8), (200, keys), 8, pf.bfloat16, **options))

    assert of(1024) == [(132, 1, 1), (132, 1, 1)]
    assert of(1025) == [(200, 1, 0), (132, 1, 1)]
    assert of(1025, gradient=False) == [(200, 1, 0)]


# Lengths of lines in all classes, dtypes and masks.
BUILT: dict[str, Build] = {
    **{name: ASYNC[f"pieces, {name}"] for name in ("causal", "grouped", "hidden", "added")},
    "128": attention((1, 2, 20, 128), (2, 20), 128, pf.bfloat16),
    "128, hidden": attention((1, 2, 20, 128), (2, 20), 128, pf.bfloat16, mask=np.eye(20) > 0),
    "128, added": attention((1, 2, 20, 128), (2, 20), 128, pf.float16, mask=added(20, 20)),
    "128, lengths": attention((1, 2, 20, 128), (2, 20), 128, pf.bfloat16, gradient=False, lengths=np.array([9])),
    "256": attention((1, 2, 20, 256), (2, 20), 256, pf.bfloat16, gradient=False),
}


def launches() -> Iterator[tuple[str, str, GpuPhase]]:
    """Text, type of the launch in it, and launch, for the only tile of a block and for one of many."""
    for build, target in product(BUILT.values(), (HOPPER, ONE_WORKER)):
        for source in Program(build().outputs, target).sources:
            kinds = re.findall(r"pf_attend_async<(pf_attention_async_of<.*?>)>", source.text)
            for kind, phase in zip(kinds, source.phases if kinds else (), strict=True):
                yield source.text, kind, phase


@pytest.mark.slow(16)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_takes_the_text(tmp_path: Path) -> None:
    """Without spills, with wgmma that waits for nothing else, and with as much LDS as a launch brings.

    Of gradients with a boolean mask, at full length of lines, ptxas keeps some six numbers of all turns in memory, or
    some twenty where a block takes many tiles.
    """
    texts, sizes = set[str](), set[str]()
    for text, kind, phase in launches():
        texts.add(text)
        sizes.add(f'static_assert(pf_attending_async<{kind}>::LDS_PIECES * 16 == {phase.dynamic_lds}, "LDS");')
    said = nvcc({*texts, '#include "attention_async.hip"\n' + "\n".join(sorted(sizes))}, "sm_90a", tmp_path, spilled=96)
    assert "serialized" not in said and "setmaxnreg" not in said
    assert len([n for n in re.findall(r"(\d+) bytes spill stores", said) if int(n) > 4]) <= 4


def test_blocks_fit() -> None:
    assert all(0 < phase.dynamic_lds <= HOPPER.lds_bytes for _, _, phase in launches())


def way(build: Build, target: str | None = None) -> set[str]:
    """Which files' kernels a program takes."""
    sources = Program(build().outputs, AMPERE if target == "sm_80" else HOPPER).sources
    return {file for s in sources for file in re.findall(r'"(attention\w*\.hip|matmul\w*\.hip)"', s.text)}


def test_others_go_other_ways() -> None:
    """Targets, dtypes and lines that it is not for."""
    usual = attention((1, 2, 40, 64), (2, 40), 64, pf.float16)
    assert way(usual) == {"attention_async.hip"} and way(usual, "sm_80") == {"attention_mma.hip"}
    assert way(attention((1, 2, 40, 64), (2, 40), 64)) == {"attention.hip"}
    assert way(attention((1, 2, 40, 60), (2, 40), 64, pf.float16)) == {"attention_mma.hip"}
    assert way(attention((1, 2, 40, 64), (2, 40), 64, pf.float16, view="turned")) == {"attention_mma.hip"}
    assert way(attention((1, 2, 40, 192), (2, 40), 64, pf.float16)) == {"attention_async.hip", "attention_mma.hip"}
    assert way(attention((1, 2, 40, 192), (2, 40), 64, pf.float16, "turned", gradient=False)) == {"attention_mma.hip"}
    masked = attention((1, 1, 20, 192), (1, 20), 64, pf.float16, mask=added(20, 20), gradient=False)
    assert way(masked) == {"attention_mma.hip"}
    assert way(attention((1, 2, 40, 64), (2, 40), 64, pf.float16, softcap=2.0)) == {"attention_mma.hip"}
    limited = attention((1, 2, 40, 64), (2, 40), 64, pf.float16, lengths=np.array([7]))  # forward alone
    assert way(limited) == {"attention_async.hip", "attention_mma.hip"}


def test_scores_are_scaled_by_more_than_zero() -> None:
    """The largest one is found before: with other scales it would not be the largest."""
    q = pf.tensor(np.ones((1, 1, 40, 64), np.float16))
    for scale, file in ((0.5, "attention_async.hip"), (0.0, "attention_mma.hip"), (-1.0, "attention_mma.hip")):
        (source,) = Program([pf.scaled_dot_product_attention(q, q, q, scale=scale)], HOPPER).sources
        assert f'"{file}"' in source.text
