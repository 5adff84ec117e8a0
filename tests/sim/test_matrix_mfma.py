"""MFMA and SMFMAC of gfx942 against Python: register layouts as AMD's matrix instruction calculator prints them.

Where an element lies, by shape (`b`: the block; P elements of A or B lie in a lane's registers, densely packed):

    shape        A[i][k]: lane                P           D[i][j]: register                 lane
    32x32x1_2b   32b + i                      1           16b + 4(i/8) + i%4                32(i/4) % 64 + j
    32x32x4_2b   32b + i                      4           the same
    16x16x1_4b   16b + i                      1           4b + i%4                          16(i/4) + j
    16x16x4_4b   16b + i                      4           the same
    4x4x1_16b    4b + i                       1           i                                 4b + j
    4x4x4_16b    4b + i                       4           the same
    32x32xK      32(k/P) + i                  K/2         4(i/8) + i%4                      32(i/4) % 64 + j
    16x16xK      16(k/P) + i                  K/4         i%4                               16(i/4) + j
    16x16x4 f64  16k + i                      1           pair i/4                          16(i%4) + j
    4x4x4_4b f64 16k + 4b + i                 1           pair 0                            16i + 4b + j
    sparse       A as if K were half; index: two bits per element of the lane
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.decode.text import Undecodable
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.matrix_formats import DTYPES, decode, encode, group_sum, pair_sum
from tests.sim.snippet import assemble, run

HALF = [f"v_mfma_f32_{shape}_{t}" for t in ("f16", "bf16") for shape in (
    "32x32x8", "16x16x16", "32x32x4_2b", "16x16x4_4b", "4x4x4_16b")]  # fmt: skip
BYTES = [f"v_mfma_f32_{shape}_{a}_{b}" for shape in ("16x16x32", "32x32x16") for a in ("fp8", "bf8") for b in (
    "fp8", "bf8")]  # fmt: skip
FLOAT = [f"v_mfma_f32_{shape}_f32" for shape in ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4")]
DOUBLE = ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"]
XF32 = ["v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"]
INTEGER = [f"v_mfma_i32_{shape}_i8" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x16", "16x16x32")]
SPARSE = [
    *(f"v_smfmac_f32_{shape}_{t}" for t in ("f16", "bf16") for shape in ("16x16x32", "32x32x16")),
    *(f"v_smfmac_f32_{shape}_{a}_{b}" for shape in ("16x16x64", "32x32x32") for a in ("fp8", "bf8") for b in (
        "fp8", "bf8")),
    *(f"v_smfmac_i32_{shape}_i8" for shape in ("16x16x64", "32x32x32")),
]  # fmt: skip
DENSE = [*FLOAT, *XF32, *DOUBLE, *HALF, *BYTES, *INTEGER]
BLOCKED = [name for name in DENSE if re.search(r"_\d+b_", name) and "f64" not in name]

BLGP_LANES = {  # the lane of B whose data each lane gets
    0: [*range(64)], 1: [*range(32), *range(32)], 2: [*range(32, 64), *range(32, 64)],
    3: [*range(16, 64), *range(16)], 4: [*range(16)] * 4, 5: [*range(16, 32)] * 4, 6: [*range(32, 48)] * 4,
    7: [*range(48, 64)] * 4,
}  # fmt: skip


@dataclass
class Shape:
    """What an instruction's name says, and where its elements lie."""

    name: str

    def __post_init__(self) -> None:
        found = re.match(r"v_s?mfmac?_(\w+?)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)$", self.name)
        assert found
        self.to = found[1]
        self.m, self.n, self.k, self.blocks = (int(n or 1) for n in found.group(2, 3, 4, 5))
        kinds = found[6].split("_")
        self.kinds = (kinds[0], kinds[-1])
        self.sparse = "smfmac" in self.name
        self.d_rows = self.m * self.n * self.blocks // 64 * (2 if self.to == "f64" else 1)

    def input(self, i: int, k: int, b: int, depth: int) -> tuple[int, int]:
        """The lane and the place among its elements."""
        m, blocks = self.m, self.blocks
        if self.to == "f64":
            return (16 * k + i, 0) if m == 16 else (16 * k + 4 * b + i, 0)
        if blocks > 1:
            return m * b + i, k
        held = depth // (64 // m)
        return m * (k // held) + i, k % held

    def output(self, i: int, j: int, b: int) -> tuple[int, int]:
        """The register (or the first of a pair) and the lane."""
        if self.to == "f64":
            return (2 * (i // 4), 16 * (i % 4) + j) if self.m == 16 else (0, 16 * i + 4 * b + j)
        if self.m == 32:
            return 16 * b + 4 * (i // 8) + i % 4, 32 * (i // 4) % 64 + j
        if self.m == 16:
            return 4 * b + i % 4, 16 * (i // 4) + j
        return i, 4 * b + j

    def cells(self, depth: int) -> tuple[Any, Any]:
        """Lanes and places of [block][i][k]."""
        every = [
            [[self.input(i, k, b, depth) for k in range(depth)] for i in range(self.m)] for b in range(self.blocks)
        ]
        found = np.asarray(every)
        return found[..., 0], found[..., 1]

    def pack(self, values: Any, kind: str, depth: int) -> Any:
        """Rows of registers from [block][i][k]."""
        bits = encode(values, kind)
        cells = np.zeros((64, depth * self.m * self.blocks // 64), bits.dtype)
        cells[self.cells(depth)] = bits
        return np.ascontiguousarray(cells.view(np.uint32).T)

    def pack_d(self, values: Any) -> Any:
        """Rows of registers from [block][i][j]."""
        rows = np.zeros((self.d_rows, 64), np.uint32)
        words = values[..., None].view(np.uint32)
        for b in range(self.blocks):
            for i in range(self.m):
                reg, lane = self.output(i, 0, b)
                rows[reg : reg + words.shape[-1], lane : lane + self.n] = words[b, i].T
        return rows

    def unpack_d(self, rows: Any) -> Any:
        """[block][i][j] from rows of registers."""
        kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[self.to]
        out = np.zeros((self.blocks, self.m, self.n), kind)
        for b in range(self.blocks):
            for i in range(self.m):
                reg, lane = self.output(i, 0, b)
                words = rows[reg : reg + np.dtype(kind).itemsize // 4, lane : lane + self.n]
                out[b, i] = np.ascontiguousarray(words.T).view(kind)[:, 0]
        return out


def draw(rng: Any, shape: tuple[int, ...], kind: str, wild: bool = False) -> Any:
    """Numbers that the format holds; wild ones over all its bits, with what is not finite."""
    if kind == "i8":
        return rng.integers(-128, 128, shape, np.int8)
    size = np.dtype(DTYPES[kind]).itemsize
    if wild:
        bits = rng.integers(0, 1 << 8 * size, shape, np.uint64).astype(f"u{size}")
        ordinary = encode(rng.standard_normal(shape), kind)
        values = decode(np.where(rng.random(shape) < 0.15, bits, ordinary), kind)
        values.reshape(-1)[:3] = np.asarray([np.inf, np.nan, -np.inf]).astype(DTYPES[kind])
        values[rng.random(shape) < 0.3] = 0
        return values
    scale = np.exp2(rng.integers(-6, 5, shape))
    return (rng.standard_normal(shape) * scale).astype(DTYPES[kind])


def xf32(values: Any) -> Any:
    return (np.asarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def one(shape: Shape, a: Any, b: Any, c: Any, target: str = "gfx942") -> Any:
    """An element of D from a row of A, a column of B and C."""
    kind = shape.kinds[0]
    if target == "gfx90a" and kind in ("f16", "bf16"):
        older = kind == "bf16" and shape.k * shape.m * shape.blocks // 64 == 2  # elements that a lane holds
        return pair_sum(a.astype(np.float32), b.astype(np.float32), c, kind, 2 if older else 4)
    if shape.to == "i32":
        return np.int64(c + (a.astype(np.int64) * b.astype(np.int64)).sum()).astype(np.int32)
    if kind in ("f32", "f64"):
        for x, y in zip(a, b, strict=True):  # a longer sum, rounded once, is an FMA but for a double rounding
            c = (np.longdouble(x) * np.longdouble(y) + np.longdouble(c)).astype(a.dtype)
        return c
    if kind == "xf32":
        a, b = xf32(a), xf32(b)
    size = 4 if kind == "xf32" else 16 if kind.endswith("8") else 8
    for start in range(0, len(a), size):
        part = slice(start, start + size)
        with np.errstate(all="ignore"):
            c = np.float32(group_sum(a[part].astype(np.float64), b[part].astype(np.float64), c, shape.kinds))
    return c


def same(got: Any, wanted: Any, where: Any) -> None:
    """Equal to the bit, but for the payload of NaNs; float64 chains within a rounding of an 80-bit sum."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.dtype == np.float64:
        np.testing.assert_allclose(got, wanted, rtol=1e-15, atol=0, err_msg=str(where))
        return
    nans = np.isnan(got) & np.isnan(wanted) if got.dtype.kind == "f" else np.zeros(got.shape, bool)
    differ = (got.view(np.uint32) != wanted.view(np.uint32)) & ~nans
    assert not differ.any(), (where, got[differ][:4], wanted[differ][:4], np.argwhere(differ)[:4])


def check(
    name: str, seed: int, *, wild: bool = False, text: str = "{name} v[100:{d}], v[0:{a}], v[20:{b}], v[100:{d}]",
    rows: tuple[int, int, int] = (0, 20, 100), to: int | None = None, modifiers: str = "", cbsz: int = 0, abid: int = 0,
    blgp: int = 0, negated: int = 0, constant: Any = None, samples: int = 40, target: str = "gfx942", spelled: str = "",
    **options: Any,
) -> None:  # fmt: skip
    """Run an instruction on random matrices and compare elements of D. `spelled`: what the target calls it."""
    shape = Shape(name)
    rng = np.random.default_rng(seed)
    depth = shape.k
    a = draw(rng, (shape.blocks, shape.m, depth), shape.kinds[0], wild)
    b = draw(rng, (shape.blocks, shape.n, depth), shape.kinds[1], wild)
    c_kind = {"f32": "f32", "f64": "f64", "i32": "i8"}[shape.to]
    c = draw(rng, (shape.blocks, shape.m, shape.n), c_kind, wild)
    if shape.to == "i32":
        c = rng.integers(-(1 << 31), 1 << 31, c.shape, np.int64).astype(np.int32)
    packed = [shape.pack(a, shape.kinds[0], depth), shape.pack(b, shape.kinds[1], depth), shape.pack_d(c)]
    v = {first + n: row for first, part in zip(rows, packed, strict=True) for n, row in enumerate(part)}
    lasts = (first % 256 + len(part) - 1 for first, part in zip(rows, packed, strict=True))
    line = text.format(name=spelled or name, **dict(zip("abd", lasts, strict=True)))
    line = re.sub(r"([va])\[(\d+):\2\]", r"\1\2", line)
    after = run(target, line + modifiers, v, **options)
    first = rows[2] if to is None else to
    got = shape.unpack_d(after.v[first : first + shape.d_rows])
    if constant is not None:
        c[...] = constant
    b = moved(shape, b, blgp)
    a, b, c = (-x if negated >> n & 1 else x for n, x in enumerate((a, b, c)))
    for block, i, j in zip(*(rng.integers(0, n, samples) for n in (shape.blocks, shape.m, shape.n)), strict=True):
        from_block = (block >> cbsz << cbsz) + abid if cbsz else block
        wanted = one(shape, a[from_block, i], b[block, j], c[block, i, j], target)
        same(got[block, i, j], wanted, (name, block, i, j))


def moved(shape: Shape, b: Any, blgp: int) -> Any:
    """B after BLGP: each lane holds what another one held."""
    lanes, places = shape.cells(shape.k)
    held = np.zeros((64, shape.k * shape.n * shape.blocks // 64), b.dtype)
    held[lanes, places] = b
    return held[BLGP_LANES[blgp]][lanes, places]


def test_all_are_known() -> None:
    found = {n for n in known("gfx942", interpreter(64).forms) if n.startswith(("v_mfma", "v_smfmac"))}
    assert found == {*DENSE, *SPARSE}
    assert len(found) == 46  # as many as LLVM's assembler takes for gfx942


@pytest.mark.parametrize("name", DENSE)
def test_dense(name: str) -> None:
    check(name, 1)


@pytest.mark.parametrize("name", [*HALF, *BYTES, *XF32, *FLOAT])
def test_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        check(name, 2, wild=True, samples=120)


@pytest.mark.parametrize("name", BLOCKED)
def test_broadcast_of_a_and_lanes_of_b(name: str) -> None:
    blocks = Shape(name).blocks
    most = blocks.bit_length() - 1
    for n, (cbsz, abid, blgp) in enumerate([(1, 1, 0), (most, blocks - 1, 0), (0, 0, 3), (1, 0, 5)]):
        modifiers = "".join(f" {k}:{x}" for k, x in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if x)
        check(name, 3 + n, modifiers=modifiers, cbsz=cbsz, abid=abid, blgp=blgp, samples=15)


@pytest.mark.parametrize("blgp", range(8))
def test_every_lane_pattern(blgp: int) -> None:
    check("v_mfma_f32_16x16x4_f32", 8, modifiers=f" blgp:{blgp}" if blgp else "", blgp=blgp)
    check("v_mfma_i32_32x32x4_2b_i8", 8, modifiers=f" blgp:{blgp}" if blgp else "", blgp=blgp, samples=15)


@pytest.mark.parametrize("negated", range(1, 8))
def test_double_is_negated(negated: int) -> None:
    bits = ",".join(str(negated >> n & 1) for n in range(3))
    for name in DOUBLE:
        check(name, 9, modifiers=f" neg:[{bits}]", negated=negated)


@pytest.mark.parametrize("name", ["v_mfma_f32_32x32x8_f16", "v_mfma_f64_16x16x4_f64", "v_mfma_i32_16x16x32_i8"])
def test_accumulation_registers(name: str) -> None:
    check(name, 10, text="{name} a[100:{d}], a[0:{a}], v[20:{b}], a[100:{d}]", rows=(256, 20, 356))
    last = Shape(name).d_rows - 1
    check(name, 11, text=f"{{name}} v[0:{last}], v[120:{{a}}], a[20:{{b}}], v[60:{{d}}]", rows=(120, 276, 60), to=0)


@pytest.mark.parametrize("name", ["v_mfma_f32_32x32x8_bf16", "v_mfma_f32_16x16x4_f32", "v_mfma_f64_4x4x4_4b_f64"])
def test_result_over_factors(name: str) -> None:
    last = Shape(name).d_rows - 1
    check(name, 12, text=f"{{name}} v[0:{last}], v[0:{{a}}], v[2:{{b}}], v[100:{{d}}]", rows=(0, 2, 100), to=0)


@pytest.mark.parametrize(
    ("name", "constant", "value"),
    [
        ("v_mfma_f32_32x32x8_f16", "0", 0.0), ("v_mfma_f32_16x16x16_bf16", "-4.0", -4.0),
        ("v_mfma_f32_16x16x4_f32", "0.5", 0.5), ("v_mfma_f64_16x16x4_f64", "1.0", 1.0),
        ("v_mfma_i32_16x16x32_i8", "-7", -7), ("v_mfma_f32_16x16x32_fp8_bf8", "5", np.uint32(5).view(np.float32)),
    ],
)  # fmt: skip
def test_inline_constant(name: str, constant: str, value: Any) -> None:
    check(name, 13, text=f"{{name}} v[100:{{d}}], v[0:{{a}}], v[20:{{b}}], {constant}", constant=value)


def test_exec_and_rounding_mode_do_not_matter() -> None:
    for name in ("v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x4_f32", "v_mfma_f64_16x16x4_f64"):
        check(name, 14, exec=0x1234, mode=0x3FF)  # rounding towards zero
    check("v_mfma_f32_16x16x16_bf16", 15, exec=0, mode=0x30F)  # denormals of 16 bits off


def test_denormals_count() -> None:
    tiny = np.zeros((2, 64), np.uint32)
    tiny[0, 0], tiny[0, 16] = 0x00000001, 0x00000001  # A[0][0] and A[0][4] = 2^-24
    one_half = np.full((2, 64), 0x3C003C00, np.uint32)
    after = run("gfx942", "v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], 0",
                {0: tiny[0], 1: tiny[1], 2: one_half[0], 3: one_half[1]})  # fmt: skip
    assert after.v[4].view(np.float32)[:16].tolist() == [2.0**-23] * 16
    bits = np.full(64, 1, np.uint32)  # the smallest float32, times one
    after = run("gfx942", "v_mfma_f32_4x4x1_16b_f32 v[4:7], v0, v1, 0", {0: bits, 1: np.ones(64, np.float32)})
    assert (after.v[4] == 1).all()


def test_known_asymmetry() -> None:
    """Sums are cut off towards minus infinity before they are rounded: 1 + (2^-24 + 2^-32) and its negative differ."""
    a = np.asarray([[2.0**-12, 2.0**-16], [1.0, 1.0]], np.float32)
    for sign, wanted in ((1.0, 1.0), (-1.0, -(1 + 2.0**-23))):
        rows = np.zeros((2, 64, 2), np.float16)
        rows[0, :16] = sign * a[0].astype(np.float16)
        factors = np.zeros((2, 64, 2), np.float16)
        factors[0, :16] = np.asarray([2.0**-12, 2.0**-16], np.float16)
        v = {0: rows[0].view(np.uint32)[:, 0], 1: rows[1].view(np.uint32)[:, 0], 2: factors[0].view(np.uint32)[:, 0],
             3: factors[1].view(np.uint32)[:, 0]}  # fmt: skip
        after = run("gfx942", f"v_mfma_f32_16x16x16_f16 v[4:7], v[0:1], v[2:3], {sign}", v)
        assert after.v[4].view(np.float32)[0] == np.float32(wanted)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name: str) -> None:
    shape = Shape(name)
    rng = np.random.default_rng(20)
    held, size = shape.k // 2, 4 if shape.kinds[0].endswith("16") else 8  # elements in a lane
    a = draw(rng, (1, shape.m, held), shape.kinds[0])
    b = draw(rng, (1, shape.n, shape.k), shape.kinds[1])
    c = draw(rng, (1, shape.m, shape.n), "f32")
    if shape.to == "i32":
        c = rng.integers(-9999, 9999, c.shape, np.int32)
    where = rng.integers(0, 4, (shape.m, held))
    packed_a, packed_b = shape.pack(a, shape.kinds[0], held), shape.pack(b, shape.kinds[1], shape.k)
    sets = 32 // (2 * size)
    for abid, cbsz in [(0, 0), (sets - 1, 0), (1, 1)]:
        index = rng.integers(0, 1 << 32, 64, np.uint64)
        shift = 0 if cbsz else 2 * size * abid
        for i in range(shape.m):
            for k in range(held):
                lane, place = shape.m * (k // size) + i, k % size
                at = np.uint64(shift + 2 * place)
                index[lane] = (index[lane] & ~(np.uint64(3) << at)) | (np.uint64(where[i, k]) << at)
        v = dict(enumerate(packed_a)) | {20 + n: row for n, row in enumerate(packed_b)}
        v |= {100 + n: row for n, row in enumerate(shape.pack_d(c))} | {40: index.astype(np.uint32)}
        modifiers = "".join(f" {k}:{x}" for k, x in (("cbsz", cbsz), ("abid", abid)) if x)
        after = run("gfx942", f"{name} v[100:{99 + shape.d_rows}], v[0:1], v[20:23], v40{modifiers}", v)
        got = shape.unpack_d(after.v[100 : 100 + shape.d_rows])
        for i, j in zip(rng.integers(0, shape.m, 25), rng.integers(0, shape.n, 25), strict=True):
            column = np.asarray([b[0, j, 4 * (k // 2) + where[i, k]] for k in range(held)])
            same(got[0, i, j], one(shape, a[0, i], column, c[0, i, j]), (name, abid, i, j))


def test_modifiers_that_an_instruction_lacks() -> None:
    with pytest.raises(Undecodable, match="blgp"):
        assemble("gfx942", "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], 0 blgp:1")
    with pytest.raises(Undecodable, match="cbsz"):
        assemble("gfx942", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, 0 cbsz:1")
