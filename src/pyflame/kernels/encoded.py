"""Launches of encoded.c, encoded_float.c and encoded_tiles.c: which multiplies, in which blocks, with how much scratch.

They do encoded_linear, and expert_linear: there lines are sorted by their matrix first.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.encoding import Encoding, encoding
from pyflame.core.traced import whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.ir.node import Node
from pyflame.kernels.ctype import loaded, macros, macros_with_epilogue
from pyflame.kernels.dequantize import decoder
from pyflame.kernels.matmul import align, even_block, geometry, isa_of, round_up
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel, loops_of

EPILOGUE_ARG, EXPERTS_EPILOGUE_ARG = 9, 14
"""The first arg that belongs to the epilogue: PF_ENCODED_ARGS, and behind those of experts."""

# Formats of pf_codes.h, and the elements that share a scale there.
GROUPS = dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "q4_k", "q5_k", "iq4_xs"), 32)
GROUPS |= dict.fromkeys(("q2_k", "q3_k", "q6_k"), 16)
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
STACKS = {dtype: name for name, dtype in FLOATS.items()}

_FEW, _FEW_FLOATS = 7, 8  # rows: above that it pays to unpack weights for all of them
_FEW_EACH, _FEW_FLOATS_EACH = 3, 6  # the same for each matrix of a stack on average, in integers or in floats
_LINES = 16  # of one iteration of `few`, at least: vectors may take two sets of theirs at once
_GRAIN = 48 << 10  # bytes of weights worth waking a thread for
_MOST_LANES = 32  # PF_NR at most
_PANEL = 16384  # bytes of codes of a panel: PF_DEPTH elements of PF_NR lines
_ROWS_BYTES = 704 << 10  # what the rows of a task may take of L2
_DEPTH = 512
_TILE_LINES, _TILE_DEPTH = 32, 256  # of a panel of encoded_tiles.c
_TILE_ROWS, _TILE_COLS = 512, 512  # of its tasks, at most


def _planes(kind: Encoding, bits: int) -> int:
    """The int8 planes that x is rounded to; 0 if it is multiplied as floats."""
    return bits // 8 if kind.name in GROUPS and bits <= 16 else 0


class _Work(NamedTuple):
    """m rows of k numbers by n lines; `few`: the most rows of a task that reads weights where they lie, or 0.

    Of experts: the number of matrices, the lines for each row of x (0: no experts), and the number of the check.
    """

    m: int
    n: int
    k: int
    row_bytes: int
    kind: Encoding
    bits: int
    few: int
    matrices: int = 1
    share: int = 0
    check: int = -1
    lines: int = 0  # of a set, where they lie interleaved

    @staticmethod
    def of(launch: Launch) -> _Work:
        """What a launch has to do."""
        anchor, (x, data, *rest) = launch.kernel.anchor, launch.operands
        assert anchor is not None
        attrs = dict(zip(anchor.op.attrs, anchor.attrs, strict=True))
        kind, bits = encoding(attrs["encoding"] or STACKS[data.dtype.name]), attrs["activation_bits"]
        most = _FEW_FLOATS if kind.name in FLOATS else _FEW
        if anchor.op.name != "expert_linear_at":
            m, k, n = prod(x.shape[:-1]), x.shape[-1], attrs.get("outputs", data.shape[0])
            few = m if m <= most else 0
            return _Work(m, n, k, data.shape[1], kind, bits, few, lines=attrs.get("lines", 0))
        m, (count, n, wide) = prod(rest[0].shape), data.shape
        each = _FEW_EACH if _planes(kind, bits) else _FEW_FLOATS_EACH
        few, share = most if m <= each * count else 0, max(1, prod(rest[0].shape[len(x.shape) - 1 :]))
        row = wide * data.dtype.itemsize
        return _Work(m, n, x.shape[-1], row, kind, bits, few, count, share, anchor.check)

    @property
    def at_once(self) -> int:
        """Rows that `few` multiplies at once: lines of experts are sorted, and as many as come."""
        return min(self.few, 1) if self.share else self.few


class _Blocks(NamedTuple):
    """Rows and lines of one task, the tasks, and bytes of scratch for each worker behind those that all share.

    `parts`: blocks of rows, at most.
    """

    rows: int
    cols: int
    depth: int
    parts: int
    tasks: int
    shared: int
    worker: int


def _parts(m: int, rows: int, matrices: int) -> int:
    """Blocks of rows if no block has rows of two matrices: each matrix may have a last block that is not full."""
    return (m + min(m, matrices) * (rows - 1)) // rows


def _few_blocks(m: int, n: int, rows: int, matrices: int, row_bytes: int, lines: int = _LINES) -> _Blocks:
    parts = _parts(m, rows, matrices)
    return _Blocks(rows, lines, 0, parts, parts * -(-n // lines), 0, align(rows * (row_bytes + 4 * lines)))


def _tasks(parts: int, n: int, workers: int) -> tuple[int, int]:
    """Lines of one task, fewer where tasks would be few, and the number of tasks."""
    cols = 64 if parts * -(-n // 64) >= 8 * workers else _MOST_LANES
    return cols, parts * -(-n // cols)


def _rounded_bytes(k: int, group: int, planes: int, starts: int) -> int:
    """A row of x as int8, with a step, a sum, and the starts of sums for each group.

    Where there are starts, steps and sums of all rows fill vectors of four. No power of two, whose rows would share
    cache sets.
    """
    return align(planes * k + ((16 if starts else 8) + 4 * planes * starts) * (k // group)) + 64


def lanes(target: Target) -> int:
    """PF_LANES of pf_lanes.h: the lines that a vector of sums has, and that `few` takes interleaved."""
    isa = set(target.isa)
    if {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"} <= isa:
        return 16
    return 8 if {"avx2", "fma"} <= isa else 4


def _rows_at_once(target: Target) -> int:
    """PF_MR of pf_dot.h."""
    return 6 if lanes(target) == 16 else 4


def tiled(kind: Encoding, bits: int, target: Target) -> bool:
    """Whether many rows are multiplied in AMX's tiles: float32 weights and x that must not be rounded are not."""
    needed = {"amx_bf16", "avx512_bf16", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"}
    return bits <= 16 and kind.name != "f32" and needed <= set(target.isa)


@whole
def _tile_blocks(m: int, n: int, row: int, pieces: int, matrices: int, workers: int) -> tuple[int, ...]:
    rows = even_block(m, _TILE_ROWS, 32)
    parts = _parts(m, rows, matrices)
    cols = even_block(n, max(_TILE_LINES, min(_TILE_COLS, n * parts // (2 * workers))), _TILE_LINES)
    worker = 2 * _TILE_DEPTH * _TILE_LINES * pieces + 4 * round_up(rows, 16) * (cols + 16)
    return _Blocks(rows, cols, 0, parts, parts * -(-n // cols), align(pieces * (m + 15) * row), align(worker))


@whole
def _integer_blocks(
    m: int, n: int, k: int, group: int, row: int, few: int, lines: int, step: int, matrices: int, workers: int
) -> tuple[int, ...]:
    if few:
        return _few_blocks(m, n, few, matrices, row, max(_LINES, 2 * lines))
    rows = even_block(m, max(step, _ROWS_BYTES // row), step)
    parts = _parts(m, rows, matrices)
    cols, tasks = _tasks(parts, n, workers)
    panel = _PANEL // group * (8 + group)
    shared = align(round_up(m, step) * row)
    return _Blocks(rows, cols, 0, parts, tasks, shared, align(panel + 4 * rows * cols))


@whole
def _float_blocks(
    m: int, n: int, k: int, step: int, few: int, rows_step: int, matrices: int, workers: int
) -> tuple[int, ...]:
    if few:
        # rows of x as float32 and as float16, with an exponent
        return _few_blocks(m, n, few, matrices, 6 * k + 4)
    depth = even_block(k, _DEPTH, step)
    rows = even_block(m, 240, rows_step)
    parts = _parts(m, rows, matrices)
    cols, tasks = _tasks(parts, n, workers)
    # panels of lines, room for decoded lines, sums; while x is packed, whole rows of it
    worker = 4 * max((cols + _MOST_LANES) * depth + rows * cols, rows_step * k)
    return _Blocks(rows, cols, depth, parts, tasks, align(4 * m * k), align(worker))


def _integers(work: _Work, target: Target) -> tuple[_Blocks, int, Phase, str]:
    """Blocks, the arg that is this file's own, the phase that prepares x, and the text: encoded.c"""
    group, (m, n, k) = GROUPS[work.kind.name], work[:3]
    planes, step = _planes(work.kind, work.bits), _rows_at_once(target)
    row = _rounded_bytes(k, group, planes, work.lines if work.few else 0)
    blocks = _Blocks(*_integer_blocks(m, n, k, group, row, work.few, work.lines, step, work.matrices, target.workers))
    first = Phase("_round", round_up(m, step), max(1, 16384 // max(1, k)))
    return blocks, row, first, f'{macros(_coded(work) | {"PF_PLANES": planes})}#include "encoded.c"\n'


def _coded(work: _Work) -> dict[str, object]:
    """What pf_codes.h asks for."""
    kind = work.kind
    return {
        "PF_ENCODING": kind.name, "PF_GROUP": GROUPS[kind.name], "PF_BLOCK": kind.block, "PF_BLOCK_BYTES": kind.nbytes,
        "PF_INTERLEAVED": work.lines,
    }  # fmt: skip


def _tiles(work: _Work, target: Target) -> tuple[_Blocks, int, Phase, str]:
    """As `_integers`: encoded_tiles.c"""
    (m, n, k), name = work[:3], work.kind.name
    pieces = work.bits // 8  # bfloat16 for a number of x, and for a weight
    weight_pieces = 1 if name == "bf16" else pieces
    row = 2 * round_up(k, 32) + 64 * -(-k // _TILE_DEPTH)
    blocks = _Blocks(*_tile_blocks(m, n, row, pieces, work.matrices, target.workers))
    text = f"{macros({'PF_X_PIECES': pieces, 'PF_W_PIECES': weight_pieces})}"
    if name in FLOATS:
        text += macros({"PF_HALF": int(name == "f16")})
    elif name in GROUPS:
        text = f'#include "pf_encoding.h"\n{text}{macros(_coded(work))}'
    else:
        text = _decoding(work.kind) + text
    first = Phase("_round", m + 15, max(1, 16384 // max(1, k)))
    return blocks, row, first, f'{text}#include "encoded_tiles.c"\n'


def _floats(work: _Work, target: Target) -> tuple[_Blocks, int, Phase, str]:
    """As `_integers`: encoded_float.c"""
    step = geometry("float32", "float32", 4, isa_of(set(target.isa))).rows
    m, n, k = work[:3]
    blocks = _Blocks(*_float_blocks(m, n, k, work.kind.group, work.few, step, work.matrices, target.workers))
    panels = blocks.parts if work.share else -(-m // step)
    halves = work.kind.name == "f16" and 0 < work.at_once <= 4 and k % 32 == 0 and "asimdhp" in target.isa
    define = macros({"PF_HALVES": (8 if work.bits == 8 else 16) if halves else 0})
    return blocks, blocks.depth, Phase("_pack", panels, 1), define + _float_text(work.kind)


def encoded_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one encoded_linear or expert_linear."""
    assert epilogue is not None
    x, work = launch.operands[0], _Work.of(launch)
    experts = work.share > 0
    made = _integers if _planes(work.kind, work.bits) else _floats
    if not work.few and tiled(work.kind, work.bits, target):
        made = _tiles
    blocks, own, first, text = made(work, target)
    args = [*work[:4], blocks.rows, blocks.cols, own, blocks.shared, blocks.worker]
    grain = max(1, _GRAIN // max(1, blocks.cols * work.row_bytes))
    phases = [Phase("_few", blocks.tasks, grain)] if work.few else [first, Phase("_mul", blocks.tasks, 1)]
    scratch, epilogue_arg = blocks.shared + target.workers * blocks.worker, EPILOGUE_ARG
    if experts:
        phases.insert(0, Phase("_sort", 1, 1))
        args += [work.share, work.matrices, blocks.parts, work.check, scratch]
        scratch, epilogue_arg = scratch + 8 * (3 * blocks.parts + work.m + work.matrices), EXPERTS_EPILOGUE_ARG
    defines = {
        "PF_NAME": "PF_KEY", "PF_X_T": storage(x.dtype), "PF_LOAD_X(x)": loaded(x.dtype, "x"),
        "PF_BIAS": int(len(launch.operands) == 3 and not experts), "PF_EXPERTS": int(experts),
        "PF_FEW": work.at_once,
    }  # fmt: skip
    return Source(
        macros_with_epilogue(defines, epilogue_arg, "float") + text,
        tuple(phases) if work.m * work.n else (),
        (*args, 0, *epilogue.args),
        scratch_bytes=scratch,
        scratch_position=len(launch.operands),
        epilogue=epilogue.text,
        epilogue_arg=epilogue_arg,
    )


def _float_text(kind: Encoding) -> str:
    dtype = FLOATS.get(kind.name)
    if dtype:
        return f'#define PF_B_T {dtype}\n#include "encoded_float.c"\n'
    return f'{_decoding(kind)}#define PF_B_T float32\n#include "encoded_float.c"\n'


def _decoding(kind: Encoding) -> str:
    """The decoder of a format, and what tells of its blocks."""
    defines = {
        "PF_DECODE": "PF_KEY_decode", "PF_BLOCK": kind.block, "PF_BLOCK_BYTES": kind.nbytes, "PF_DECODED": kind.group,
    }  # fmt: skip
    return f'#include "pf_encoding.h"\n{decoder(kind)}{macros(defines)}'


def _prior(node: Node, target: Target) -> float:
    """Not for float64, which the decomposition computes in."""
    return 0.0 if node.dtype.name == "float64" else 1.0


def _interleaved_prior(node: Node, target: Target) -> float:
    """In integers, and where lines were interleaved for this CPU."""
    _, _, bits, lines, _ = node.attrs
    return _prior(node, target) if bits <= 16 and lines == lanes(target) else 0.0


def _layout(launch: Launch) -> tuple[int, int]:
    assert launch.kernel.anchor is not None
    return 0, loops_of(launch, len(launch.kernel.anchor.meta.shape) - 1)


for op, epilogue_arg, prior, why in (
    (
        "encoded_linear", EPILOGUE_ARG, _prior,
        "weights read as they are stored, in integer dot products where they have codes",
    ),
    ("interleaved_linear", EPILOGUE_ARG, _interleaved_prior, "interleaved weights, in integer dot products"),
    (
        "expert_linear_at", EXPERTS_EPILOGUE_ARG, _prior,
        "lines sorted by their matrix, which is read as it is stored",
    ),
):  # fmt: skip
    slot = EpilogueSlot(_layout, lambda launch: "float", epilogue_arg)
    kernel(KernelSpec(op, "encoded", encoded_source, why=why, epilogue=slot, prior=prior))
