"""Launches of sort.hip: tiles in LDS for short rows and for few of many, radix passes for long rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pyflame.core.device import Target
from pyflame.core.errors import CompileError
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element, position_type, with_magic
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

TILE = 4096  # items that one block sorts; of 12 bytes at most, they fit in 48 KiB
LEAST_ROOM = 1024  # items of a block that sorts short rows
MAX_BLOCK = 512
KEPT_SHARE = 4  # few of many: a tile keeps at most one in so many
RADIX_BLOCK, RADIX_TILE, VALUES = 256, 4096, 256  # as in sort.hip
FEW = 32  # tiles of a row whose counts a thread adds up alone


@dataclass(frozen=True)
class Sorting:
    """Rows to be sorted: the template type of their keys, its bytes and those that matter, and where things lie."""

    key: str
    key_bytes: int
    used_bytes: int
    rows: int
    length: int
    take: int
    source: str = "b0"  # an expression for the elements
    found: int = -1  # where in scratch the positions go, as int64_t; -1: to the second buffer
    scratch: int = 0  # first byte of scratch that is free

    def target(self, arg: int) -> str:
        """An expression for where positions go, which argument number `arg` says."""
        return "b1" if self.found < 0 else f"(int64_t *)(scratch + arg[{arg}])"

    @property
    def held_bytes(self) -> int:
        """Of a key in LDS and in what tiles keep."""
        return max(4, self.key_bytes)


def sort_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and arguments of one argsort or top-k of the last axis."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    take, descending = anchor.attrs
    (source,) = anchor.srcs
    dtype = source.dtype
    made = GpuFunctions("sort.hip", [f"const {storage(dtype)}", "int64_t"], [dtype.itemsize, 8], ("pf_sorting",))
    key = f"pf_ordered<{element(dtype)}, {int(descending)}>"
    length, rows = source.shape[-1], prod(source.shape[:-1])
    return made.source(sort_rows(made, Sorting(key, dtype.itemsize, dtype.itemsize, rows, length, take), target))


def sort_rows(made: GpuFunctions, s: Sorting, target: Target) -> int:
    """Add the functions that sort rows; gives where the scratch they use ends."""
    if s.length >= SMALL:
        raise CompileError(f"[sort] expected rows of fewer than 2**31 elements but got {s.length}; sort parts of it")
    if s.rows * s.take == 0:
        return s.scratch
    if s.length <= TILE or s.take <= TILE // KEPT_SHARE:
        return _tiles(made, s, target)
    return _radix(made, s, target)


def _tiles(made: GpuFunctions, s: Sorting, target: Target) -> int:
    """Each pass leaves the first `take` of every piece, until a row is one piece."""
    held = "uint64_t" if s.key_bytes == 8 else "uint32_t"
    length, end, number, kept = s.length, s.scratch, 0, (0, 0)
    while True:
        size = min(TILE, max(2, power(length)))
        room = max(size, min(LEAST_ROOM, power(s.rows * size)), 2 * target.wave_size)
        block = min(room // 2, MAX_BLOCK)
        pieces = -(-length // size)
        tasks = s.rows * pieces
        last = pieces == 1
        keys = _rounded(end)
        positions = keys + tasks * s.take * s.held_bytes
        # Behind the five arguments of sort.hip: where items are read and where they are written, in scratch.
        args = [s.rows, length, s.take, *with_magic([pieces]), *kept, keys, positions, s.found]
        given = f"(const {s.key}::stored *)(scratch + arg[5]), (const uint32_t *)(scratch + arg[6])"
        read = given if number else f"{s.source}, 0"
        out = f"{s.target(9)}, 0, 0" if last else f"0, ({held} *)(scratch + arg[7]), (uint32_t *)(scratch + arg[8])"
        index = position_type(tasks + room)
        types = f"{s.key}, {size}, {room}, {block}, {int(number > 0)}, {int(not last)}, {index}"
        call = f"pf_sort_tiles<{types}>({read}, {out}, arg);"
        made.add(f"_sort{number}", -(-tasks * size // room), block, args, call, room * (s.held_bytes + 4))
        if last:
            return end
        end = positions + tasks * s.take * 4
        length, number, kept = pieces * s.take, number + 1, (keys, positions)


def _radix(made: GpuFunctions, s: Sorting, target: Target) -> int:
    """Three launches for each byte of the key; items go to and fro between two places in scratch."""
    tiles = -(-s.length // RADIX_TILE)
    blocks = s.rows * tiles
    waves = 4 * RADIX_BLOCK // target.wave_size  # a word for each
    index, bits = position_type(blocks), f"uint{8 * s.key_bytes}_t"
    items = s.rows * s.length
    positions_at = _rounded(items * s.key_bytes)  # behind the keys, which an odd number of leaves misaligned
    size = _rounded(positions_at + items * 4)
    places = [_rounded(s.scratch) + n * size for n in range(min(2, s.used_bytes - 1))]
    counts = _rounded(s.scratch) + len(places) * size
    sums = counts + 4 * VALUES * blocks
    keys, positions = f"(const {bits} *)(scratch + arg[8])", "(const uint32_t *)(scratch + arg[9])"
    keys_out, positions_out = f"({bits} *)(scratch + arg[10])", "(uint32_t *)(scratch + arg[11])"
    tables = "(uint32_t *)(scratch + arg[6]), (uint32_t *)(scratch + arg[7])"
    for byte in range(s.used_bytes):
        first, last = byte == 0, byte == s.used_bytes - 1
        way = [0 if first else places[(byte - 1) % 2], 0 if last else places[byte % 2]]
        where = [n for start in way for n in (start, start + positions_at)]
        args = [s.rows, s.length, s.take, *with_magic([tiles]), 8 * byte, counts, sums, *where, s.found]
        end = "_first" * first + "_last" * last
        given = f"{s.source}, {keys}, (uint32_t *)(scratch + arg[6]), arg"
        call = f"pf_radix_count<{s.key}, {int(first)}, {index}>({given});"
        made.add(f"_count{'_first' * first}", blocks, RADIX_BLOCK, args, call, 4 * VALUES)
        few = tiles <= FEW
        call = f"pf_radix_sum{'_few' * few}({tables}, arg);"
        made.add("_sum", s.rows * (1 if few else VALUES), RADIX_BLOCK, args, call, 2 * waves)
        types = f"{s.key}, {int(first)}, {int(last)}, {index}"
        given = f"{s.source}, {keys}, {positions}, {keys_out}, {positions_out}, {s.target(12)}, {tables}, arg"
        call = f"pf_radix_move<{types}>({given});"
        made.add(f"_move{end}", blocks, RADIX_BLOCK, args, call, waves * (VALUES + 1))
    return sums + 4 * VALUES * s.rows


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


kernel(
    KernelSpec(
        "sort_positions",
        "sort_gpu",
        sort_source,
        languages=("hip", "cuda"),
        why="tiles in LDS, radix sort of long rows",
    )
)
