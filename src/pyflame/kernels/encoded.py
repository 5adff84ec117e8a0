"""Launches of encoded.c and encoded_float.c: which of them multiplies, in which blocks, with how much scratch."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.encoding import Encoding, encoding
from pyflame.core.traced import whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.ir.node import Node
from pyflame.kernels.ctype import loaded
from pyflame.kernels.dequantize import decoder
from pyflame.kernels.matmul import align, even_block, geometry, isa_of, round_up
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel

EPILOGUE_ARG = 9
"""PF_ENCODED_ARGS: the first arg that belongs to the epilogue."""

# Formats of pf_codes.h, and the elements that share a scale there.
GROUPS = dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "q4_k", "q5_k", "iq4_xs"), 32)
GROUPS |= dict.fromkeys(("q2_k", "q3_k", "q6_k"), 16)
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

_FEW = 8  # rows: above that it pays to unpack weights for all of them
_LINES = 16  # of one iteration of `few`
_GRAIN = 48 << 10  # bytes of weights worth waking a thread for
_ROW_STEP, _MOST_LANES = 4, 32  # PF_MR, and PF_NR at most
_ROWS_BYTES = 704 << 10  # what the rows of a task may take of L2
_DEPTH = 512


class _Blocks(NamedTuple):
    """Rows and lines of one task, the tasks, and bytes of scratch for each worker behind those that all share."""

    rows: int
    cols: int
    depth: int
    tasks: int
    shared: int
    worker: int


def _tasks(m: int, n: int, rows: int, workers: int) -> tuple[int, int]:
    """Lines of one task, fewer where tasks would be few, and the number of tasks."""
    row_blocks = -(-m // rows)
    cols = 64 if row_blocks * -(-n // 64) >= 8 * workers else _MOST_LANES
    return cols, row_blocks * -(-n // cols)


def _rounded_bytes(k: int, group: int) -> int:
    """A row of x as int8, with a step and a sum for each group; no power of two, whose rows would share cache sets."""
    return align(k + 8 * (k // group)) + 64


@whole
def _integer_blocks(m: int, n: int, k: int, group: int, few: int, workers: int) -> tuple[int, ...]:
    row = _rounded_bytes(k, group)
    if few:
        return _Blocks(few, _LINES, 0, -(-n // _LINES), 0, align(few * (row + 4 * _LINES)))
    rows = even_block(m, max(_ROW_STEP, _ROWS_BYTES // row), _ROW_STEP)
    cols, tasks = _tasks(m, n, rows, workers)
    panel = k // group * _MOST_LANES * (8 + group)
    return _Blocks(rows, cols, 0, tasks, align(round_up(m, _ROW_STEP) * row), align(panel + 4 * rows * cols))


@whole
def _float_blocks(m: int, n: int, k: int, step: int, few: int, rows_step: int, workers: int) -> tuple[int, ...]:
    if few:
        return _Blocks(few, _LINES, 0, -(-n // _LINES), 0, align(4 * few * (k + _LINES)))
    depth = even_block(k, _DEPTH, step)
    rows = even_block(m, 240, rows_step)
    cols, tasks = _tasks(m, n, rows, workers)
    # panels of lines, room for decoded lines, sums; while x is packed, whole rows of it
    worker = 4 * max((cols + _MOST_LANES) * depth + rows * cols, rows_step * k)
    return _Blocks(rows, cols, depth, tasks, align(4 * m * k), align(worker))


def encoded_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one encoded_linear."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    assert epilogue is not None
    x, data, *bias = launch.operands
    name, k, exact = anchor.attrs
    m, n = prod(x.shape[:-1]), data.shape[0]
    few = m if m <= _FEW else 0
    kind = encoding(name)
    integers = name in GROUPS and not exact
    grain = max(1, _GRAIN // max(1, _LINES * data.shape[1])) if few else 1
    defines = {
        "PF_NAME": "PF_KEY", "PF_X_T": storage(x.dtype), "PF_LOAD_X(x)": loaded(x.dtype, "x"), "PF_BIAS": len(bias),
        "PF_FEW": few,
        "PF_EPILOGUE(buf, arg, ...)": f"((pf_epilogue)(intptr_t)(arg)[{EPILOGUE_ARG}])(buf, arg, __VA_ARGS__)",
    }  # fmt: skip
    if integers:
        group = GROUPS[name]
        blocks = _Blocks(*_integer_blocks(m, n, k, group, few, target.workers))
        args = [m, n, k, data.shape[1], blocks.rows, blocks.cols, _rounded_bytes(k, group)]
        first = Phase("_round", round_up(m, _ROW_STEP), max(1, 16384 // max(1, k)))
        text = f'#define PF_ENCODING {name}\n#include "encoded.c"\n'
    else:
        step = geometry("float32", "float32", 4, isa_of(set(target.isa))).rows
        blocks = _Blocks(*_float_blocks(m, n, k, kind.group, few, step, target.workers))
        args = [m, n, k, data.shape[1], blocks.rows, blocks.cols, blocks.depth]
        first = Phase("_pack", -(-m // step), 1)
        text = _float_text(kind)
    phases = (Phase("_few", blocks.tasks, grain),) if few else (first, Phase("_mul", blocks.tasks, 1))
    return Source(
        _head(defines) + text,
        phases if m * n else (),
        (*args, blocks.shared, blocks.worker, 0, *epilogue.args),
        scratch_bytes=blocks.shared + target.workers * blocks.worker,
        scratch_position=len(launch.operands),
        epilogue=epilogue.text,
        epilogue_arg=EPILOGUE_ARG,
    )


def _head(defines: dict[str, object]) -> str:
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    kind = "char *const *, const int64_t *, const pf_word *, int64_t, int64_t, int64_t, int64_t, const float *"
    return f"{lines}typedef void (*pf_epilogue)({kind});\n#undef pf_min\n#undef pf_max\n"


def _float_text(kind: Encoding) -> str:
    dtype = FLOATS.get(kind.name)
    if dtype:
        return f'#define PF_B_T {dtype}\n#include "encoded_float.c"\n'
    defines = {
        "PF_B_T": "float32", "PF_DECODE": "PF_KEY_decode", "PF_BLOCK": kind.block, "PF_BLOCK_BYTES": kind.nbytes,
        "PF_DECODED": kind.group,
    }  # fmt: skip
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    return f'#include "pf_encoding.h"\n{decoder(kind)}{lines}#include "encoded_float.c"\n'


def _prior(node: Node, target: Target) -> float:
    """Not for float64, which the decomposition computes in."""
    return 0.0 if node.dtype.name == "float64" else 1.0


kernel(
    KernelSpec(
        "encoded_linear",
        "encoded",
        encoded_source,
        why="weights read as they are stored, in integer dot products where they have codes",
        epilogue=EpilogueSlot(
            lambda launch: (0, len(launch.kernel.loops[0]) - 1), lambda launch: "float", EPILOGUE_ARG
        ),
        prior=_prior,
    )
)
