"""Launches of dequantize.c: one task per block. The text of a decoder is its encoding's own."""

from __future__ import annotations

from pyflame.core.device import Target
from pyflame.core.encoding import Encoding, encoding
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels.ctype import stored
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

GRAIN = 16384  # elements worth waking a thread for


def decoder(kind: Encoding) -> str:
    """The function that decodes a group of a block, under a name of the kernel's own."""
    return f"PF_FN void PF_KEY_decode(const uint8_t *b, int g, float *y) {{{kind.c}}}\n"


def dequantize_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text of one dequantize."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    name, dtype = anchor.attrs
    kind = encoding(name)
    # No macro in it: so it is compiled as generated text is, without contraction. A wheel's kernels are contracted, so
    # this one must not be among them.
    text = (
        f'#include "dequantize.c"\n{decoder(kind)}'
        "PF_FN void PF_KEY_store(const float *y, char *out, int64_t at, int n) {\n"
        f"  {storage(dtype)} *to = ({storage(dtype)} *)out + at;\n"
        f"  for (int i = 0; i < n; i++) to[i] = {stored(dtype, 'y[i]')};\n}}\n"
        "PF_KERNEL(PF_KEY_0) {\n"
        f"  pf_dequantize(buf, begin, end, {kind.nbytes}, {kind.block // kind.group}, {kind.group}, PF_KEY_decode, "
        "PF_KEY_store);\n}\n"
    )
    return Source(text, (Phase("_0", anchor.meta.size // kind.block, max(1, GRAIN // kind.block)),), ())


kernel(KernelSpec("dequantize", "dequantize", dequantize_source, why="each block decoded once"))
