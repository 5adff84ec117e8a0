"""Host side of attention_async.hip: attention of 16-bit numbers by Hopper's wgmma.

Launches and arguments are those of attention_gpu.py, but the gradients take two launches: queries, then keys and values
at once. Lines that lie in no aligned pieces of 16 bytes go the way of attention_mma_gpu.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyflame.core.device import Target
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels import attention_gpu, attention_mma_gpu
from pyflame.kernels.attention import AttentionLaunch, AttentionShape, attention_prior, both_passes, strides_of
from pyflame.kernels.attention_gpu import Call, Way, attention_text, tiles_of, vectors, ways
from pyflame.kernels.gpu_source import element
from pyflame.kernels.spec import Epilogue, KernelSpec
from pyflame.kernels.tile_gpu import round_up

WIDEST = 256  # numbers of a line: registers hold 64 lines of a result,
WIDEST_WITH_MORE = 128  # or of two, or a mask beside one
_SLICE, _PANEL = 16, 64  # numbers of a slice of k, and of a panel of lines in LDS
_PIECE = 8  # numbers of an aligned piece
_OWN, _THREADS = 128, 384  # lines of a block and its threads
_KNOWN_BYTES = 8  # pf_query_known
_BARRIER_BYTES = 16  # of a place in LDS
_EVEN = 85  # percent of the time that blocks are busy at least, where each gets its tiles beforehand
_FEW = 1024  # keys that queries see at most, where a block for several tiles was faster than one for each on an H200
_FAR = 1 << 31  # strides in bytes are ints


@dataclass(frozen=True)
class Block:
    """Lines of the other side in a turn, and turns in LDS."""

    others: int
    stages: int

    def lds_bytes(self, shape: AttentionShape, way: Way, many: bool) -> int:
        """As LDS_PIECES of pf_attending_async."""
        x, y = (2 * _PANEL * _panels(n) for n in (shape.depth, shape.width))
        own = _OWN * (x + (way.name == "PF_SLOPES") * (1 + (many and not way.turned)) * y) + many * _BARRIER_BYTES
        turn = self.others * (x + y + way.turned * _KNOWN_BYTES) + 2 * _BARRIER_BYTES
        return own + self.stages * turn


def _panels(numbers: int) -> int:
    """Of 64 numbers, for which there are instructions."""
    return next(n for n in (1, 2, 4) if numbers <= n * _PANEL)


def block_of(way: Way, shape: AttentionShape) -> Block:
    """As many lines as registers allow, and as many turns as are faster than fewer on an H200."""
    if way.name == "PF_SLOPES":
        return Block(64, 2 if way.turned else 4)
    if max(shape.depth, shape.width) > WIDEST_WITH_MORE:
        return Block(64, 2)
    return Block(64, 3) if shape.masked else Block(128, 2)


def shared_out(made: AttentionLaunch, way: Way, workers: int) -> tuple[int, int, int]:
    """Tiles of own lines, blocks that take them, and how many tiles one takes together.

    Where tiles see few of the others, a block for each compute unit takes one after the other. Where they see more or
    less (causal), one with much and one with little go together. Where that leaves compute units idle, and where tiles
    see many or nobody knows how many, each gets a block, which begins when another one has ended.
    """
    tiles = tiles_of(made, way, _OWN)
    low, high = made.band
    few = way.turned or min(made.shape.keys, high - low + _OWN) <= _FEW
    if made.spans is not None or not few:
        return tiles, tiles, 1
    if made.low is None and made.high is None:
        return tiles, min(tiles, workers), 1
    pairs = -(-tiles // 2)
    even = 100 * pairs >= _EVEN * round_up(pairs, workers)
    return (tiles, min(pairs, workers), 2) if even else (tiles, tiles, 1)


def _ways(made: AttentionLaunch) -> list[Way]:
    if made.g is None or made.out is None:
        return ways(made)
    depth, query, key, value, g = made.shape.depth, made.query, made.key, made.value, made.g
    return [
        Way("PF_SLOPES", "_query", False, depth, (0,), query, key, made.out, g, value),
        Way("PF_SLOPES", "_keys", True, depth, (1, 2), key, query, query, value, g),
    ]


def attention_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and launches of one attention or its gradient."""
    made = AttentionLaunch.of(launch)
    if not vectors(launch, made, _PIECE) or _far(made):
        return _others_source(launch, target, epilogue)
    shape, dtype = made.shape, made.query.dtype
    kind = attention_mma_gpu.tile_kind(target, dtype)
    assert kind is not None
    tile = f"{element(dtype)}, {kind.name}"

    def call(way: Way) -> Call:
        block = block_of(way, shape)
        shares = shared_out(made, way, target.workers)
        many = shares[1] < shares[0]
        slices = (-(-n // _SLICE) for n in (shape.depth, shape.width))
        kinds = int(way.turned), made.mask_kind, made.span_kind, int(many)
        numbers = *slices, block.others, block.stages, way.name, *kinds
        template = f"pf_attend_async<pf_attention_async_of<{tile}, {', '.join(map(str, numbers))}>>"
        lds_bytes = block.lds_bytes(shape, way, many)
        return Call(way, template, _OWN, _THREADS, 0, lds_bytes, alone=True, shared_out=shares)

    calls = map(call, _ways(made))
    known_bytes = _KNOWN_BYTES * round_up(shape.queries, _OWN)
    return attention_text("attention_async.hip", launch, made, _PIECE, calls, known_bytes)


def _others_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """What takes lines that lie otherwise."""
    shape = AttentionLaunch.of(launch).shape
    if max(shape.depth, shape.width) <= attention_mma_gpu.WIDEST:
        return attention_mma_gpu.attention_source(launch, target, epilogue, aligned)
    return attention_gpu.attention_source(launch, target, epilogue, aligned)


def _far(made: AttentionLaunch) -> bool:
    views = [v for v in (made.query, made.key, made.value, made.g, made.out, made.mask) if v is not None]
    return any(abs(step) * v.dtype.itemsize >= _FAR for v in views for step in strides_of(v)[2:])


def _prior(node: Node, target: Target) -> float:
    """More than attention_mma.hip's for lines that registers hold. The largest score is found before it is scaled."""
    made = AttentionLaunch.of_node(node)
    shape, dtype = made.shape, made.query.dtype
    widest = WIDEST_WITH_MORE if made.g is not None or shape.masked else WIDEST
    fits = max(shape.depth, shape.width) <= widest and shape.depth % _PIECE == shape.width % _PIECE == 0
    spans = made.spans is None or (made.span_kind == 1 and made.g is None)  # lengths and offsets of a cache
    plain = made.scale > 0 and not shape.capped and spans
    takes = target.matrix_core == "wgmma" and attention_mma_gpu.tile_kind(target, dtype) is not None
    return 3.0 * attention_prior(node, target) * (fits and plain and takes)


both_passes(
    KernelSpec(
        "attention",
        "flash_async",
        attention_source,
        languages=("cuda",),
        why="own blocks of scores by wgmma, never stored",
        strided=True,
        unaligned=partial(_others_source, aligned=False),
        prior=_prior,
    )
)
