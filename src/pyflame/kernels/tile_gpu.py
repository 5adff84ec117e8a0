"""Host side of pf_tile.h: types and tiles of GPU GEMM and convolution, and the text around matmul.hip and conv.hip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.errors import CompileError
from pyflame.core.shape import magic
from pyflame.core.traced import whole as called_whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.ctype import loaded
from pyflame.kernels.gpu_source import GpuFunctions
from pyflame.kernels.spec import Epilogue, EpilogueSlot

FINISH_BLOCK = 256
MANY_PARTS, _SHARE = 16, 8  # of an output, from which on so many threads add them
PARTS_WIDTH = 4  # partial sums that are written at once: 16 bytes
MAX_PARTS = 32  # of kernels whose blocks have a few results each
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # that k may be cut into for tiles
_ROUNDS = 4  # or into as many as fill all compute units up to so many times
LEAST_SIDE = 16  # what sides of tiles are multiples of: in between all products are cut alike
_LARGEST = 1 << 31  # extents are ints in the kernels
VARIANTS = 4  # blocks that are timed where there is a GPU
TIMED = 1 << 26  # flops of a launch from which on that is worth it
BUSY = 512  # threads with which a compute unit reaches its pace
_LAUNCH = 4000  # clocks that one more launch costs


@dataclass(frozen=True)
class Sums:
    """The C types of a dtype's sums: as they are added, as an epilogue sees them, and their size."""

    sum: str
    value: str
    nbytes: int


# Integers are added without sign, since only those may wrap; small ones in 32 bits, and wrap when they are stored.
_SUMS = {"float64": Sums("double", "double", 8), "int64": Sums("uint64_t", "int64_t", 8)}


def sums_of(dtype: DType) -> Sums:
    """How products of this dtype are added.

    >>> from pyflame.core.dtype import float16, int8
    >>> sums_of(float16).sum, sums_of(int8).sum
    ('float', 'uint32_t')
    """
    return _SUMS.get(dtype.name, Sums("float", "float", 4) if dtype.is_float else Sums("uint32_t", "int32_t", 4))


def value_type(launch: Launch) -> str:
    """The C type in which an epilogue gets a result."""
    return sums_of(launch.operands[0].dtype).value


# Behind linear layers: rows are all axes but the last, and lines of the weight are that.
LAYER_EPILOGUE = EpilogueSlot(lambda launch: (0, len(launch.kernel.loops[0]) - 1), value_type, 0)


class Tiling(Protocol):
    """A block's tile of outputs, and the k of one step. `cluster`: blocks that share a part of the tile's k."""

    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def cluster(self) -> int: ...
    def clocks(self, k: int, rounds: int) -> float:
        """About how long a compute unit needs for so many blocks, each over so much of k. Only ratios matter."""


T = TypeVar("T", bound=Tiling)


@dataclass(frozen=True)
class Tile:
    """A Tiling of pf_tile.h: `high` x `wide` outputs for each thread; `pace`: multiply-adds in a clock at best."""

    rows: int
    cols: int
    depth: int
    high: int
    wide: int
    pace: float
    cluster: int = 1

    @property
    def threads(self) -> int:
        return self.rows // self.high * (self.cols // self.wide)

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.cols}"

    def clocks(self, k: int, rounds: int) -> float:
        return rounds * self.rows * self.cols * (k + 64) / (self.pace * min(1.0, rounds * self.threads / BUSY))

    def lds_bytes(self, nbytes: int) -> int:
        """Two steps of both operands, lines padded by 16 bytes."""
        return 2 * self.depth * ((self.rows + self.cols) * nbytes + 32)

    def defines(self) -> dict[str, int]:
        return {
            "ROWS": self.rows, "COLS": self.cols, "DEPTH": self.depth, "HIGH": self.high, "WIDE": self.wide,
            "THREADS": self.threads,
        }  # fmt: skip


