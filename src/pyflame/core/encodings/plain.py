"""F32, F16 and BF16 as encodings of blocks of one element, so that a file's tensors are all of one kind."""

from __future__ import annotations

import numpy as np

from pyflame.core.dtype import bfloat16
from pyflame.core.encodings.block import Encoding


def _plain(name: str, kind: np.dtype[np.generic], c: str, ggml: int) -> Encoding:
    return Encoding(
        name, 1, kind.itemsize,
        lambda blocks: blocks.view(kind).astype(np.float32),
        f"\n  y[0] = {c};\n",
        lambda blocks: blocks.astype(kind).view(np.uint8),
        group=1, ggml=ggml,
    )  # fmt: skip


ENCODINGS = (
    _plain("f32", np.dtype(np.float32), "pf_float_at(b)", 0),
    _plain("f16", np.dtype(np.float16), "pf_half_at(b)", 1),
    _plain("bf16", bfloat16.numpy, "pf_bf16_to_f32(pf_u16_at(b))", 30),
)
