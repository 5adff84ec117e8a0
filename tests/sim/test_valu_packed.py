"""Packed vector instructions, mixed precision and dot products, with op_sel, op_sel_hi and signs per half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.snippet import LANES, each_target, run
from tests.sim.test_valu_float import extreme
from tests.sim.valu import check, exact, rounded, to_bits, to_float, values


def halves(x: int) -> tuple[int, int]:
    return x & 0xFFFF, x >> 16 & 0xFFFF


def signed(x: int, bits: int) -> int:
    return x - ((x >> (bits - 1) & 1) << bits)


def each(of: Callable[..., int]) -> Callable[..., int]:
    """The same on both halves."""

    def both(*registers: int) -> int:
        low, high = (of(*part) & 0xFFFF for part in zip(*(halves(x) for x in registers), strict=True))
        return low | high << 16

    return both


def as_signed(of: Callable[..., int], first_unsigned: bool = False) -> Callable[..., int]:
    return lambda a, *rest: of(a if first_unsigned else signed(a, 16), *(signed(x, 16) for x in rest))


def limited(of: Callable[..., int], low: int, high: int) -> Callable[..., int]:
    return lambda *a: min(max(of(*a), low), high)


def floats(of: Callable[..., float]) -> Callable[..., int]:
    return lambda *a: to_bits(of(*(to_float(x, "F16") for x in a)), "F16")


_INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "min": min, "max": max, "mad": lambda a, b, c: a * b + c,
}  # fmt: skip
PLAIN: dict[str, Callable[..., Any]] = {
    **{f"v_pk_{n}_u16": each(f) for n, f in _INTEGER.items()},
    **{f"v_pk_{n}_i16": each(as_signed(f)) for n, f in _INTEGER.items()},
    "v_pk_mul_lo_u16": each(lambda a, b: a * b),
    "v_pk_lshlrev_b16": each(lambda a, b: b << a % 16),
    "v_pk_lshrrev_b16": each(lambda a, b: b >> a % 16),
    "v_pk_ashrrev_i16": each(as_signed(lambda a, b: b >> a % 16, first_unsigned=True)),
    "v_pk_min_f16": each(extreme("F16", False)),
    "v_pk_max_f16": each(extreme("F16", True)),
}


def dot(bits: int, a_signed: bool, b_signed: bool) -> Callable[[int, int, int], int]:
    def field(x: int, i: int, is_signed: bool) -> int:
        part = x >> bits * i & ((1 << bits) - 1)
        return signed(part, bits) if is_signed else part

    return lambda a, b, c: c + sum(field(a, i, a_signed) * field(b, i, b_signed) for i in range(32 // bits))


DOTS = {
    "v_dot2_i32_i16": dot(16, True, True), "v_dot2c_i32_i16": dot(16, True, True),
    "v_dot2_u32_u16": dot(16, False, False),
    "v_dot4_i32_i8": dot(8, True, True), "v_dot4c_i32_i8": dot(8, True, True), "v_dot4_u32_u8": dot(8, False, False),
    "v_dot8_i32_i4": dot(4, True, True), "v_dot8c_i32_i4": dot(4, True, True), "v_dot8_u32_u4": dot(4, False, False),
    "v_dot4_i32_iu8": dot(8, False, False), "v_dot8_i32_iu4": dot(4, False, False),
}  # fmt: skip
FLOAT16 = {
    "v_pk_add_f16": exact(lambda a, b: a + b, "F16"), "v_pk_mul_f16": exact(lambda a, b: a * b, "F16"),
    "v_pk_fma_f16": exact(lambda a, b, c: a * b + c, "F16"), "v_pk_fmac_f16": exact(lambda a, b, c: a * b + c, "F16"),
}  # fmt: skip
TESTED = {
    *PLAIN, *DOTS, *FLOAT16, "v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32", "v_pk_mov_b32", "v_fma_mix_f32",
    "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_dot2_f32_f16", "v_dot2c_f32_f16", "v_dot2_f32_bf16",
}  # fmt: skip


@each_target
def test_packed_integers(target: str) -> None:
    has = {n: f for n, f in PLAIN.items() if target != "gfx1201" or "_f16" not in n}
    assert check(has, target) == has.keys()
    clamped = {
        f"v_pk_{n}_{t}": each(limited(as_signed(_INTEGER[n]) if t == "i16" else _INTEGER[n], *ends))
        for n in ("add", "sub", "mad") for t, ends in (("u16", (0, 65535)), ("i16", (-32768, 32767)))
    }  # fmt: skip
    assert check(clamped, target, suffix=" clamp") == clamped.keys()


def same_f16(got: int, want: float) -> bool:
    value = to_float(got, "F16")
    return bool(np.isnan(want) and np.isnan(value)) or got == to_bits(want, "F16")


@each_target
def test_packed_float16(target: str) -> None:
    lanes = LANES[target]
    for name, of in FLOAT16.items():
        count = 3 if "fma" in name else 2
        for seed in range(4):
            rows = [np.array(values("PK_F16", lanes, 100 * seed + k), np.uint32) for k in range(count)]
            shown = "v2, v0, v1" if name == "v_pk_fmac_f16" else "v3, " + ", ".join(f"v{k}" for k in range(count))
            state = run(target, f"{name} {shown}", dict(enumerate(rows)))
            got = state.v[int(shown[1])]
            for lane in range(lanes):
                for part in range(2):
                    want = of(*(to_float(halves(int(r[lane]))[part], "F16") for r in rows))
                    assert same_f16(halves(int(got[lane]))[part], want), (name, [hex(r[lane]) for r in rows])


@each_target
def test_halves_and_signs_of_packed_sources(target: str) -> None:
    lanes = LANES[target]
    a, b, c = (np.array(values("PK_F16", lanes, k), np.uint32) for k in range(3))
    text = "v_pk_fma_f16 v3, v0, v1, v2 op_sel:[1,0,1] op_sel_hi:[0,0,1] neg_lo:[1,0,0] neg_hi:[0,1,1]"
    got = run(target, text, {0: a, 1: b, 2: c}).v[3]
    fma = FLOAT16["v_pk_fma_f16"]
    for lane in range(lanes):
        f = [tuple(to_float(h, "F16") for h in halves(int(x[lane]))) for x in (a, b, c)]
        low, high = fma(-f[0][1], f[1][0], f[2][1]), fma(f[0][0], -f[1][0], -f[2][1])
        assert same_f16(halves(int(got[lane]))[0], low) and same_f16(halves(int(got[lane]))[1], high)
    state = run(
        target,
        "v_pk_add_u16 v1, v0, 5 op_sel_hi:[1,0]\nv_pk_sub_i16 v2, -1, v0\n"
        "v_pk_add_f16 v3, v4, 1.0 op_sel_hi:[1,0]\nv_pk_add_u16 v5, v0, s2 op_sel:[0,1] op_sel_hi:[0,0]",
        {0: 0x00030004, 4: 0x40003C00},
        {2: 0x00070009},
    )
    assert [int(state.v[n][0]) for n in (1, 2, 3, 5)] == [0x00080009, 0xFFFCFFFB, 0x42004000, 0x000D000B]


def test_packed_float32() -> None:
    """Pairs of float32, GFX90A and later: each result takes either register of a source."""
    rng = np.random.default_rng(1)
    rows = {n: rng.standard_normal(64).astype(np.float32) for n in range(6)}
    text = (
        "v_pk_add_f32 v[10:11], v[0:1], v[2:3]\nv_pk_mul_f32 v[12:13], v[0:1], v[2:3] op_sel_hi:[0,1]\n"
        "v_pk_fma_f32 v[14:15], v[0:1], v[2:3], v[4:5] op_sel:[1,0,0] neg_lo:[0,1,0] neg_hi:[0,0,1]\n"
        "v_pk_mul_f32 v[16:17], v[0:1], s[4:5]\nv_pk_add_f32 v[18:19], v[0:1], 2.0 op_sel_hi:[1,0]\n"
        "v_pk_mov_b32 v[20:21], v[0:1], v[2:3] op_sel:[1,0]\nv_pk_mov_b32 v[22:23], v[0:1], v[2:3] op_sel:[0,1]\n"
        "v_pk_add_f32 v[24:25], v[0:1], v[2:3] clamp"
    )
    two, three = (int(np.float32(x).view(np.uint32)) for x in (2, 3))
    got = run("gfx942", text, rows, {4: two, 5: three}).v.view(np.float32)
    a, b, c, d, e, f = rows.values()
    fma = exact(lambda x, y, z: x * y + z, "F32")

    def each_fma(x: Any, y: Any, z: Any) -> list[float]:
        return [fma(float(i), float(j), float(k)) for i, j, k in zip(x, y, z, strict=True)]

    wanted = {
        10: a + c, 11: b + d, 12: a * c, 13: a * d, 14: each_fma(b, -c, e), 15: each_fma(b, d, -f), 16: a * 2,
        17: b * 3, 18: a + 2, 19: b + 2, 20: b, 21: c, 22: a, 23: d, 24: np.clip(a + c, 0, 1), 25: np.clip(b + d, 0, 1),
    }  # fmt: skip
    for row, want in wanted.items():
        assert list(got[row]) == list(np.asarray(want, np.float32)), row


@each_target
def test_mixed_precision(target: str) -> None:
    lanes = LANES[target]
    rng = np.random.default_rng(2)
    x = rng.standard_normal(lanes).astype(np.float32)
    pairs = np.array(
        [to_bits(float(p), "F16") | to_bits(float(q), "F16") << 16 for p, q in rng.standard_normal((lanes, 2))],
        np.uint32,
    )
    text = (
        "v_fma_mix_f32 v2, v0, v1, v1 op_sel:[0,1,0] op_sel_hi:[0,1,1]\nv_fma_mix_f32 v3, -v0, |v0|, v0\n"
        "v_fma_mixlo_f16 v4, v1, v0, -v1 op_sel:[1,0,0] op_sel_hi:[1,0,1]\nv_fma_mixhi_f16 v5, v0, v0, 1.0\n"
        "v_fma_mix_f32 v6, v0, 1.0, 0.5 op_sel_hi:[0,1,1]\nv_fma_mixlo_f16 v7, v0, v0, v0 clamp"
    )
    state = run(target, text, {0: x, 1: pairs, 4: 0xAAAA5555, 5: 0xAAAA5555, 7: 0xAAAA5555})
    fma = exact(lambda a, b, c: a * b + c, "F32")
    for lane in range(lanes):
        f = float(x[lane])
        low, high = (to_float(h, "F16") for h in halves(int(pairs[lane])))
        assert to_float(int(state.v[2][lane]), "F32") == fma(f, high, low)
        assert to_float(int(state.v[3][lane]), "F32") == fma(-f, abs(f), f)
        assert to_float(int(state.v[6][lane]), "F32") == fma(f, 1.0, 0.5)
        first, second = (to_bits(float(np.float16(v)), "F16") for v in (fma(high, f, -low), fma(f, f, 1.0)))
        assert int(state.v[4][lane]) == 0xAAAA0000 | first and int(state.v[5][lane]) == second << 16 | 0x5555
        clamped = min(max(float(np.float16(fma(f, f, f))), 0.0), 1.0)
        assert int(state.v[7][lane]) == 0xAAAA0000 | to_bits(clamped, "F16")


@each_target
def test_integer_dot_products(target: str) -> None:
    # GFX11's assembler takes the names of GFX9 for other instructions: those whose neg_lo says what is signed.
    has = {n: f for n, f in DOTS.items() if target.startswith("gfx9") or "_u32_" in n or "_iu" in n}
    assert len(check(has, target)) >= 4
    names = {
        n: limited(f, *((0, 2**32 - 1) if "_u32" in n else (-(2**31), 2**31 - 1)))
        for n, f in has.items()
        if "c_" not in n
    }
    assert len(check(names, target, suffix=" clamp")) >= 4


def test_signs_of_dot_products() -> None:
    """neg_lo says which source of v_dot4_i32_iu8 and v_dot8_i32_iu4 is signed."""
    a, b, c = (np.array(values("U32", 32, k), np.uint32) for k in range(3))
    for name, bits in (("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4)):
        for p, q in ((1, 0), (0, 1), (1, 1)):
            got = run("gfx1100", f"{name} v3, v0, v1, v2 neg_lo:[{p},{q},0]", {0: a, 1: b, 2: c}).v[3]
            of = dot(bits, bool(p), bool(q))
            assert [int(x) for x in got] == [
                of(int(x), int(y), signed(int(z), 32)) & 0xFFFFFFFF for x, y, z in zip(a, b, c, strict=True)
            ]


@each_target
def test_float_dot_products(target: str) -> None:
    """Two products of 16-bit floats, exact, added to a float32 one after the other."""
    lanes = LANES[target]
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((lanes, 2)).astype(np.float32) for _ in range(2))
    c = rng.standard_normal(lanes).astype(np.float32)
    names = {
        "gfx942": ["v_dot2_f32_f16", "v_dot2c_f32_f16"],
        "gfx1100": ["v_dot2_f32_f16", "v_dot2acc_f32_f16", "v_dot2_f32_bf16"],
        "gfx1201": ["v_dot2_f32_f16", "v_dot2_f32_bf16"],
    }
    for name in names.get(target, names["gfx942"]):
        bf16 = "bf16" in name

        def packed(x: Any, bf16: bool = bf16) -> Any:
            bits = x.view(np.uint32) >> 16 if bf16 else x.astype(np.float16).view(np.uint16).astype(np.uint32)
            return bits[:, 0] | bits[:, 1] << 16

        def back(x: Any, bf16: bool = bf16) -> Any:
            return (
                (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
                if bf16
                else x.astype(np.float16).astype(np.float32)
            )

        accumulates = "2c" in name or "acc" in name
        state = run(
            target,
            f"{name} v2, v0, v1" if accumulates else f"{name} v2, v0, v1, v2",
            {0: packed(a), 1: packed(b), 2: c},
        )
        x, y = back(a), back(b)
        want = x[:, 1] * y[:, 1] + (x[:, 0] * y[:, 0] + c)
        assert np.array_equal(state.v[2].view(np.float32), want), name
    if target.startswith("gfx9"):
        got = run(
            target,
            "v_dot2_f32_f16 v3, v0, v1, v2 neg_lo:[1,0,1] neg_hi:[0,0,0]",
            {0: packed(a, False), 1: packed(b, False), 2: c},
        ).v[3]
        x, y = back(a, False), back(b, False)
        assert np.array_equal(got.view(np.float32), x[:, 1] * y[:, 1] + (-x[:, 0] * y[:, 0] - c))


def test_rounding_helper() -> None:
    from fractions import Fraction

    assert rounded(Fraction(1, 3), "F32") == float(np.float32(1 / 3))
    assert rounded(Fraction(65520), "F16") == float("inf") and rounded(Fraction(65519), "F16") == 65504.0
    assert rounded(Fraction(3, 2**26), "F16") == 2.0**-24 and rounded(Fraction(1, 2**25), "F16") == 0.0
