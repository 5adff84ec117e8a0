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
from pyflame.kernels.tile_gpu import LAYER_EPILOGUE, may_read_early, out_struct, out_value, round_up, sums_of

THREADS = 256
MOST_ROWS = 16
MOST_DOTS = 4  # rows: to round more of them takes each block longer than to make floats of the weight
# Of integer dots: threads of a block, and bytes of LDS for x, for copies ahead and for partial sums.
MOST_THREADS = 512
CHUNK_BYTES, STAGED_BYTES, PARTS_BYTES = 39 << 10, 112 << 10, 8 << 10
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
    """A kernel file, the numbers of its template, the rows of the weight that a block has, its LDS in bytes, its
    threads, and LDS that the launch brings."""

    file: str
    numbers: str
    block: int
    lds: int = 0
    threads: int = THREADS
    dynamic_lds: int = 0


def _floats(few: Few, target: Target) -> Way:
    lanes = lanes_of(few.width, target)
    each = few.each(lanes, target)
    numbers = f"{few.taken}, {each}, {lanes}, {few.vector}, {int(few.biased)}, {THREADS}"
    return Way("encoded", numbers, each * THREADS // lanes)


def _dots(few: Few, target: Target) -> Way:
    wave, pairs, rows = target.wave_size, few.width // 32, few.taken
    copies = _staged_bytes(few, target, 1) > 0
    per = 2 if copies and rows == 1 and pairs > wave else 1  # pairs whose part of x lies in a lane's registers
    most = max(1, min(MOST_THREADS, CHUNK_BYTES // (1 if copies else 2) // (72 * per * rows)) // wave)
    waves = -(-pairs // (wave * per))
    deep = -(-waves // -(-waves // most))
    groups = max(1, (MOST_THREADS if copies else THREADS) // (deep * wave))  # of waves with lines of their own
    waves = groups * deep
    shares = target.workers * (1 if copies else max(1, BUSY // (waves * wave)))
    rounds = -(-few.out // (shares * (PARTS_BYTES // (4 * deep * rows))))
    share = max(groups, -(-few.out // (shares * rounds)))
    room = min(STAGED_BYTES, target.lds_bytes - CHUNK_BYTES - PARTS_BYTES) // waves if copies else -1
    staged = {n: round_up(n * _staged_bytes(few, target, per), 16) for n in (2, 3, 6)}
    shapes = (
        (n, stages) for n, stages in ((2, 3), (1, 3), (1, 2)) if n * groups <= share and staged[n * stages] <= room
    )
    each, stages = next(shapes, (1, 0))
    turns = -(-share // (groups * each))
    flags = f"{int(few.biased)}, {int(few.normed)}, {int(few.early)}"
    numbers = f"{rows}, {per}, {deep}, {each}, {turns}, {stages}, {few.vector}, {flags}, {waves * wave}"
    lines = turns * groups * each
    lds = rows * (per * (72 * deep * wave + 64) + 4 * (deep * lines + waves))
    return Way("encoded_dots", numbers, lines, lds, waves * wave, waves * staged[each * stages] if stages else 0)


def _staged_bytes(few: Few, target: Target, per: int) -> int:
    """The bytes that a wave copies of a line in a turn; 0 where they are no whole pieces of 8, or nothing can."""
    nbytes = target.wave_size * per * 32 // few.kind.block * few.kind.nbytes
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
    chosen = way(few, target)
    alignment = [
        few.vector * size,
        16 if chosen.dynamic_lds else alignment_of(few.kind) if aligned else 1,
        *[size * (few.vector if normed else 1)] * len(rest),
    ]
    giving = [epilogue.text.rstrip(), *out_struct(epilogue, sums_of(x.dtype), names, own)]
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
    lds, room = chosen.lds, chosen.dynamic_lds
    made.add("_0", grid, chosen.threads, [*args, *epilogue.args], body, lds, room, alone=room > 0, awaits=early)
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