TILES = {
    4: (Tile(128, 128, 8, 8, 8, 100), Tile(64, 64, 16, 4, 4, 70), Tile(32, 32, 16, 4, 4, 50)),
    8: (Tile(64, 64, 8, 4, 4, 40), Tile(32, 32, 8, 4, 4, 25)),
}


@dataclass(frozen=True)
class Cut(Generic[T]):
    """A tile and how k is cut: `parts` partial sums, each over `split` of it for every block of a cluster.

    `halves`: of how many tiles, the last ones, each half is a block of its own.
    """

    tile: T
    parts: int
    split: int
    halves: int = 0

    def __str__(self) -> str:
        more = f" in {self.parts} parts" if self.parts > 1 else ", the last in halves" if self.halves else ""
        return self.tile.label + more


def choose_cut(m: int, n: int, k: int, batch: int, nbytes: int, workers: int, whole: bool = False) -> Cut[Tile]:
    """The tile of pf_tile.h and the cut of k for sums of `nbytes`.

    >>> choose_cut(4096, 4096, 4096, 1, 4, 304).tile.rows, choose_cut(64, 64, 1 << 16, 1, 4, 304).parts
    (128, 256)
    """
    return best_cut(0, TILES[nbytes], m, n, k, batch, nbytes, workers, whole)


