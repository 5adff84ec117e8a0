"""Vector instructions on integers and bits, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.snippet import each_target
from tests.sim.valu import Bits, check


def low(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def signed(x: int, bits: int) -> int:
    return low(x, bits) - ((low(x, bits) >> (bits - 1)) << bits)


def fields(x: int, bits: int, count: int) -> list[int]:
    return [x >> bits * i & ((1 << bits) - 1) for i in range(count)]


def joined(parts: list[int], bits: int) -> int:
    return sum(p << bits * i for i, p in enumerate(parts))


def borrow(a: int, b: int, c: int = 0) -> tuple[int, bool]:
    return a - b - c, a < b + c


def leading(text: str) -> int:
    """How many digits before the first 1; -1 if there is none."""
    return text.find("1")


def permuted(a: int, b: int, c: int) -> int:
    eight = fields(b, 8, 4) + fields(a, 8, 4)
    signs = {8: eight[1], 9: eight[3], 10: eight[5], 11: eight[7]}

    def pick(s: int) -> int:
        if s < 8:
            return eight[s]
        return (0xFF if signs[s] & 0x80 else 0) if s in signs else 0 if s == 12 else 0xFF

    return joined([pick(s) for s in fields(c, 8, 4)], 8)


def sad(a: int, b: int, masked: bool = False) -> int:
    return sum(abs(x - y) for x, y in zip(fields(a, 8, 4), fields(b, 8, 4), strict=True) if y or not masked)


def quads(masked: bool) -> Callable[[int, int, int], int]:
    return lambda a, b, c: joined([low(sad(a >> 8 * i, b, masked) + f, 16) for i, f in enumerate(fields(c, 16, 4))], 16)


def saturated_pair(a: int) -> int:
    return joined([min(max(signed(x, 16), 0), 255) for x in fields(a, 16, 2)], 8)


def mad_i64(a: int, b: int, c: int) -> tuple[int, bool]:
    return a * b + c, a * b + c < 0  # the 65th bit of the sum


EXPECTED: dict[str, Callable[..., Any]] = {
    "v_mov_b32": lambda a: a,
    "v_mov_b64": lambda a: a,
    "v_mov_b16": lambda a: a,
    "v_cndmask_b32": lambda a, b, c: Bits(b if c else a),
    "v_cndmask_b16": lambda a, b, c: Bits(b if c else a),
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    "v_add_co_u32": lambda a, b: (a + b, a + b >= 1 << 32),
    "v_sub_co_u32": borrow,
    "v_subrev_co_u32": lambda a, b: borrow(b, a),
    "v_addc_co_u32": lambda a, b, c: (a + b + c, a + b + c >= 1 << 32),
    "v_subb_co_u32": borrow,
    "v_subbrev_co_u32": lambda a, b, c: borrow(b, a, c),
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: a * b >> 32,
    "v_mul_u32_u24": lambda a, b: low(a, 24) * low(b, 24),
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_mul_hi_u32_u24": lambda a, b: low(a, 24) * low(b, 24) >> 32,
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "v_mad_u32_u24": lambda a, b, c: low(a, 24) * low(b, 24) + c,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_mad_u32_u16": lambda a, b, c: a * b + c,
    "v_mad_i32_i16": lambda a, b, c: a * b + c,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << b % 32) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << c % 32,
    "v_lshl_or_b32": lambda a, b, c: low(a << b % 32, 32) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_not_b32": lambda a: ~a,
    "v_lshlrev_b32": lambda a, b: b << a % 32,
    "v_lshrrev_b32": lambda a, b: b >> a % 32,
    "v_ashrrev_i32": lambda a, b: b >> a % 32,
    "v_bfe_u32": lambda a, b, c: low(a >> b % 32, c % 32),
    "v_bfe_i32": lambda a, b, c: signed(a >> b % 32, c % 32) if c % 32 else 0,
    "v_bfi_b32": lambda a, b, c: joined(
        [y if x else z for x, y, z in zip(*(fields(n, 1, 32) for n in (a, b, c)), strict=True)], 1
    ),
    "v_bfm_b32": lambda a, b: int("1" * (a % 32) + "0" * (b % 32) or "0", 2),
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_bcnt_u32_b32": lambda a, b: f"{a:b}".count("1") + b,
    "v_ffbh_u32": lambda a: leading(f"{a:032b}"),
    "v_ffbl_b32": lambda a: leading(f"{a:032b}"[::-1]),
    "v_ffbh_i32": lambda a: leading(f"{a if a >= 0 else ~a:032b}"),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> c % 32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c % 4),
    "v_perm_b32": permuted,
    "v_lerp_u8": lambda a, b, c: joined(
        [(x + y + (z & 1)) >> 1 for x, y, z in zip(*(fields(n, 8, 4) for n in (a, b, c)), strict=True)], 8
    ),
    "v_sad_u8": lambda a, b, c: sad(a, b) + c,
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b) << 16) + c,
    "v_sad_u16": lambda a, b, c: sum(abs(x - y) for x, y in zip(fields(a, 16, 2), fields(b, 16, 2), strict=True)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_msad_u8": lambda a, b, c: sad(a, b, True) + c,
    "v_qsad_pk_u16_u8": quads(False),
    "v_mqsad_pk_u16_u8": quads(True),
    "v_lshl_add_u64": lambda a, b, c: (a << b % 8) + c,
    "v_lshlrev_b64": lambda a, b: b << a % 64,
    "v_lshrrev_b64": lambda a, b: b >> a % 64,
    "v_ashrrev_i64": lambda a, b: b >> a % 64,
    "v_mad_u64_u32": lambda a, b, c: (a * b + c, a * b + c >= 1 << 64),
    "v_mad_i64_i32": mad_i64,
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_add_i16": lambda a, b: a + b,
    "v_sub_i16": lambda a, b: a - b,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_i16": lambda a, b, c: a * b + c,
    "v_mad_legacy_u16": lambda a, b, c: a * b + c,
    "v_mad_legacy_i16": lambda a, b, c: a * b + c,
    "v_and_b16": lambda a, b: a & b,
    "v_or_b16": lambda a, b: a | b,
    "v_xor_b16": lambda a, b: a ^ b,
    "v_not_b16": lambda a: ~a,
    "v_lshlrev_b16": lambda a, b: b << a % 16,
    "v_lshrrev_b16": lambda a, b: b >> a % 16,
    "v_ashrrev_i16": lambda a, b: b >> a % 16,
    "v_sat_pk_u8_i16": saturated_pair,
}
for _kind in ("u32", "i32", "u16", "i16"):
    EXPECTED[f"v_min_{_kind}"], EXPECTED[f"v_max_{_kind}"] = min, max
    EXPECTED[f"v_min3_{_kind}"], EXPECTED[f"v_max3_{_kind}"] = min, max
    EXPECTED[f"v_med3_{_kind}"] = lambda *three: sorted(three)[1]
    if _kind.endswith("32"):
        EXPECTED[f"v_maxmin_{_kind}"] = lambda a, b, c: min(max(a, b), c)
        EXPECTED[f"v_minmax_{_kind}"] = lambda a, b, c: max(min(a, b), c)


def saturating(of: Callable[..., Any], low_end: int, high_end: int) -> Callable[..., Any]:
    """An expectation with the clamp bit: the nearest number that the result can hold."""

    def expectation(*values: int) -> Any:
        exact = of(*values)
        if isinstance(exact, tuple):
            return min(max(exact[0], low_end), high_end), exact[1]
        return min(max(exact, low_end), high_end)

    return expectation


_U16, _I16, _U32, _I32 = (0, 0xFFFF), (-0x8000, 0x7FFF), (0, 0xFFFFFFFF), (-0x80000000, 0x7FFFFFFF)
RANGES = {
    **dict.fromkeys(["v_add_u16", "v_sub_u16", "v_subrev_u16", "v_mad_u16", "v_mad_legacy_u16"], _U16),
    **dict.fromkeys(["v_add_i16", "v_sub_i16", "v_mad_i16", "v_mad_legacy_i16"], _I16),
    **dict.fromkeys((f"v_{op}_u32" for op in ("add", "sub", "subrev", "sad")), _U32),
    **dict.fromkeys((f"v_{op}_co_u32" for op in ("add", "sub", "subrev", "addc", "subb", "subbrev")), _U32),
    **dict.fromkeys(["v_mad_u32_u24", "v_mad_u32_u16", "v_sad_u8", "v_sad_hi_u8", "v_sad_u16", "v_msad_u8"], _U32),
    **dict.fromkeys(["v_add_i32", "v_sub_i32", "v_mad_i32_i24", "v_mad_i32_i16"], _I32),
    "v_mad_u64_u32": (0, (1 << 64) - 1),
    "v_mad_i64_i32": (-(1 << 63), (1 << 63) - 1),
}  # fmt: skip


@each_target
def test_integers(target: str) -> None:
    assert len(check(EXPECTED, target)) > 80


@each_target
def test_clamp_saturates_integers(target: str) -> None:
    ran = check({name: saturating(EXPECTED[name], *ends) for name, ends in RANGES.items()}, target, suffix=" clamp")
    assert {"v_add_u32", "v_sub_u32", "v_add_i32", "v_mad_u32_u24"} <= ran
