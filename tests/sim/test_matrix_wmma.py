"""WMMA of gfx1100 against Python: register layouts as AMD's guides have them, sums as measured on the hardware.

In a wave of 32 lanes: A[i][k] in lanes i and i + 16, element k of their registers, densely packed; B[k][j] in lanes j,
j + 16; C and D[i][j] in register i/2, lane 16(i%2) + j. In a wave of 64 there are four copies, and register i/4, lane
16(i%4) + j. Elements of 16 bits in C and D fill the half of a register that op_sel names.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.matrix_formats import DTYPES, decode, dot_step, encode
from tests.sim.snippet import run

FLOATS = {
    "v_wmma_f32_16x16x16_f16": ("f16", "f32"), "v_wmma_f32_16x16x16_bf16": ("bf16", "f32"),
    "v_wmma_f16_16x16x16_f16": ("f16", "f16"), "v_wmma_bf16_16x16x16_bf16": ("bf16", "bf16"),
}  # fmt: skip
INTEGERS = {"v_wmma_i32_16x16x16_iu8": 8, "v_wmma_i32_16x16x16_iu4": 4}


def factor_rows(bits: Any, width: int) -> Any:
    """Registers from [16][k] of unsigned integers of `width` bits: lane l holds row l % 16."""
    bits = np.asarray(bits).astype(np.uint64)
    each = 32 // width
    rows = np.zeros((16 // each, 32), np.uint32)
    for k in range(16):
        rows[k // each] |= (bits[np.arange(32) % 16, k] << np.uint64(width * (k % each))).astype(np.uint32)
    return rows


def result_rows(words: Any) -> Any:
    """Registers from [i][j] of words."""
    rows = np.zeros((8, 32), np.uint32)
    for i in range(16):
        rows[i // 2, 16 * (i % 2) : 16 * (i % 2) + 16] = words[i]
    return rows


def from_rows(rows: Any) -> Any:
    return np.asarray([rows[i // 2, 16 * (i % 2) : 16 * (i % 2) + 16] for i in range(16)])


def draw(rng: Any, kind: str, wild: bool = False) -> Any:
    """The bits of a 16x16 matrix; wild ones with denormals, infinities and NaNs."""
    size = np.dtype(DTYPES[kind]).itemsize
    values = encode(rng.standard_normal((16, 16)) * np.exp2(rng.integers(-4, 4, (16, 16))), kind)
    if wild:
        some = rng.integers(0, 1 << 8 * size, (16, 16), np.uint64).astype(values.dtype)
        values = np.where(rng.random((16, 16)) < 0.1, some, values)
        values[rng.random((16, 16)) < 0.3] = 0
        values[rng.random((16, 16)) < 0.05] |= 1 << 8 * size - 1
    return values


def bits_of(x: float, to: str) -> int:
    return int(encode(np.asarray(x), to).item())


def chain(a: Any, b: Any, c: float, kind: str, to: str) -> int:
    """The bits of one element of D: eight steps of two products."""
    with np.errstate(all="ignore"):
        for k in range(0, 16, 2):
            c = dot_step([float(x) for x in a[k : k + 2]], [float(x) for x in b[k : k + 2]], c, kind, to)
    return bits_of(c, to)


def check(
    name: str, seed: int, *, wild: bool = False, modifiers: str = "", high: bool = False, neg_lo: int = 0,
    neg_hi: int = 0, samples: int = 60, **options: Any,
) -> None:  # fmt: skip
    kind, to = FLOATS[name]
    rng = np.random.default_rng(seed)
    a, b, c = draw(rng, kind, wild), draw(rng, kind, wild), draw(rng, to, wild)
    other = rng.integers(0, 1 << 16, (16, 16), np.uint64).astype(np.uint32)  # what the other half of C holds
    words = c.astype(np.uint32)
    if to != "f32":
        words = words << 16 | other if high else other << 16 | words
    v = dict(enumerate(factor_rows(a, 16))) | {8 + n: row for n, row in enumerate(factor_rows(b, 16))}
    v |= {16 + n: row for n, row in enumerate(result_rows(words))}
    after = run("gfx1100", f"{name} v[16:23], v[0:7], v[8:15], v[16:23]{modifiers}", v, **options)
    got = from_rows(after.v[16:24])
    if to != "f32":
        assert ((got & 0xFFFF if high else got >> 16) == other).all(), "the other half changed"
        got = got >> 16 if high else got & 0xFFFF
    signs = np.asarray([0x8000 if (neg_hi if k % 2 else neg_lo) & 1 else 0 for k in range(16)], a.dtype)
    signs_b = np.asarray([0x8000 if (neg_hi if k % 2 else neg_lo) & 2 else 0 for k in range(16)], a.dtype)
    top = 1 << 8 * c.itemsize - 1
    c = (c & ~np.asarray(top, c.dtype)) if neg_hi & 4 else c
    c = (c ^ np.asarray(top, c.dtype)) if neg_lo & 4 else c
    left, right, start = decode(a ^ signs, kind), decode(b ^ signs_b, kind), decode(c, to)
    for i, j in zip(rng.integers(0, 16, samples), rng.integers(0, 16, samples), strict=True):
        wanted = chain(left[i], right[j], float(start[i, j]), kind, to)
        if not np.isnan(decode(wanted, to)) or not np.isnan(decode(got[i, j], to)):
            assert got[i, j] == wanted, (name, i, j, decode(got[i, j], to), decode(wanted, to))


def test_all_are_known() -> None:
    assert {n for n in known("gfx1100", interpreter(32).forms) if "wmma" in n} == {*FLOATS, *INTEGERS}


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    check(name, 1)
    check(name, 2, wild=True, samples=150)


@pytest.mark.parametrize("name", FLOATS)
def test_signs(name: str) -> None:
    for neg_lo, neg_hi in ((1, 0), (0, 2), (7, 3), (0, 4), (4, 4)):
        modifiers = "".join(
            f" {key}:[{','.join(str(bits >> n & 1) for n in range(3))}]"
            for key, bits in (("neg_lo", neg_lo), ("neg_hi", neg_hi))
            if bits
        )
        check(name, 3, modifiers=modifiers, neg_lo=neg_lo, neg_hi=neg_hi, samples=20)


@pytest.mark.parametrize("name", ["v_wmma_f16_16x16x16_f16", "v_wmma_bf16_16x16x16_bf16"])
def test_upper_half(name: str) -> None:
    check(name, 4, modifiers=" op_sel:[0,0,1]", high=True)


def test_exec_and_rounding_mode_do_not_matter() -> None:
    for name in FLOATS:
        check(name, 5, exec=0x0F0F0001, mode=0x3FA, samples=20)


@pytest.mark.parametrize("name", FLOATS)
def test_close_to_a_plain_product(name: str) -> None:
    """All elements, by NumPy: within a few roundings of the result's format per step."""
    kind, to = FLOATS[name]
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((16, 16)).astype(DTYPES[kind]) for _ in range(2))
    c = rng.standard_normal((16, 16)).astype(DTYPES[to])
    v = dict(enumerate(factor_rows(encode(a, kind), 16)))
    v |= {8 + n: row for n, row in enumerate(factor_rows(encode(b, kind), 16))}
    v |= {30 + n: row for n, row in enumerate(result_rows(encode(c, to).astype(np.uint32)))}
    after = run("gfx1100", f"{name} v[0:7], v[0:7], v[8:15], v[30:37]", v)  # D over A
    got = decode(from_rows(after.v[0:8]) & ((1 << 8 * c.itemsize) - 1), to).astype(np.float64)
    exact = a.astype(np.float64) @ b.astype(np.float64).T + c.astype(np.float64)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T + np.abs(c.astype(np.float64))
    assert (np.abs(got - exact) <= 8 * {"f32": 2.0**-22, "f16": 2.0**-10, "bf16": 2.0**-7}[to] * scale).all()