def choose_tile(tiles: Sequence[T], m: int, n: int, k: int, batch: int, workers: int) -> T:
    """The tile that should take the least time if k is not cut."""
    rounds = {tile: -(-(-(-m // tile.rows) * -(-n // tile.cols) * batch) // workers) for tile in tiles}
    return min(tiles, key=lambda tile: tile.clocks(k, rounds[tile]))


def best_cuts(
    tiles: tuple[T, ...], m: int, n: int, k: int, batch: int, nbytes: int, workers: int, whole: bool = False
) -> tuple[Cut[T], ...]:
    """For each tile the cut of k that should take the least time, the fastest first. nbytes: of a sum.

    `whole`: k is not cut.
    """
    return tuple([best_cut(at, tiles, m, n, k, batch, nbytes, workers, whole) for at in range(len(tiles))])


def best_cut(
    at: int, tiles: tuple[T, ...], m: int, n: int, k: int, batch: int, nbytes: int, workers: int, whole: bool = False
) -> Cut[T]:
    """That of `best_cuts` which stands at this place. All that a trace notes of it is the tile."""
    tile, parts, split = _ranked_at(at, tiles, m, n, k, batch, nbytes, workers, whole)
    return Cut(tiles[tile], parts, split)


@lru_cache(maxsize=1024)
def _ranked(
    tiles: tuple[T, ...], m: int, n: int, k: int, batch: int, nbytes: int, workers: int, whole: bool
) -> list[tuple[int, int, int]]:
    """Of each cut the number of its tile, the parts and the split."""
    found: list[tuple[float, int, Cut[T]]] = []
    for number, tile in enumerate(tiles):
        blocks = -(-m // tile.rows) * -(-n // tile.cols) * batch * tile.cluster
        # Where there are blocks for all, cutting k only adds work. The blocks of a cluster share a part.
        few = blocks < 2 * workers and not whole
        most = min(8 * workers // blocks, k // (8 * tile.depth * tile.cluster)) if few else 1
        filling = {min(rounds * workers // blocks, _PARTS[-1]) for rounds in range(1, _ROUNDS + 1)}
        splits = [
            round_up(-(-k // (parts * tile.cluster)), tile.depth)
            for parts in sorted({*_PARTS, *filling})
            if 0 < parts <= max(1, most)
        ]
        cuts = [Cut(tile, -(-k // (split * tile.cluster)), split) for split in splits]
        timed = [(_clocks(cut, blocks * cut.parts, m * n * batch * nbytes, workers), number, cut) for cut in cuts]
        found.append(min(timed, key=lambda t: t[0]))
    return [(number, cut.parts, cut.split) for _, number, cut in sorted(found, key=lambda t: t[0])]


@called_whole
def _ranked_at(at: int, tiles: tuple[T, ...], m: int, n: int, *rest: Any) -> tuple[int, int, int]:
    return _ranked(tiles, round_up(m, LEAST_SIDE), round_up(n, LEAST_SIDE), *rest)[at]


def _clocks(cut: Cut[T], blocks: int, result_bytes: int, workers: int) -> float:
    """About how long a product takes, partial sums and the launch that adds them included."""
    took = cut.tile.clocks(cut.split, -(-blocks // workers))
    return took + (_LAUNCH + 2 * cut.parts * result_bytes / (16 * workers) if cut.parts > 1 else 0)


def round_up(n: int, to: int) -> int:
    """n rounded up to a multiple of `to`."""
    return -(-n // to) * to


# --- text -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhaseText:
    """One kernel: what it calls with `arg` and, where `stores`, with `out`, which takes results."""

    grid: int
    block: int
    args: tuple[int, ...]
    body: str
    stores: bool
    lds_bytes: int = 0
    dynamic_lds: int = 0
    cluster: int = 1  # blocks that run together
    awaits: bool = False  # as GpuFunctions.add's


def finish_phase(
    m: int, n: int, batch: int, parts: int, sums: Sums, out: str = "out", before: str = "", more: tuple[int, ...] = ()
) -> PhaseText:
    """The launch that adds up partial sums. out: what takes results, which `before` declares; more: its arguments."""
    outputs = m * n * batch
    args = (outputs, parts, m, magic(m), n, magic(n), *more)
    call = f"{before}pf_finish<{sums.sum}", f"scratch, arg, {out}"
    return adding_phase(*call, outputs, parts, sums.nbytes, args)


def adding_phase(
    template: str, given: str, outputs: int, parts: int, sum_bytes: int, args: tuple[int, ...]
) -> PhaseText:
    """The launch of a template that adds so many parts of each output; `template`: up to its number of threads."""
    share = _SHARE if parts >= MANY_PARTS else 1
    grid, lds = -(-outputs * share // FINISH_BLOCK), FINISH_BLOCK * sum_bytes if share > 1 else 0
    body = f"{template}, {FINISH_BLOCK}, {share}>({given});"
    return PhaseText(grid, FINISH_BLOCK, args, body, stores=True, lds_bytes=lds)


def partial_out(m: str, n: str, sums: Sums) -> str:
    """What takes partial sums, as an expression; m and n are those of the result."""
    return f"pf_partial<{sums.sum}>{{({sums.sum} *)scratch, {m}, {n}}}"


def gpu_source(
    file: str,
    launch: Launch,
    kind: dict[str, int],
    types: dict[str, str],
    phases: Sequence[PhaseText],
    epilogue: Epilogue,
    alignment: Sequence[int],
    scratch_bytes: int = 0,
    functions_of_kind: Sequence[str] = (),
    preamble: str = "",
) -> GpuSource:
    """The kernels of a launch.

    `kind`, `types`, `functions_of_kind`: what templates want to know at compile time, from `preamble` too.
    """
    dtype, count = launch.operands[0].dtype, len(launch.buffers)
    sums = sums_of(dtype)
    buffers = [f"b{n}" for n in range(count)]
    own = [f"e{n}" for n in range(len(epilogue.args))]
    types = {"stored": storage(dtype), "sum": sums.sum, **types}
    lines = [
        f'#include "{file}"',
        *([preamble] if preamble else []),
        *_kind(dtype, kind, types, functions_of_kind),
        epilogue.text.rstrip(),
        *out_struct(epilogue, sums, buffers, own),
    ]
    given = [f"const {storage(v.dtype)}" for v in launch.operands]
    vectors = kind.get("OUT_WIDTH", 1) > 1 and phases[0].stores
    asked = epilogue.alignment if vectors else (1,) * count
    functions = GpuFunctions(
        file,
        [*given, *["char"] * (count - len(given))],
        [max(pair) for pair in zip([*alignment, *[1] * (count - len(alignment))], asked, strict=True)],
    )
    bodies = list(dict.fromkeys(phase.body for phase in phases))
    for phase in phases:
        args, body = phase.args, phase.body
        if phase.stores:
            args, body = (*args, *epilogue.args), f"{out_value(buffers, len(args), len(own))}\n  {body}"
        functions.add(
            f"_{bodies.index(phase.body)}", phase.grid, phase.block, args, body, phase.lds_bytes, phase.dynamic_lds,
            phase.cluster, awaits=phase.awaits,
        )  # fmt: skip
    made = functions.source(scratch_bytes)
    return replace(made, text="\n".join(lines) + "\n" + made.text)


def _kind(dtype: DType, kind: dict[str, int], types: dict[str, str], functions: Sequence[str]) -> list[str]:
    """PF_KEY_kind: what templates want to know at compile time."""
    return [
        "struct PF_KEY_kind {",
        *(f"  typedef {c_type} {name};" for name, c_type in types.items()),
        f"  PF_FN sum load(stored x) {{ return (sum){loaded(dtype, 'x')}; }}",
        *(f"  {line}" for line in functions),
        f"  enum {{ {', '.join(f'{name} = {value}' for name, value in kind.items())} }};",
        "};",
    ]


def out_struct(epilogue: Epilogue, sums: Sums, buffers: Sequence[str], own: Sequence[str]) -> list[str]:
    """PF_KEY_out: gives results to the epilogue."""
    return [
        "struct PF_KEY_out {",
        f"  pf_pointer {', '.join(buffers)};",
        "  const pf_word *uni;",
        *(f"  int64_t {name};" for name in own),
        f"  PF_MEMBER void operator()(int64_t batch, int64_t i, int64_t j, {sums.sum} sum) const {{",
        f"    PF_KEY_epilogue({', '.join([*buffers, 'uni', *own, 'batch', 'i', 'j'])}, ({sums.value})sum);",
        "  }",
        *_several(epilogue, sums, [*buffers, "uni", *own]),
        "};",
    ]


def out_value(buffers: Sequence[str], first: int, count: int) -> str:
    """The declaration of `out`, a PF_KEY_out; the epilogue's own arguments are `count` words from number `first` on."""
    words = [f"a{first + n}" for n in range(count)]
    fields = ", ".join([*(f"{{(char *){b}}}" for b in buffers), "uni", *words])
    return f"const PF_KEY_out out = {{{fields}}};"


def _several(epilogue: Epilogue, sums: Sums, given: Sequence[str]) -> list[str]:
    """The member that takes several results at once."""
    if epilogue.width == 1:
        return []
    head = f"  PF_MEMBER void several(int64_t batch, int64_t i, int64_t j, const {sums.sum} *sums) const {{"
    call = f"    PF_KEY_epilogues({', '.join([*given, 'batch', 'i', 'j'])}, (const {sums.value} *)sums);"
    return [head, call, "  }"]


def may_read_early(launch: Launch, target: Target, buffer: int) -> bool:
    """Whether a kernel may ask for what lies in a buffer while launches before it run, where they may overlap."""
    return target.language == "cuda" and buffer in launch.unwritten


def late_args(launch: Launch) -> str:
    """A phase's arguments for kernels that have many: not loaded before they are needed."""
    return f"PF_LATE_ARGS(arg, {len(launch.buffers) + 3})"


def check_extents(op: str, extents: Sequence[int]) -> None:
    """Kernels count in 32 bits, with room for one step beyond the end."""
    if any(extent >= _LARGEST - 1024 for extent in extents):
        raise CompileError(f"[{op}] expected extents below 2^31 but got {max(extents)}; split the tensor")
