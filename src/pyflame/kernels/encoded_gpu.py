"""Launches of encoded.hip: encoded_linear of 1 to 16 rows, which reads the weight once. More rows are decoded first."""

from __future__ import annotations

from functools import partial
from math import prod

from pyflame.core.device import Target
from pyflame.core.dtype import bfloat16, float16, float32
from pyflame.core.encoding import encoding
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.dequantize_gpu import PIECE, alignment_of, decoder
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel
from pyflame.kernels.tile_gpu import out_struct, out_value, sums_of, value_type

THREADS = 256
MOST_ROWS = 16
BUSY = 1024  # threads that keep a compute unit busy


def _takes(node: Node, target: Target) -> float:
    x, data = node.srcs[:2]
    fits = x.dtype in (float32, float16, bfloat16) and 1 <= prod(x.shape[:-1]) <= MOST_ROWS
    whole = x.shape[-1] and x.shape[-1] % PIECE == 0
    return 1.0 if fits and whole and 0 < data.shape[0] * target.wave_size < SMALL else 0.0


def _lanes(width: int, target: Target) -> int:
    """Lanes for a row of the weight, so that each has two pieces at least where there are as many."""
    return min(target.wave_size, power(-(-width // (2 * PIECE))))


def encoded_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and arguments of one encoded_linear."""
    anchor = launch.kernel.anchor
    assert anchor is not None and epilogue is not None
    x, data, *bias = anchor.srcs
    name, width, _ = anchor.attrs
    kind, dtype, rows, out = encoding(name), x.dtype, prod(x.shape[:-1]), data.shape[0]
    lanes, taken = _lanes(width, target), power(rows)
    each = 2 if out * lanes >= 2 * target.workers * BUSY else 1
    vector = 16 // dtype.itemsize if aligned else 1
    names, own = [f"b{n}" for n in range(len(launch.buffers))], [f"e{n}" for n in range(len(epilogue.args))]
    given = [f"const {storage(v.dtype)}" for v in anchor.srcs]
    others = len(names) - len(given)
    alignment = [vector * dtype.itemsize, alignment_of(kind) if aligned else 1, *[dtype.itemsize] * len(bias)]
    giving = [epilogue.text.rstrip(), *out_struct(epilogue, sums_of(dtype), names, own)]
    made = GpuFunctions(
        "encoded.hip",
        [*given, *["char"] * others],
        [*alignment, *[1] * others],
        ("pf_encoded",),
        "\n".join([decoder(kind, aligned), *giving]),
    )
    args = [rows, out, width, data.shape[1]]
    numbers = f"{taken}, {each}, {lanes}, {vector}, {len(bias)}, {THREADS}"
    call = f"pf_encoded_linear<{element(dtype)}, PF_KEY_decoder, {numbers}>(b0, b1, b{2 if bias else 0}, arg, out);"
    body = f"{out_value(names, len(args), len(own))}\n  {call}"
    made.add("_0", -(-out * lanes // (each * THREADS)), THREADS, [*args, *epilogue.args], body)
    return made.source()


def _layout(launch: Launch) -> tuple[int, int]:
    return 0, len(launch.kernel.loops[0]) - 1


kernel(
    KernelSpec(
        "encoded_linear",
        "encoded_gpu",
        encoded_source,
        languages=("hip", "cuda"),
        why="reads the encoded weight once, for few rows",
        epilogue=EpilogueSlot(_layout, value_type, 0),
        unaligned=partial(encoded_source, aligned=False),
        prior=_takes,
    )
)