def test_a_half_reads_its_own_copies() -> None:
    """Rows of even i come from lanes 0 to 15, of odd i from 16 to 31."""
    ones = np.full(32, 0x3C003C00, np.uint32)
    halves = np.where(np.arange(32) < 16, 0x3C003C00, 0x40004000).astype(np.uint32)
    v = dict.fromkeys(range(8), ones) | {8 + n: halves for n in range(8)}
    after = run("gfx1100", "v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], 0", v)
    d = from_rows(after.v[16:24]).view(np.float32)
    assert (d[0::2] == 16).all() and (d[1::2] == 32).all()


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        ((1, 1), (1, 1), -2.0, 0x34000000),  # what was cut off C's complement stays
        ((3, 8), (8, 4), -1.0, 0x425C0001),
        ((1, 1), (0, 1), -0.0, 0x3F800001),
        ((1, 1), (0, 1), 0.0, 0x3F800000),
    ],
)
def test_results_of_the_hardware(a: tuple[int, int], b: tuple[int, int], c: float, wanted: int) -> None:
    """Steps whose results on RDNA 3 are on record, unlike those of exact sums."""
    pack = [int.from_bytes(struct.pack("<ee", *pair), "little") for pair in (a, b)]
    zero = np.zeros(32, np.uint32)
    v = dict.fromkeys(range(16), zero) | {0: np.full(32, pack[0], np.uint32), 8: np.full(32, pack[1], np.uint32)}
    v |= {16 + n: np.full(32, c, np.float32) for n in range(8)}
    after = run("gfx1100", "v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], v[16:23]", v)
    assert (after.v[16:24] == wanted).all()


