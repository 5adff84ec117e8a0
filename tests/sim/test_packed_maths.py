"""Generated kernels and hot loops use the instructions that compute two numbers at once, on each GPU those it has.

gfx90a, gfx942 and gfx950 have pairs of float32 (v_pk_*_f32), gfx1100 and gfx1201 two instructions in one (v_dual_*),
all have pairs of float16. A chain over float16 is computed in float32 (docs/numerics.md), one op alone in float16: it
rounds once, so the result is the same.
"""

from __future__ import annotations

from typing import Any

import pytest

import pyflame as pf
from pyflame.core.encoding import row_bytes
from tests.ops import test_attention_paged
from tests.sim.built import mnemonics

PAIRS_OF_FLOAT32 = ("gfx90a", "gfx942", "gfx950")


def chain(x: Any, y: Any) -> Any:
    return (x * y + x) * (x - y) + y


@pytest.mark.parametrize("target", PAIRS_OF_FLOAT32)
def test_pairs_of_float32(target: str) -> None:
    """Four numbers to a thread: two instructions for each of five ops, and none that computes one number."""
    found = mnemonics(target, chain, pf.zeros(4096), pf.zeros(4096))
    assert found["v_pk_mul_f32"] == 4 and found["v_pk_add_f32"] == 6
    assert not {"v_mul_f32", "v_add_f32", "v_sub_f32"} & found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("target", PAIRS_OF_FLOAT32)
def test_pairs_in_hot_loops(target: str) -> None:
    """A polynomial by fused multiply-adds, and what attention does besides its matrix instructions."""
    assert mnemonics(target, pf.gelu, pf.zeros(4096))["v_pk_fma_f32"] >= 8
    half = pf.zeros((1, 2, 256, 64), dtype=pf.float16)
    found = mnemonics(target, pf.scaled_dot_product_attention, half, half, half)
    assert found["v_pk_mul_f32"] >= 32 and found["v_pk_add_f32"] >= 16


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_two_instructions_in_one(target: str) -> None:
    for dtype in (pf.float32, pf.float16):
        found = mnemonics(target, chain, pf.zeros(4096, dtype=dtype), pf.zeros(4096, dtype=dtype))
        both = sum(n for name, n in found.items() if name.startswith("v_dual_"))
        assert both > sum(found[name] for name in ("v_mul_f32", "v_add_f32", "v_sub_f32"))


@pytest.mark.parametrize("target", [*PAIRS_OF_FLOAT32, "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("name", "of"), [("v_pk_add_f16", lambda x, y: x + y), ("v_pk_mul_f16", lambda x, y: x * y)])
def test_pairs_of_float16(target: str, name: str, of: Any) -> None:
    """Eight numbers to a thread: four instructions."""
    half = pf.zeros(4096, dtype=pf.float16)
    found = mnemonics(target, of, half, half)
    assert found[name] == 4 and "v_cvt_f32_f16" not in found


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1201"])
@pytest.mark.parametrize("rows", [1, 64])
def test_weights_of_float8(target: str, rows: int) -> None:
    """Decoded by pairs; tests/sim/test_encoded.py runs them."""
    blocks = pf.zeros((64, row_bytes("fp8_g128", 512)), dtype=pf.uint8)

    def layer(x: Any) -> Any:
        return pf.encoded_linear(x, blocks, None, encoding="fp8_g128", width=512)

    found = mnemonics(target, layer, pf.zeros((rows, 512), dtype=pf.bfloat16))
    assert found["v_cvt_pk_f32_fp8"] >= 8 and "v_cvt_f32_fp8" not in found


@pytest.mark.parametrize("target", ["gfx942", "gfx950", pytest.param("gfx1201", marks=pytest.mark.thorough)])
def test_pages_of_float8(target: str) -> None:
    tensors, named = test_attention_paged.numbers(test_attention_paged.CASES["float8"])
    found = mnemonics(target, lambda *t: pf.paged_attention(*t, **named), *tensors)
    assert found["v_cvt_pk_f32_fp8"] >= 8
    test_attention_paged.test_against_reference("float8", f"sim:{target}")
