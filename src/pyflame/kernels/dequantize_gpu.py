"""Launches of dequantize.hip: a thread for every 16 elements."""

from __future__ import annotations

from functools import partial

from pyflame.core.device import Target
from pyflame.core.encoding import Encoding, encoding
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.gpu_source import GpuFunctions, element
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

PIECE = 16  # as in pf_decode.h
THREADS = 256


def alignment_of(kind: Encoding) -> int:
    """What each block's address (each piece's, of blocks of one element) is a multiple of if the first one's is."""
    nbytes = kind.nbytes * PIECE if kind.block == 1 else kind.nbytes
    return min(nbytes & -nbytes, 16)


def decoder(kind: Encoding, aligned: bool) -> str:
    """The struct around an encoding's text that pf_decode.h asks for."""
    numbers = dict(
        BLOCK=kind.block, NBYTES=kind.nbytes, GROUP=kind.group, ALIGN=alignment_of(kind) if aligned else 1,
        PAIR=kind.pair, OFFSET=int(bool(kind.offset)), LEAST=int(bool(kind.least)),
    )  # fmt: skip
    fields = ", ".join(f"{name} = {value}" for name, value in numbers.items())
    functions = f"  PF_FN void of(const uint8_t *b, int g, float *y) {{{kind.c}  }}\n"
    if kind.pair:
        giving = f"  out_d = d, out_offset = {kind.offset or 0}, out_least = {kind.least or 0};\n  return q;\n"
        head = "pf_sixteen codes(const uint8_t *b, int g, float &out_d, int &out_offset, float &out_least)"
        functions += f"  template <int ALIGN> PF_FN {head} {{{kind.text}{giving}  }}\n"
    return f"struct PF_KEY_decoder {{\n  enum {{ {fields} }};\n{functions}}};\n"


def dequantize_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and arguments of one dequantize."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    name, dtype = anchor.attrs
    kind, total = encoding(name), anchor.meta.size
    vector = 16 // dtype.itemsize if aligned and total % PIECE == 0 else 1
    alignment = [alignment_of(kind) if aligned else 1, vector * dtype.itemsize]
    made = GpuFunctions(
        "dequantize.hip", ["const uint8_t", storage(dtype)], alignment, ("pf_dequantizing",), decoder(kind, aligned)
    )
    call = f"pf_dequantize<{element(dtype)}, PF_KEY_decoder, {vector}, {THREADS}>(b0, b1, arg);"
    made.add("_0", -(-total // (PIECE * THREADS)), THREADS, [total], call)
    return made.source()


kernel(
    KernelSpec(
        "dequantize",
        "dequantize_gpu",
        dequantize_source,
        languages=("hip", "cuda"),
        why="each block decoded once, in registers",
        unaligned=partial(dequantize_source, aligned=False),
    )
)
