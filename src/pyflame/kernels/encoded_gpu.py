"""Launches of encoded.hip and encoded_dots.hip: encoded_linear of 1 to 16 rows, which reads the weight once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.dtype import DType, bfloat16, float16, float32
from pyflame.core.encoding import Encoding, encoding
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.dequantize_gpu import PIECE, alignment_of, decoder
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element, float_bits
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import LAYER_EPILOGUE, may_read_early, out_struct, out_value, sums_of

THREADS = 256
MOST_ROWS = 16
MOST_DOTS = 4  # rows: to round more of them takes each block longer than to make floats of the weight
LDS_BYTES = 48 << 10  # that a text may declare everywhere
BUSY = 1024  # threads that keep a compute unit busy


def _takes(node: Node, target: Target) -> float:
    x, data = node.srcs[:2]
    fits = x.dtype in (float32, float16, bfloat16) and 1 <= prod(x.shape[:-1]) <= MOST_ROWS
    whole = x.shape[-1] and x.shape[-1] % PIECE == 0
    return 1.0 if fits and whole and 0 < data.shape[0] * target.wave_size < SMALL else 0.0


def lanes_of(width: int, target: Target) -> int:
    """Lanes for a row of the weight, so that each has two pieces at least where there are as many."""
    return min(target.wave_size, power(-(-width // (2 * PIECE))))


@dataclass(frozen=True)
class Few:
    """An encoded_linear of few rows: a kernel is compiled for `taken` of them, and for `each` rows of the weight."""

    kind: Encoding
    dtype: DType
    rows: int
    out: int
    width: int
    row_bytes: int
    biased: bool
    normed: bool
    early: bool
    aligned: bool

    @property
    def taken(self) -> int:
        return power(self.rows)

    @property
    def vector(self) -> int:
        return 16 // self.dtype.itemsize if self.aligned else 1

    def each(self, lanes: int, target: Target) -> int:
        """Rows of the weight that so many lanes have: two where all compute units are busy then."""
        return 2 if self.out * lanes >= 2 * target.workers * BUSY else 1


class Way(NamedTuple):
    """A kernel file, the numbers of its template, the rows of the weight that a block has, its LDS in bytes, and its
    threads."""

    file: str
    numbers: str
    block: int
    lds: int = 0
    threads: int = THREADS


def _floats(few: Few, target: Target) -> Way:
    lanes = lanes_of(few.width, target)
    each = few.each(lanes, target)
    numbers = f"{few.taken}, {each}, {lanes}, {few.vector}, {int(few.biased)}, {THREADS}"
    return Way("encoded", numbers, each * THREADS // lanes)


def _dots(few: Few, target: Target) -> Way:
    staged, alone = _staged_bytes(few, target), few.each(target.wave_size, target) == 1
    shapes = [(THREADS, 4096 if few.taken <= 2 else 2048)]
    if staged and alone and few.taken == 1:  # few lines: larger blocks round x less often
        shapes[:0] = [(2 * THREADS, 8192)] * (few.width > 4096) + [(2 * THREADS, 4096)]
    for threads, chunk in shapes:
        waves, planes = threads // target.wave_size, few.taken * chunk * (11 if few.normed else 10) // 4
        row = waves * staged
        each = 4 if row and few.out >= 12 * waves * target.workers else few.each(target.wave_size, target)
        each = next((n for n in (each, 2, 1) if planes + 2 * n * row <= LDS_BYTES), 1)
        stage = each * row
        stages = next((n for n in (3, 2) if stage and planes + n * stage <= LDS_BYTES), 0)
        if stages == 3:
            break
    flags = f"{int(few.biased)}, {int(few.normed)}, {int(few.early)}"
    numbers = f"{few.taken}, {each}, {chunk}, {stages}, {few.vector}, {flags}, {threads}"
    return Way("encoded_dots", numbers, each * waves, planes + stages * stage + 16 * (not stages), threads)


def _staged_bytes(few: Few, target: Target) -> int:
    """The bytes that a wave copies of a row in a turn; 0 where they are no whole pieces of 8, or nothing can."""
    nbytes = target.wave_size * 32 // few.kind.block * few.kind.nbytes
    whole = few.aligned and nbytes % 8 == 0 and few.row_bytes % 16 == 0
    return nbytes if whole and target.matrix_core in ("mma", "wgmma") else 0


def encoded_source(
    launch: Launch,
    target: Target,
    epilogue: Epilogue | None,
    aligned: bool = True,
    way: Callable[[Few, Target], Way] = _floats,
) -> GpuSource:
    """The text and arguments of one encoded_linear, or of a norm_linear with an encoded weight."""
    anchor = launch.kernel.anchor
    assert anchor is not None and epilogue is not None
    x, data, *rest = anchor.srcs
    name, width, _, *eps = anchor.attrs
    biased, normed = bool(rest) and not eps, bool(eps)
    rows, (out, row_bytes) = prod(x.shape[:-1]), data.shape
    early = way is _dots and may_read_early(launch, target, 1)
    few = Few(encoding(name), x.dtype, rows, out, width, row_bytes, biased, normed, early, aligned)
    names, own = [f"b{n}" for n in range(len(launch.buffers))], [f"e{n}" for n in range(len(epilogue.args))]
    given = [f"const {storage(v.dtype)}" for v in anchor.srcs]
    others, size = len(names) - len(given), x.dtype.itemsize
    staged = bool(_staged_bytes(few, target)) and way is _dots
    alignment = [
        few.vector * size,
        16 if staged else alignment_of(few.kind) if aligned else 1,
        *[size * (few.vector if normed else 1)] * len(rest),
    ]
    giving = [epilogue.text.rstrip(), *out_struct(epilogue, sums_of(x.dtype), names, own)]
    chosen = way(few, target)
    made = GpuFunctions(
        f"{chosen.file}.hip",
        [*given, *["char"] * others],
        [*alignment, *[1] * others],
        (f"pf_{chosen.file}",),
        "\n".join([decoder(few.kind, aligned), *giving]),
    )
    args = [few.rows, few.out, width, few.row_bytes, *float_bits(*eps)]
    kinds = f"{element(x.dtype)}, PF_KEY_decoder"
    operands = f"b0, b1, b{2 if biased else 0}, arg, out{', b2' if normed else ''}"
    call = f"pf_encoded_linear<{kinds}, {chosen.numbers}>({operands});"
    body = f"{out_value(names, len(args), len(own))}\n  {call}"
    grid = -(-few.out // chosen.block)
    made.add("_0", grid, chosen.threads, [*args, *epilogue.args], body, chosen.lds, awaits=early)
    return made.source()


def _takes_dots(node: Node, target: Target) -> float:
    """Scaled integers, times x that may be rounded to 16 bits, or has no more."""
    x, (name, _, bits) = node.srcs[0], node.attrs[:3]
    whole = x.shape[-1] % 32 == 0 and prod(x.shape[:-1]) <= MOST_DOTS
    rounded = bits <= 16 or x.dtype.itemsize == 2
    return 2.0 * _takes(node, target) * bool(whole and rounded and encoding(name).pair)


def _takes_norm(node: Node, target: Target) -> float:
    return 0.0 if node.attrs[0] is None else _takes_dots(node, target)


_spec = KernelSpec(
    "encoded_linear",
    "encoded_gpu",
    encoded_source,
    languages=("hip", "cuda"),
    why="reads the encoded weight once, for few rows",
    epilogue=LAYER_EPILOGUE,
    unaligned=partial(encoded_source, aligned=False),
    prior=_takes,
)
kernel(_spec)
_dots_spec = replace(
    _spec,
    name="encoded_dots",
    source=partial(encoded_source, way=_dots),
    why="reads the encoded weight once, for few rows, by integer dots",
    unaligned=partial(encoded_source, aligned=False, way=_dots),
    prior=_takes_dots,
)
kernel(_dots_spec)
kernel(replace(_dots_spec, op="norm_linear", prior=_takes_norm))
