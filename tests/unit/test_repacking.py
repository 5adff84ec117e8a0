"""Quantised weights as other programs pack them: repacked blocks decode to what those programs compute."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.core import repacking
from pyflame.core.encoding import encoding

OUT, WIDTH = 24, 256
RNG = np.random.default_rng(7)


def drawn(bits: int, groups: int, dtype: Any = np.float16) -> tuple[Any, Any, Any, Any]:
    """Numbers (out, in), scales and zero points (out, groups), and the weight they stand for."""
    numbers = RNG.integers(0, 1 << bits, (OUT, WIDTH))
    scales = RNG.uniform(1e-6, 0.1, (OUT, groups)).astype(dtype)
    # of 8 bits the numbers stay within 128 of these
    zeros = RNG.integers(1, 1 << bits, (OUT, groups)) if bits == 4 else np.full((OUT, groups), 128)
    wide = [np.repeat(a.astype(np.float32), WIDTH // groups, 1) for a in (scales, zeros)]
    return numbers, scales, zeros, (numbers - wide[1]).astype(np.float32) * wide[0]


def packed(numbers: Any, bits: int, order: tuple[int, ...] | None = None) -> Any:
    """Numbers along the last axis as words, as the packers of those programs do it: one shift after the other."""
    each = 32 // bits
    out = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // each), np.uint32)
    for i in range(each):
        out |= numbers[..., (order[i] if order else i) :: each].astype(np.uint32) << np.uint32(bits * i)
    return out.view(np.int32)


def check(repacked: tuple[str, Any], name: str, want: Any) -> None:
    assert repacked[0] == name
    np.testing.assert_array_equal(encoding(name).decode(repacked[1]), want)


@pytest.mark.parametrize(("groups", "name"), [(2, "int4_g128"), (4, "int4_g64"), (8, "int4_g32"), (1, "int4_g128")])
def test_gptq(groups: int, name: str) -> None:
    numbers, scales, zeros, want = drawn(4, groups)
    given = np.ascontiguousarray(packed(numbers, 4).T), packed((zeros - 1).T, 4), np.ascontiguousarray(scales.T)
    check(repacking.gptq(*given), name, want)
    check(repacking.gptq(*given, g_idx=np.arange(WIDTH) // (WIDTH // groups)), name, want)
    second = packed(zeros.T, 4)
    check(repacking.gptq(given[0], second, given[2], plus=0), name, want)


def test_gptq_of_eight_bits() -> None:
    numbers, scales, zeros, want = drawn(8, 2)
    given = packed(numbers, 8).T, packed((zeros - 1).T, 8), scales.T
    check(repacking.gptq(*given, bits=8), "int8_g128", want)
    with pytest.raises(pf.NotSupportedError, match="within 128 of their zero point"):
        repacking.gptq(packed(numbers, 8).T, packed((zeros - 101).T, 8), scales.T, bits=8)


def test_order_of_activations_is_refused() -> None:
    numbers, scales, zeros, _ = drawn(4, 2)
    with pytest.raises(pf.NotSupportedError, match="desc_act"):
        repacking.gptq(packed(numbers, 4).T, packed(zeros.T, 4), scales.T, np.arange(WIDTH)[::-1] // 128)


def test_awq() -> None:
    numbers, scales, zeros, want = drawn(4, 2)
    order = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ's pack: shift 4 i takes column order[i] of 8
    check(repacking.awq(packed(numbers.T, 4, order), packed(zeros.T, 4, order), scales.T), "int4_g128", want)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_compressed_tensors(dtype: Any) -> None:
    numbers, scales, zeros, want = drawn(4, 2, dtype)
    zero = np.ascontiguousarray(packed(zeros.T, 4).T)
    check(repacking.compressed(packed(numbers, 4), scales, zero), "int4_g128", want)
    middle = (numbers - 8) * np.repeat(scales.astype(np.float32), WIDTH // 2, 1)
    check(repacking.compressed(packed(numbers, 4), scales), "int4_g128", middle.astype(np.float32))
    check(repacking.compressed(packed(numbers, 4), scales[:, :1], width=192), "int4_g64", _rows(numbers, scales))


def _rows(numbers: Any, scales: Any) -> Any:
    """The first 192 columns with one scale for each row."""
    return ((numbers - 8)[:, :192] * scales[:, :1].astype(np.float32)).astype(np.float32)


def test_int8_per_tensor_row_and_group() -> None:
    weight = RNG.integers(-128, 128, (OUT, WIDTH)).astype(np.int8)
    for scale in (RNG.uniform(0, 1, ()), RNG.uniform(0, 1, (OUT, 1)), RNG.uniform(0, 1, OUT)):
        small = scale.astype(np.float32)
        check(repacking.int8(weight, small), "int8_g128", weight.astype(np.float32) * small.reshape(-1, 1))
    groups = RNG.uniform(0, 1, (OUT, 4)).astype(np.float32)
    check(repacking.int8(weight, groups), "int8_g64", weight.astype(np.float32) * np.repeat(groups, 64, 1))


def test_fp8_per_tensor_row_and_block() -> None:
    weight = RNG.normal(size=(200, 320)).astype(ml_dtypes.float8_e4m3fn)
    plain = weight.astype(np.float32)
    for scale in (RNG.uniform(0, 1, (1,)), RNG.uniform(0, 1, (200, 1))):
        check(
            repacking.fp8(weight, scale.astype(np.float32)), "fp8_g64", plain * scale.astype(np.float32).reshape(-1, 1)
        )
    blocks = RNG.uniform(0, 1, (2, 3)).astype(np.float32)
    each = np.repeat(np.repeat(blocks, 128, 0)[:200], 128, 1)[:, :320]
    check(repacking.fp8(weight, blocks, (128, 128)), "fp8_g64", plain * each)
    check(repacking.fp8(weight.view(np.uint8), blocks, (128, 128)), "fp8_g64", plain * each)


def test_what_does_not_fit_is_refused() -> None:
    weight = np.zeros((4, 48), np.int8)
    with pytest.raises(pf.NotSupportedError, match="multiple of 32 elements"):
        repacking.int8(weight, np.ones(4, np.float32))
    with pytest.raises(pf.ShapeError, match="expected scales"):
        repacking.int8(np.zeros((4, 64), np.int8), np.ones(3, np.float32))
    with pytest.raises(pf.ShapeError, match="groups that divide"):
        repacking.int8(np.zeros((4, 64), np.int8), np.ones((4, 5), np.float32))
    with pytest.raises(pf.NotSupportedError, match="4 or 8 bits"):
        repacking.compressed(np.zeros((4, 64), np.int32), np.ones((4, 1)), bits=3)
    with pytest.raises(pf.ShapeError, match="zero point for each scale"):
        repacking.awq(np.zeros((64, 1), np.int32), np.zeros((2, 1), np.int32), np.ones((1, 8), np.float16))
