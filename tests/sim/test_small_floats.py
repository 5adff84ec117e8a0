"""Conversions from and to 8-bit floats and bfloat16 on simulated GPUs, some of which have instructions for them.

Every code, every float16 and what is hard to round, against ml_dtypes to the bit; and the instructions are in the code.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.runtime.sim.checks import SIMULATED
from tests.sim.built import mnemonics

KINDS: dict[str, Any] = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
FLOAT8 = tuple(name for name in KINDS if name != "bfloat16")
OWN = {
    "gfx942": {"float8_e4m3fnuz": "fp8"}, "gfx950": {"float8_e4m3fn": "fp8", "float8_e5m2": "bf8"},
    "gfx1201": {"float8_e4m3fn": "fp8", "float8_e5m2": "bf8"},
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
each_target = pytest.mark.parametrize("target", SIMULATED)


def codes(name: str) -> Any:
    return np.arange(256, dtype=np.uint8).view(KINDS[name])


def hard(name: str) -> Any:
    """Halfway between neighbours and next to it, the ends of the range, subnormals, infinities, NaN, zeros."""
    bits = "u1" if name in FLOAT8 else "u2"
    every = np.arange(1 << 8 * np.dtype(bits).itemsize, dtype=bits).view(KINDS[name])
    positive = np.unique(every[np.isfinite(every) & (every >= 0)].astype(np.float64))
    positive = np.append(positive, 2 * positive[-1] - positive[-2])  # what is too large begins halfway to this one
    ties = ((positive[1:] + positive[:-1]) / 2)[:: max(1, len(positive) // 300)]
    ties = np.append(ties, (positive[-2:].sum() / 2, positive[1] / 2)).astype(np.float32)
    ends = np.array([0, 1e-45, 1.1754942e-38, 1.1754944e-38, *positive[-2:], 3.4e38, np.inf], np.float32)
    x = np.concatenate([ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf)), ends])
    nans = np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x7FBFFFFF], np.uint32)
    return np.concatenate([x, -x, nans.view(np.float32), (nans | 0x80000000).view(np.float32)])


def wanted(x: Any, name: str) -> Any:
    return x.astype(KINDS[name])


def is_nan(x: Any) -> Any:
    return np.isnan(x.astype(np.float32))


def same_bits(got: Any, want: Any, any_nan: bool = False) -> None:
    """any_nan: which NaN does not matter."""
    if any_nan:
        np.testing.assert_array_equal(is_nan(got), is_nan(want))
        got, want = got[~is_nan(want)], want[~is_nan(want)]
    bits = f"u{want.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(bits), want.view(bits))


@each_target
def test_every_code(target: str) -> None:
    with pf.device(f"sim:{target}"):
        read = {(n, c): pf.tensor(codes(n)[:c]).to(pf.float32) for n in FLOAT8 for c in (256, 254, 255)}
        pf.eval(*read.values())
    for (name, count), got in read.items():
        np.testing.assert_array_equal(got.numpy(), codes(name)[:count].astype(np.float32))
        signs = np.signbit(got.numpy()) == np.signbit(codes(name)[:count].astype(np.float32))
        assert (signs | np.isnan(got.numpy())).all()


@each_target
def test_every_float16(target: str) -> None:
    """By eights, as they are read."""
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with pf.device(f"sim:{target}"):
        x = pf.tensor(half)
        found = {name: x.to(pf.float32).to(getattr(pf, name)) for name in KINDS}
        pf.eval(*found.values())
    for name, got in found.items():
        same_bits(got.numpy(), wanted(half.astype(np.float32), name), any_nan=name == "bfloat16")


@each_target
@pytest.mark.parametrize("rest", [0, 2, 3])
def test_what_is_hard_to_round(target: str, rest: int) -> None:
    """By fours, pairs and one by one."""
    given = {name: hard(name) for name in KINDS}
    given = {name: np.concatenate([x, np.ones((rest - len(x)) % 4, np.float32)]) for name, x in given.items()}
    with pf.device(f"sim:{target}"):
        found = {name: pf.tensor(x).to(getattr(pf, name)) for name, x in given.items()}
        doubles = {name: pf.tensor(x.astype(np.float64)).to(getattr(pf, name)) for name, x in given.items()}
        pf.eval(*found.values(), *doubles.values())
    for name, x in given.items():
        same_bits(found[name].numpy(), wanted(x, name), any_nan=name == "bfloat16")
        same_bits(doubles[name].numpy(), wanted(x, name), any_nan=True)


@pytest.mark.slow(16)
@each_target
def test_instructions(target: str) -> None:
    """A pair of 8-bit floats is one instruction, both ways, where the GPU has their kind."""
    for name in FLOAT8:
        dtype, kind = getattr(pf, name), OWN.get(target, {}).get(name)
        encoding = mnemonics(target, lambda x, dtype=dtype: x.to(dtype), pf.zeros(4096))
        decoding = mnemonics(target, lambda x: x.to(pf.float32), pf.zeros(4096, dtype=dtype))
        alone = mnemonics(target, lambda x, dtype=dtype: x.to(dtype), pf.zeros(4095))
        if kind:
            assert encoding[f"v_cvt_pk_{kind}_f32"] == 2 and decoding[f"v_cvt_pk_f32_{kind}"] == 2
            assert alone[f"v_cvt_pk_{kind}_f32"] == 1 and "v_cndmask_b32" not in encoding
        elif target not in OWN:
            assert not any("fp8" in n or "bf8" in n for n in (*encoding, *decoding, *alone))
    pairs = mnemonics(target, lambda x: x.to(pf.bfloat16), pf.zeros(4096))
    assert pairs["v_cvt_pk_bf16_f32"] == (2 if target == "gfx950" else 0)


# Vector instructions that make floats of four codes: float16s lie under both kinds, gfx942 converts half the numbers.
DECODING = {
    ("gfx942", "float8_e4m3fn"): 13, ("gfx90a", "float8_e4m3fn"): 15, ("gfx1100", "float8_e4m3fn"): 17,
    ("gfx942", "float8_e5m2"): 8, ("gfx90a", "float8_e5m2"): 8, ("gfx1100", "float8_e5m2"): 8,
}  # fmt: skip


@pytest.mark.parametrize(("target", "name"), DECODING)
def test_decoding_without_instructions_for_it(target: str, name: str) -> None:
    """Counted as what it takes besides reading bytes, of which one instruction makes a float."""

    def count(dtype: str) -> int:
        found = mnemonics(target, lambda x: x.to(pf.float32), pf.zeros(4096, dtype=getattr(pf, dtype)))
        return sum(n for instruction, n in found.items() if instruction.startswith("v_"))

    assert count(name) - (count("uint8") - 4) <= DECODING[target, name]


def test_encoding_on_gfx942() -> None:
    """By its own kind, of half the numbers."""
    for name, kind in (("float8_e4m3fn", "fp8"), ("float8_e5m2", "bf8")):
        found = mnemonics("gfx942", lambda x, name=name: x.to(getattr(pf, name)), pf.zeros(4096))
        assert found[f"v_cvt_pk_{kind}_f32"] == 4
