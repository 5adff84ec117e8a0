"""WMMA and SWMMAC of gfx1201 against Python, in the layouts that AMD's matrix instruction calculator prints for RDNA 4.

In a wave of 32, for elements of 16 bits; the tables below say where the k of a row of A (or a column of B) lie:

    A, B of 16x16x16    lanes 0..15: k = 0 1 2 3 8 9 10 11      lanes 16..31: k = 4 5 6 7 12 13 14 15
    A of 16x16x32       the same of the 16 elements that it holds
    B of 16x16x32       lanes 0..15: k = 0..7, 16..23           lanes 16..31: k = 8..15, 24..31
Of 8 and 4 bits: the lower half of the k lies in lanes 0..15, the upper one in 16..31. C and D: rows 0..7, then 8..15.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.matrix_formats import DTYPES, cut, decode, encode, exponent
from tests.sim.snippet import run

OCP: dict[str, Any] = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
LOWEST = {"f16": -14, "bf16": -126, "fp8": -6, "bf8": -14}
HALVES = {
    "v_wmma_f32_16x16x16_f16": ("f16", "f32"), "v_wmma_f32_16x16x16_bf16": ("bf16", "f32"),
    "v_wmma_f16_16x16x16_f16": ("f16", "f16"), "v_wmma_bf16_16x16x16_bf16": ("bf16", "bf16"),
}  # fmt: skip
BYTES = {f"v_wmma_f32_16x16x16_{a}_{b}": (a, b) for a in OCP for b in OCP}
INTEGERS = {"v_wmma_i32_16x16x16_iu8": (8, 16), "v_wmma_i32_16x16x16_iu4": (4, 16), "v_wmma_i32_16x16x32_iu4": (4, 32)}
SPARSE = {
    "v_swmmac_f32_16x16x32_f16": ("f16", "f16", "f32"), "v_swmmac_f32_16x16x32_bf16": ("bf16", "bf16", "f32"),
    "v_swmmac_f16_16x16x32_f16": ("f16", "f16", "f16"), "v_swmmac_bf16_16x16x32_bf16": ("bf16", "bf16", "bf16"),
    **{f"v_swmmac_f32_16x16x32_{a}_{b}": (a, b, "f32") for a in OCP for b in OCP},
}  # fmt: skip
SPARSE_INTEGERS = {"v_swmmac_i32_16x16x32_iu8": (8, 32), "v_swmmac_i32_16x16x32_iu4": (4, 32),
                   "v_swmmac_i32_16x16x64_iu4": (4, 64)}  # fmt: skip


def order(width: int, count: int, dense_of_sparse: bool = False) -> list[list[int]]:
    """The k that lanes 0..15 and lanes 16..31 hold, in the order of their registers."""
    if width == 16 and not dense_of_sparse:
        return [[*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)]]
    if width == 16:
        return [[*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)]]
    return [[*range(count // 2)], [*range(count // 2, count)]]


def pack(bits: Any, width: int, held: list[list[int]]) -> Any:
    """Registers from [16 rows][k] of unsigned integers."""
    each = 32 // width
    rows = np.zeros((max(1, len(held[0]) // each), 32), np.uint32)
    for half, ks in enumerate(held):
        for slot, k in enumerate(ks):
            part = np.asarray(bits)[:, k].astype(np.uint32) << np.uint32(width * (slot % each))
            rows[slot // each, 16 * half : 16 * half + 16] |= part
    return rows


def pack_d(bits: Any, to: str) -> Any:
    """Registers from [i][j]: a register for each row, or for two of 16 bits."""
    words = np.asarray(bits).astype(np.uint32)
    rows = np.concatenate([words[:8], words[8:]], axis=1)
    return rows if to in ("f32", "i32") else rows[0::2] | rows[1::2] << np.uint32(16)


def unpack_d(rows: Any, to: str) -> Any:
    if to not in ("f32", "i32"):
        rows = np.stack([rows & 0xFFFF, rows >> 16], axis=1).reshape(8, 32)
    return np.concatenate([rows[:, :16], rows[:, 16:]])


def numbers(bits: Any, kind: str) -> Any:
    return np.asarray(bits).astype(np.uint8).view(OCP[kind]) if kind in OCP else decode(bits, kind)


def draw(rng: Any, shape: tuple[int, int], kind: str, wild: bool = False) -> Any:
    """The bits of a matrix; wild ones with denormals, infinities and NaNs."""
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 4, shape))
    bits = values.astype(OCP[kind]).view(np.uint8) if kind in OCP else encode(values, kind)
    if wild:
        some = rng.integers(0, 1 << 8 * bits.itemsize, shape, np.uint64).astype(bits.dtype)
        bits = np.where(rng.random(shape) < 0.1, some, bits)
        bits[rng.random(shape) < 0.3] = 0
    return bits


def rounded(value: Fraction, to: str) -> float:
    """To the nearest of a format, ties to even; a bfloat16 is cut off after it was rounded to float32."""
    if value == 0:
        return 0.0
    bits, lowest, highest = {"f16": (10, -14, 15), "f32": (23, -126, 127), "bf16": (23, -126, 127)}[to]
    quantum = Fraction(2) ** (exponent(value, lowest) - bits)
    result = round(value / quantum) * quantum
    if result and exponent(result, -5000) > highest:
        return math.copysign(math.inf, value)
    if to == "bf16" and result:
        result = cut(result, Fraction(2) ** (exponent(result, -126) - 7), True)
    return float(result) + 0.0


def step(a: list[float], b: list[float], c: float, kinds: tuple[str, str], to: str) -> float:
    """c plus four products, as was measured on gfx1201 (see isa/matrix_wmma12.h)."""
    if not all(math.isfinite(x) for x in (*a, *b, c)):
        with np.errstate(all="ignore"):
            return float(sum((np.float64(x) * np.float64(y) for x, y in zip(a, b, strict=True)), np.float64(c)))
    products = [Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)]
    grids = [
        exponent(Fraction(x), LOWEST[kinds[0]]) + exponent(Fraction(y), LOWEST[kinds[1]]) - 24 if p else None
        for x, y, p in zip(a, b, products, strict=True)
    ]
    pairs = []
    for n in (0, 2):
        known = [g for g in grids[n : n + 2] if g is not None]
        if known:
            pairs.append(sum((cut(p, Fraction(2) ** max(known), False) for p in products[n : n + 2]), Fraction(0)))
    lowest = -14 if to == "f16" else -126
    exact_c = Fraction(c)
    lead = exponent(exact_c, -5000) if exact_c else lowest
    grid = max([g for g in grids if g is not None] + [max(lowest, lead) - 26])
    unit = Fraction(2) ** grid
    from_c = Fraction(0) if grid > lowest and abs(exact_c) < unit else cut(exact_c, unit, False)
    return rounded(from_c + sum((cut(p, unit, False) for p in pairs), Fraction(0)), to)


def wanted_bits(a: Any, b: Any, c: float, kinds: tuple[str, str], to: str) -> int:
    for k in range(0, len(a), 4):
        c = step([float(x) for x in a[k : k + 4]], [float(x) for x in b[k : k + 4]], c, kinds, to)
    return int(encode(np.asarray(c), to).item())


def compare(got: Any, a: Any, b: Any, c: Any, kinds: tuple[str, str], to: str, samples: int, name: str) -> None:
    rng = np.random.default_rng(0)
    for i, j in zip(rng.integers(0, 16, samples), rng.integers(0, 16, samples), strict=True):
        want = wanted_bits(a[i], b[i, j], float(c[i, j]), kinds, to)
        both = decode(np.asarray([got[i, j], want]), to).astype(np.float64)
        assert got[i, j] == want or np.isnan(both).all(), (name, i, j, both)


def check(
    name: str, kinds: tuple[str, str], to: str, seed: int, *, wild: bool = False, modifiers: str = "", neg_lo: int = 0,
    neg_hi: int = 0, samples: int = 60, **options: Any,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    a, b, c = draw(rng, (16, 16), kinds[0], wild), draw(rng, (16, 16), kinds[1], wild), draw(rng, (16, 16), to, wild)
    width = 8 * a.itemsize
    left, right, start = (pack(a, width, order(width, 16)), pack(b, width, order(width, 16)), pack_d(c, to))
    v = dict(enumerate(left)) | {8 + n: row for n, row in enumerate(right)}
    v |= {16 + n: row for n, row in enumerate(start)}
    last = len(left) - 1
    d = f"v[16:{15 + len(start)}]"
    after = run("gfx1201", f"{name} {d}, v[0:{last}], v[8:{8 + last}], {d}{modifiers}", v, **options)
    got = unpack_d(after.v[16 : 16 + len(start)], to)
    flips = [[(neg_hi if k % 2 else neg_lo) >> n & 1 for k in range(16)] for n in range(2)]
    signs = [np.asarray(f, a.dtype) << np.asarray(width - 1, a.dtype) for f in flips]
    top = np.asarray(1 << 8 * c.itemsize - 1, c.dtype)
    c = c & ~top if neg_hi & 4 else c
    c = c ^ top if neg_lo & 4 else c
    columns = np.broadcast_to(numbers(b ^ signs[1], kinds[1]), (16, 16, 16))
    compare(got, numbers(a ^ signs[0], kinds[0]), columns, decode(c, to), kinds, to, samples, name)


def test_all_are_known() -> None:
    found = {n for n in known("gfx1201", interpreter(32).forms) if "wmma" in n}
    assert found == {*HALVES, *BYTES, *INTEGERS, *SPARSE, *SPARSE_INTEGERS}
    assert len(found) == 22  # as many as LLVM's assembler takes for gfx1201


@pytest.mark.parametrize("name", HALVES)
def test_halves(name: str) -> None:
    kind, to = HALVES[name]
    check(name, (kind, kind), to, 1)
    check(name, (kind, kind), to, 2, wild=True, samples=150)
    check(name, (kind, kind), to, 3, exec=0x0F0F0001, mode=0x3FA, samples=20)  # which do not matter


@pytest.mark.parametrize("name", HALVES)
def test_signs(name: str) -> None:
    kind, to = HALVES[name]
    for neg_lo, neg_hi in ((1, 0), (0, 2), (7, 3), (0, 4), (4, 4)):
        modifiers = "".join(
            f" {key}:[{','.join(str(bits >> n & 1) for n in range(3))}]"
            for key, bits in (("neg_lo", neg_lo), ("neg_hi", neg_hi))
            if bits
        )
        check(name, (kind, kind), to, 4, modifiers=modifiers, neg_lo=neg_lo, neg_hi=neg_hi, samples=20)


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str) -> None:
    check(name, BYTES[name], "f32", 5)
    check(name, BYTES[name], "f32", 6, wild=True, samples=100)


@pytest.mark.parametrize("name", [*HALVES, *BYTES])
def test_close_to_a_plain_product(name: str) -> None:
    """All elements, by NumPy, with C a constant."""
    kinds, to = ((HALVES[name][0],) * 2, HALVES[name][1]) if name in HALVES else (BYTES[name], "f32")
    rng = np.random.default_rng(7)
    a, b = (draw(rng, (16, 16), kind) for kind in kinds)
    width = 8 * a.itemsize
    left, right = (pack(x, width, order(width, 16)) for x in (a, b))
    v = dict(enumerate(left)) | {8 + n: row for n, row in enumerate(right)}
    last, rows = len(left) - 1, 8 if to == "f32" else 4
    text = f"{name} v[0:{rows - 1}], v[0:{last}], v[8:{8 + last}], 1.0"  # D over A
    got = decode(unpack_d(run("gfx1201", text, v).v[:rows], to), to).astype(np.float64)
    left, right = (numbers(x, kind).astype(np.float64) for x, kind in zip((a, b), kinds, strict=True))
    scale = np.abs(left) @ np.abs(right).T + 1
    assert (
        np.abs(got - left @ right.T - 1) <= 4 * {"f32": 2.0**-22, "f16": 2.0**-10, "bf16": 2.0**-7}[to] * scale
    ).all()


def signed(bits: Any, width: int, is_signed: int) -> Any:
    half = 1 << width - 1
    return (bits ^ half) - half if is_signed else bits


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(("signs", "clamp"), [(0, False), (1, True), (2, False), (3, True)])
def test_integers(name: str, signs: int, clamp: bool) -> None:
    width, depth = INTEGERS[name]
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 1 << width, (16, depth), np.int64) for _ in range(2))
    c = rng.integers(-(1 << 31), 1 << 31, (16, 16), np.int64)
    c[0, :8], c[0, 8:] = (1 << 31) - 1, -(1 << 31)
    left, right = (pack(x, width, order(width, depth)) for x in (a, b))
    v = dict(enumerate(left)) | {8 + n: row for n, row in enumerate(right)}
    v |= {16 + n: row for n, row in enumerate(pack_d(c.astype(np.uint32), "i32"))}
    first, second = ("v0", "v8") if len(left) == 1 else ("v[0:1]", "v[8:9]")
    modifiers = (f" neg_lo:[{signs & 1},{signs >> 1},0]" if signs else "") + (" clamp" if clamp else "")
    after = run("gfx1201", f"{name} v[16:23], {first}, {second}, v[16:23]{modifiers}", v, exec=3)
    want = signed(a, width, signs & 1) @ signed(b, width, signs & 2).T + c
    want = np.clip(want, -(1 << 31), (1 << 31) - 1) if clamp else want
    np.testing.assert_array_equal(unpack_d(after.v[16:24], "i32").view(np.int32), want.astype(np.int32))


def sparse_registers(rng: Any, width: int, depth: int, key: int) -> tuple[Any, Any, Any]:
    """Places among four of the elements that A holds, the register with them (other bits are random), and lanes' k."""
    held = order(width, depth // 2)
    where = rng.integers(0, 4, (16, depth // 2))
    index = rng.integers(0, 1 << 32, 32, np.uint64)
    for half, ks in enumerate(held):
        for slot, k in enumerate(ks):
            at = np.uint64(key * 2 * len(ks) + 2 * slot)
            lanes = slice(16 * half, 16 * half + 16)
            index[lanes] = index[lanes] & ~(np.uint64(3) << at) | where[:, k].astype(np.uint64) << at
    return where, index.astype(np.uint32), held


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name: str) -> None:
    *kinds, to = SPARSE[name]
    rng = np.random.default_rng(9)
    for key in (0, 1):
        a, b, c = draw(rng, (16, 16), kinds[0]), draw(rng, (16, 32), kinds[1]), draw(rng, (16, 16), to)
        width = 8 * a.itemsize
        where, index, held = sparse_registers(rng, width, 32, key)
        left, right, start = pack(a, width, held), pack(b, width, order(width, 32, True)), pack_d(c, to)
        v = dict(enumerate(left)) | {8 + n: row for n, row in enumerate(right)} | {40: index}
        v |= {16 + n: row for n, row in enumerate(start)}
        text = f"{name} v[16:{15 + len(start)}], v[0:{len(left) - 1}], v[8:{7 + len(right)}], v40"
        after = run("gfx1201", text + (f" index_key:{key}" if key else ""), v)
        dense = 4 * (np.arange(16) // 2) + where
        columns = numbers(b, kinds[1])[np.arange(16)[None, :, None], dense[:, None, :]]
        got = unpack_d(after.v[16 : 16 + len(start)], to)
        compare(got, numbers(a, kinds[0]), columns, decode(c, to), (kinds[0], kinds[1]), to, 40, name)


@pytest.mark.parametrize("name", SPARSE_INTEGERS)
def test_sparse_integers(name: str) -> None:
    width, depth = SPARSE_INTEGERS[name]
    rng = np.random.default_rng(10)
    for key, signs in ((0, 3), (1, 0)) if depth == 32 else ((0, 3),):
        a, b = (rng.integers(0, 1 << width, (16, n), np.int64) for n in (depth // 2, depth))
        c = rng.integers(-9999, 9999, (16, 16), np.int64)
        where, index, held = sparse_registers(rng, width, depth, key)
        left, right = pack(a, width, held), pack(b, width, order(width, depth, True))
        v = dict(enumerate(left)) | {8 + n: row for n, row in enumerate(right)} | {40: index}
        v |= {16 + n: row for n, row in enumerate(pack_d(c.astype(np.uint32), "i32"))}
        one = "v0" if len(left) == 1 else f"v[0:{len(left) - 1}]"
        modifiers = (f" index_key:{key}" if key else "") + (" neg_lo:[1,1,0]" if signs else "")
        after = run("gfx1201", f"{name} v[16:23], {one}, v[8:{7 + len(right)}], v40{modifiers}", v)
        left, right = signed(a, width, signs), signed(b, width, signs)
        dense = 4 * (np.arange(depth // 2) // 2) + where
        want = np.einsum("ik,ijk->ij", left, right[np.arange(16)[None, :, None], dense[:, None, :]]) + c
        np.testing.assert_array_equal(unpack_d(after.v[16:24], "i32").view(np.int32), want.astype(np.int32))


def test_formats_of_8_bits_are_ocps() -> None:
    """0x80 is -0 and 0x7f a NaN; on gfx942 the first is the NaN."""
    assert DTYPES["fp8"] is not OCP["fp8"]
    for byte, is_nan in ((0x80, False), (0x7F, True)):
        v = dict.fromkeys(range(2), byte * 0x01010101) | dict.fromkeys((8, 9), 0x38383838)
        state = run("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8 v[16:23], v[0:1], v[8:9], 0", v)
        assert np.isnan(state.v[16:24].view(np.float32)).all() == is_nan
