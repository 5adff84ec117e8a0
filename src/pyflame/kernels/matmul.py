"""Host side of matmul.c: which phases a multiplication runs, in which blocks, with how much scratch.

`gemm_plan` is a pure function of sizes, strides, dtypes and the instruction set; the block sizes it picks never change
a result (every output is one chain of multiply-adds in order of k), except `split`, which depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from pyflame.core.traced import whole

Isa = Literal[
    "amx", "avx512", "avx2", "sve512_mmla", "sve512", "sve256_mmla", "sve256", "neon_mmla", "neon_dot", "neon", "plain"
]  # fmt: skip

EPILOGUE_ARG = 38
"""PF_GEMM_ARGS: the first arg that belongs to the epilogue."""

ITEMSIZE = {
    **{"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2},
    **{"int16": 2, "int8": 1, "uint8": 1, "bool_": 1},
}
_VECTOR_BYTES = {"amx": 64, "avx512": 64, "avx2": 32, "sve512": 64, "sve256": 32}  # others: 16
_ROWS = {"amx": 14, "avx512": 14, "avx2": 6, "sve512": 12, "sve256": 12, "neon": 12, "plain": 6}
_MMLA = {"__ARM_FEATURE_MATMUL_INT8", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC"}, {"i8mm", "bf16"}
# What makes an instruction set, best first: the compiler's macros, and the names that Linux has for the same.
_NEEDS: dict[Isa, tuple[set[str], set[str]]] = {
    "amx": ({"__AMX_BF16__", "__AMX_INT8__", "__AVX512F__"}, {"amx_bf16", "amx_int8", "avx512f"}),
    "avx512": ({"__AVX512F__"}, {"avx512f"}),
    "avx2": ({"__AVX2__", "__FMA__"}, {"avx2", "fma"}),
    "sve512_mmla": (_MMLA[0] | {"__ARM_FEATURE_SVE_BITS=512"}, _MMLA[1] | {"sve512"}),
    "sve512": ({"__ARM_FEATURE_SVE_BITS=512"}, {"sve512"}),
    "sve256_mmla": (_MMLA[0] | {"__ARM_FEATURE_SVE_BITS=256"}, _MMLA[1] | {"sve256"}),
    "sve256": ({"__ARM_FEATURE_SVE_BITS=256"}, {"sve256"}),
    "neon_mmla": _MMLA,
    "neon_dot": ({"__ARM_FEATURE_DOTPROD"}, {"asimddp"}),
    "neon": ({"__aarch64__"}, {"asimd"}),
}
_BYTES = ("int8", "uint8")
_SUMMED_AS_STORED = ("float32", "float64", "int16", "int32", "int64")

_PACK_PANELS = 4
_THIN = 8
_PACKED_A, _PACKED_B, _SHARED_A, _SHARED_B, _B_IN_PLACE, _SUMS_IN_PLACE = 1, 2, 4, 8, 16, 32
_MOST_ROWS = 2100  # their sums still come from the last cache level soon enough
_L2_BYTES = 1 << 20  # what a B block may take of the second cache level
_ROW_BYTES = 2048  # of B where it lies: longer rows are pages of their own, and in few sets of the caches
_PACK_LIMIT = 1 << 30  # larger operands are packed block by block, in every task that needs them


@dataclass(frozen=True)
class Geometry:
    """The packed panels of one build of pf_gemm.h: rows and columns of the micro-kernel, and what k is rounded to."""

    rows: int
    cols: int
    row_step: int
    col_step: int
    group: int
    word_step: int
    word_bytes: int
    acc_bytes: int

    @property
    def tiles(self) -> bool:
        """Whether AMX multiplies."""
        return self.word_step > 1

    def words(self, k: int) -> int:
        return round_up(k, self.group * self.word_step) // self.group

    def height(self, rows: int) -> int:
        return round_up(rows, self.row_step)

    def width(self, cols: int) -> int:
        return round_up(cols, self.col_step)


Strides = tuple[int, int]


@dataclass(frozen=True)
class GemmPlan:
    """The phases to run in order, as (function suffix, iterations), and what they need."""

    phases: tuple[tuple[str, int], ...]
    scratch_bytes: int
    args: tuple[int, ...]
    thin: int
    """The value of PF_THIN in the source."""


def isa_of(features: Set[str]) -> Isa:
    """The instruction set that pf_gemm.h compiles for, from the compiler's predefined macros or the CPU's features."""
    return next((isa for isa, needs in _NEEDS.items() if any(need <= features for need in needs)), "plain")


@cache
def geometry(a_dtype: str, b_dtype: str, acc_bytes: int, isa: Isa) -> Geometry:
    """The panel geometry of a build, as the macros of pf_gemm.h choose it."""
    vectors, _, words = isa.partition("_")
    lanes = _VECTOR_BYTES.get(vectors, 16) // acc_bytes
    if isa == "amx" and (a_dtype == b_dtype == "bfloat16" or (a_dtype in _BYTES and b_dtype in _BYTES)):
        return Geometry(32, 2 * lanes, 16, lanes, 4 // ITEMSIZE[a_dtype], 16, 4, 4)
    if words == "mmla" and a_dtype == b_dtype and a_dtype in ("bfloat16", *_BYTES):
        return Geometry(12, 2 * lanes, 2, lanes, 8 // ITEMSIZE[a_dtype], 1, 8, 4)
    if (words == "dot" or vectors.startswith("sve")) and a_dtype == b_dtype and a_dtype in _BYTES:
        return Geometry(12, 2 * lanes, 1, lanes, 4, 1, 4, 4)
    return Geometry(_ROWS[vectors], 2 * lanes, 1, lanes, 1, 1, acc_bytes, acc_bytes)


def gemm_plan(
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    *,
    a_dtype: str = "float32",
    b_dtype: str = "float32",
    acc_bytes: int = 4,
    a_shared: bool = False,
    b_shared: bool = False,
    a_strides: Strides | None = None,
    b_strides: Strides | None = None,
    stored: bool = False,
    isa: Isa = "avx512",
    workers: int = 1,
) -> GemmPlan:
    """Plan `batch` products of (m, k) by (k, n). `*_shared`: one operand for all batch entries; strides in elements.
    `stored`: the sums are the result, row by row.

    >>> [name for name, _ in gemm_plan(1024, 1024, 1024).phases]
    ['pack', 'mul']
    """
    geo = geometry(a_dtype, b_dtype, acc_bytes, isa)
    flags = _SHARED_A * a_shared | _SHARED_B * b_shared
    if a_dtype == b_dtype and _is_thin(m, n) and _reads_in_place(m, n, k, a_strides, b_strides):
        return _thin_plan(min(m, n), max(m, n), k, batch, flags, acc_bytes, workers)

    high, wide, split, finished = _whole_panels(m, n, k, batch, geo)
    if b_dtype in _SUMMED_AS_STORED and b_strides is not None and b_strides[1] == 1:
        flags += _B_IN_PLACE * _stays(m, k, b_strides[0] * acc_bytes, geo)
    if stored:
        flags += _SUMS_IN_PLACE * _whole_steps(n, geo)
    packed, tasks, scratch_bytes, *args = _packed_plan(
        high, wide, k, batch, split, geo, acc_bytes, a_shared, b_shared, flags, workers
    )
    phases = ("pack", packed), ("mul", tasks), ("finish", finished)
    return GemmPlan(tuple(phase for phase in phases if phase[1]), scratch_bytes, tuple(args), 0)


@whole
def _whole_panels(m: int, n: int, k: int, batch: int, geo: Geometry) -> tuple[int, int, int, int]:
    """Rows and columns rounded up to panels, the k range of a partial sum, and iterations of the phase that adds these:
    all that depends on the very sizes."""
    split = _split(m, n, k, batch, _depth(k, geo))
    return round_up(m, geo.rows), round_up(n, geo.cols), split, batch * m if split < k else 0


@whole
def _stays(m: int, k: int, row_bytes: int, geo: Geometry) -> int:
    """Whether rows of B stay where they lie: few and short ones are as well in the cache as panels, and one panel of A
    reads them but once. Narrow panels are better together, and words of several elements are made by packing."""
    fits = _depth(k, geo) * row_bytes <= _L2_BYTES // 2 and 0 <= row_bytes <= _ROW_BYTES
    return int((fits or m <= geo.rows) and geo.group == geo.word_step == 1 and geo.rows <= geo.cols)


@whole
def _whole_steps(n: int, geo: Geometry) -> int:
    """Whether the micro-kernel writes nothing but the sums themselves."""
    return int(n % geo.col_step == 0 and geo.row_step == 1)


@whole
@lru_cache(maxsize=1024)  # texts that grow come with as many rows as before, in whole panels
def _packed_plan(
    m: int, n: int, k: int, batch: int, split: int, geo: Geometry, acc_bytes: int, a_shared: bool, b_shared: bool,
    flags: int, workers: int,
) -> tuple[int, ...]:  # fmt: skip
    """Iterations of the first two phases, bytes of scratch, then what the kernel is called with. `m`, `n`: in whole
    panels."""
    depth = _depth(k, geo)
    parts = max(1, -(-k // split))
    b_stays = bool(flags & _B_IN_PLACE)
    rows, cols = _block(m, n, depth, batch * parts, geo, workers, depth >= k and not geo.tiles)
    row_blocks, col_blocks = -(-m // rows), -(-n // cols)
    a_copies, b_copies = (1 if a_shared else batch), (1 if b_shared else batch)
    a_bytes = geo.height(m) * geo.words(k) * geo.word_bytes * a_copies
    b_bytes = geo.width(n) * geo.words(k) * geo.word_bytes * b_copies
    # An operand that few tasks use is packed by those tasks, while it is in their cache: in wide blocks that takes
    # vectors less time than to write and read it. For tiles, and where panels are narrow, it is more of the work.
    few = 4 if cols * geo.acc_bytes >= 2048 and geo.rows <= geo.cols and not geo.tiles else 2
    pack_a = col_blocks * batch // a_copies > few and a_bytes <= _PACK_LIMIT
    pack_b = row_blocks * batch // b_copies > 1 and b_bytes <= _PACK_LIMIT and not b_stays
    flags |= _PACKED_A * pack_a | _PACKED_B * pack_b

    b_at = align(a_bytes) if pack_a else 0
    partial_at = b_at + (align(b_bytes) if pack_b else 0)
    partials = parts * batch * geo.height(m) * geo.width(n) * acc_bytes if parts > 1 else 0
    worker_at = partial_at + align(partials)
    a_panels = 0 if pack_a else min(_PACK_PANELS * geo.rows, rows) * geo.words(depth) * geo.word_bytes
    b_block = 0 if pack_b else (geo.cols if b_stays else cols) * geo.words(depth) * geo.word_bytes
    strips = -(-rows // geo.rows) if k > depth else 1
    made_elsewhere = parts > 1 or flags & _SUMS_IN_PLACE
    accumulators = 0 if made_elsewhere else strips * geo.rows * (cols + 64 // acc_bytes) * acc_bytes
    worker_bytes = align(a_panels + b_block + accumulators)

    k_blocks = -(-k // depth)
    a_units = a_copies * k_blocks * -(-m // (_PACK_PANELS * geo.rows)) if pack_a else 0
    b_units = b_copies * k_blocks * -(-n // (_PACK_PANELS * geo.cols)) if pack_b else 0
    tasks = row_blocks * col_blocks * batch * parts
    return (
        a_units + b_units, tasks, worker_at + workers * worker_bytes,
        flags, rows, cols, depth, split, b_at, partial_at, worker_at, worker_bytes,
    )  # fmt: skip


def _is_thin(m: int, n: int) -> bool:
    """Whether there are few rows or columns. It does not compare these: that would decide nothing for large ones, and
    a plan for other sizes would depend on it."""
    return m <= _THIN or n <= _THIN


def _reads_in_place(m: int, n: int, k: int, a_strides: Strides | None, b_strides: Strides | None) -> bool:
    """Whether `thin` fits: whole vectors along a contiguous side of the large matrix."""
    strides = b_strides if m <= n else a_strides
    if strides is None:
        return False
    along_k, along_lines = strides if m <= n else (strides[1], strides[0])
    return (along_k == 1 and k >= 32) or (along_lines == 1 and max(m, n) >= 32)


def _thin_plan(thin: int, lines: int, k: int, batch: int, flags: int, acc_bytes: int, workers: int) -> GemmPlan:
    """Few rows or columns: each task reads a block of lines of the other operand, once, in place."""
    block = _thin_block(lines * batch, workers)
    worker_bytes = align(thin * (k + block) * acc_bytes)
    args = (flags, block, 0, max(k, 1), max(k, 1), 0, 0, 0, worker_bytes)
    return GemmPlan((("thin", batch * -(-lines // block)),) if batch * thin else (), workers * worker_bytes, args, thin)


@whole
def _thin_block(lines: int, workers: int) -> int:
    return max(16, min(1024, round_up(-(-lines // (4 * workers)), 16)))


def _split(m: int, n: int, k: int, batch: int, depth: int) -> int:
    """The k range of one partial sum. Few outputs with a long k are cut into up to 8 sums, by shape alone."""
    outputs = m * n * batch
    parts = min(8, k // 4096) if outputs <= 1 << 16 else 1
    return max(1, k) if parts < 2 else round_up(-(-k // parts), depth)


def _depth(k: int, geo: Geometry) -> int:
    """The k block: even parts of about 512 words, so that an A panel (14 x 512 x 4 bytes) stays in L1.

    Tiles eat words so fast that adding to sums in memory costs more than an A panel from L2: 1024 words.
    """
    unit = geo.group * geo.word_step
    most = (1024 if geo.tiles else 512) * geo.group * 4 // geo.word_bytes
    parts = max(1, -(-k // most))
    return max(unit, round_up(-(-k // parts), unit))


def _block(m: int, n: int, depth: int, batch: int, geo: Geometry, workers: int, one_strip: bool) -> tuple[int, int]:
    """Rows and columns of one task: a B block within L2, and enough tasks that no worker waits long for the last.
    `one_strip`: one strip of accumulators serves all rows."""
    words = geo.words(depth)
    most_cols = min(_L2_BYTES // (words * geo.word_bytes), 2048 // geo.acc_bytes)
    if geo.tiles and words >= 512:
        most_cols = min(most_cols, 256)
    wanted = 4 * workers if workers > 1 else 1
    many = batch >= 4 * workers
    tall = geo.rows > geo.cols  # A is the dearer operand to pack, once for each block of columns: keep those wide
    most_rows = (40 if many else 18) * geo.rows
    if geo.tiles or (workers == 1 and not tall):
        most_rows = _MOST_ROWS  # B is packed by the only task that reads it, and never goes through memory
    rows = even_block(m, most_rows, geo.rows)
    # Few rows stay one block, so that B is packed by the only task that reads it; all its accumulators are in L2, too.
    flat = not tall and m <= 20 * geo.rows
    if flat:
        rows = round_up(m, geo.rows)
        most_cols = most_cols if one_strip or (geo.tiles and most_cols <= 256) else most_cols // 2
    cols = even_block(n, max(geo.cols, most_cols), geo.cols)
    while not many and batch * -(-m // rows) * -(-n // cols) < wanted:
        cut_cols = flat and cols > 4 * geo.cols
        if not cut_cols and rows > (2 if tall else 4) * geo.rows and (tall or rows * 2 >= cols):
            rows = even_block(m, max(geo.rows, rows // 2), geo.rows)
        elif cols > 4 * geo.cols:
            cols = even_block(n, max(geo.cols, cols // 2), geo.cols)
        elif rows > geo.rows:
            rows = even_block(m, max(geo.rows, rows // 2), geo.rows)
        else:
            break
    return rows, cols


def even_block(total: int, most: int, unit: int) -> int:
    """The block size, a multiple of unit and about `most`, that cuts total into blocks of equal size."""
    parts = max(1, -(-total // most))
    return max(unit, round_up(-(-total // parts), unit))


def round_up(n: int, to: int) -> int:
    """n rounded up to a multiple of `to`."""
    return -(-n // to) * to


def align(n: int) -> int:
    """Bytes rounded up to whole cache lines."""
    return round_up(n, 64)