def test_inline_constant() -> None:
    zero = {n: np.zeros(32, np.uint32) for n in range(16)}
    for name, constant, wanted in (
        ("v_wmma_f32_16x16x16_f16", "1.0", 0x3F800000), ("v_wmma_f16_16x16x16_f16", "1.0", 0x3C00),
        ("v_wmma_bf16_16x16x16_bf16", "1.0", 0x3F80),
    ):  # fmt: skip
        after = run("gfx1100", f"{name} v[16:23], v[0:7], v[8:15], {constant}", zero)
        assert (after.v[16:24] == wanted).all(), name


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("signs", range(4))
@pytest.mark.parametrize("clamp", [False, True])
def test_integers(name: str, signs: int, clamp: bool) -> None:
    bits = INTEGERS[name]
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 1 << bits, (16, 16), np.int64) for _ in range(2))
    c = rng.integers(-(1 << 31), 1 << 31, (16, 16), np.int64)
    c[0, :8], c[0, 8:] = (1 << 31) - 1, -(1 << 31)
    last = 16 * bits // 32 - 1
    v = dict(enumerate(factor_rows(a, bits))) | {8 + n: row for n, row in enumerate(factor_rows(b, bits))}
    v |= {16 + n: row for n, row in enumerate(result_rows(c.astype(np.uint32)))}
    modifiers = f" neg_lo:[{signs & 1},{signs >> 1},0]" if signs else ""
    text = f"{name} v[16:23], v[0:{last}], v[8:{8 + last}], v[16:23]{modifiers}{' clamp' if clamp else ''}"
    got = from_rows(run("gfx1100", text, v, exec=3).v[16:24]).view(np.int32)
    half = 1 << bits - 1
    left = (a ^ half) - half if signs & 1 else a
    right = (b ^ half) - half if signs & 2 else b
    wanted = left @ right.T + c
    if clamp:
        wanted = np.clip(wanted, -(1 << 31), (1 << 31) - 1)
    np.testing.assert_array_equal(got, wanted.astype(np.int32))
