"""MFMA of gfx90a against Python. AMD's matrix instruction calculator prints the layouts of test_matrix_mfma.py for it.

The older forms of bfloat16, without _1k, hold two elements of A and B in a lane where the others hold four.
"""

from __future__ import annotations

import numpy as np
import pytest

from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.decode.text import Undecodable
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.snippet import assemble, run
from tests.sim.test_matrix_mfma import check

# What gfx90a calls an instruction: what it is called here, with the number of its blocks.
NAMES = {
    "v_mfma_f32_32x32x1f32": "v_mfma_f32_32x32x1_2b_f32", "v_mfma_f32_16x16x1f32": "v_mfma_f32_16x16x1_4b_f32",
    "v_mfma_f32_4x4x1f32": "v_mfma_f32_4x4x1_16b_f32", "v_mfma_f32_32x32x2f32": "v_mfma_f32_32x32x2_f32",
    "v_mfma_f32_16x16x4f32": "v_mfma_f32_16x16x4_f32", "v_mfma_f32_32x32x4f16": "v_mfma_f32_32x32x4_2b_f16",
    "v_mfma_f32_16x16x4f16": "v_mfma_f32_16x16x4_4b_f16", "v_mfma_f32_4x4x4f16": "v_mfma_f32_4x4x4_16b_f16",
    "v_mfma_f32_32x32x8f16": "v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x16f16": "v_mfma_f32_16x16x16_f16",
    "v_mfma_f32_32x32x2bf16": "v_mfma_f32_32x32x2_2b_bf16", "v_mfma_f32_16x16x2bf16": "v_mfma_f32_16x16x2_4b_bf16",
    "v_mfma_f32_4x4x2bf16": "v_mfma_f32_4x4x2_16b_bf16", "v_mfma_f32_32x32x4bf16": "v_mfma_f32_32x32x4_bf16",
    "v_mfma_f32_16x16x8bf16": "v_mfma_f32_16x16x8_bf16", "v_mfma_f32_32x32x4bf16_1k": "v_mfma_f32_32x32x4_2b_bf16",
    "v_mfma_f32_16x16x4bf16_1k": "v_mfma_f32_16x16x4_4b_bf16", "v_mfma_f32_4x4x4bf16_1k": "v_mfma_f32_4x4x4_16b_bf16",
    "v_mfma_f32_32x32x8bf16_1k": "v_mfma_f32_32x32x8_bf16", "v_mfma_f32_16x16x16bf16_1k": "v_mfma_f32_16x16x16_bf16",
    "v_mfma_i32_32x32x4i8": "v_mfma_i32_32x32x4_2b_i8", "v_mfma_i32_16x16x4i8": "v_mfma_i32_16x16x4_4b_i8",
    "v_mfma_i32_4x4x4i8": "v_mfma_i32_4x4x4_16b_i8", "v_mfma_i32_32x32x8i8": "v_mfma_i32_32x32x8_i8",
    "v_mfma_i32_16x16x16i8": "v_mfma_i32_16x16x16_i8", "v_mfma_f64_16x16x4f64": "v_mfma_f64_16x16x4_f64",
    "v_mfma_f64_4x4x4f64": "v_mfma_f64_4x4x4_4b_f64",
}  # fmt: skip
SIXTEEN = [n for n in NAMES if "f16" in n]


def test_all_are_known() -> None:
    assert len(NAMES) == 27  # as many as LLVM's assembler takes for gfx90a
    assert set(NAMES.values()) == {n for n in known("gfx90a", interpreter(64).forms) if "mfma" in n}


@pytest.mark.parametrize("name", NAMES)
def test_dense(name: str) -> None:
    check(NAMES[name], 1, target="gfx90a", spelled=name)


@pytest.mark.parametrize("name", SIXTEEN)
def test_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        check(NAMES[name], 2, wild=True, samples=100, target="gfx90a", spelled=name)


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x4f16", "v_mfma_f32_32x32x2bf16", "v_mfma_i32_4x4x4i8"])
def test_broadcast_of_a_and_lanes_of_b(name: str) -> None:
    for cbsz, abid, blgp in ((1, 1, 0), (0, 0, 3), (1, 0, 5)):
        modifiers = "".join(f" {k}:{x}" for k, x in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if x)
        check(NAMES[name], 3, modifiers=modifiers, cbsz=cbsz, abid=abid, blgp=blgp, target="gfx90a", spelled=name)


def test_accumulation_registers() -> None:
    name = "v_mfma_f32_32x32x8f16"
    text = "{name} a[100:{d}], a[0:{a}], v[20:{b}], a[100:{d}]"
    check(NAMES[name], 4, text=text, rows=(256, 20, 356), target="gfx90a", spelled=name, exec=5)


def test_denormals_are_zeros() -> None:
    """float16's 2^-24 times 1, which gfx942 counts."""
    text = "v_mfma_f32_16x16x16f16 v[4:7], v[0:1], v[2:3], 0"
    after = run("gfx90a", text, dict.fromkeys((0, 1), 0x00010001) | dict.fromkeys((2, 3), 0x3C003C00))
    assert not after.v[4:8].any()


def test_what_it_does_not_have() -> None:
    with pytest.raises(Undecodable, match="blgp"):
        assemble("gfx90a", "v_mfma_f64_16x16x4f64 v[0:7], v[8:9], v[10:11], v[0:7] blgp:1")
