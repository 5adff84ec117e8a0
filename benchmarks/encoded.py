"""encoded_linear: weights of 1 to 512 rows of x, in bytes of weights (decoding) or flops (a prompt) per second.

Few rows are multiplied with one weight after the other, more bytes than caches hold, as in decoding a token.
`pyflame copy` reads and writes as many bytes. llama.cpp takes part where PYFLAME_GGML names its libraries: see ggml.py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.ggml import Ggml
from benchmarks.timing import Result, measure
from pyflame.core.device import CPU
from pyflame.core.encoding import ENCODINGS, Encoding
from pyflame.engine.devices import get_device

NAMES = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "q5_0", "f16")
WIDTH, OUT = 2048, 2048
FEW_BYTES = 48 << 20  # of all weights that few rows meet
PROMPT = 512
Array = np.ndarray[Any, Any]


def libraries() -> Ggml | None:
    folder = os.environ.get("PYFLAME_GGML")
    return Ggml(Path(folder), get_device(CPU).target.workers) if folder else None


def contenders(kind: Encoding, rows: int, ggml: Ggml | None) -> tuple[dict[str, Callable[[], object]], int]:
    """What to measure, and how many weights it multiplies with."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    data = np.tile(kind.encode(rng.normal(size=(16, WIDTH)).astype(np.float32)), (OUT // 16, 1))  # encoders take long
    weights = [data.copy() for _ in range(1 if rows == PROMPT else max(1, FEW_BYTES // data.nbytes))]
    multiply = pf.jit(lambda x, *ws: [pf.encoded_linear(x, w, encoding=kind.name, width=WIDTH) for w in ws])
    left, tensors = pf.tensor(x), [pf.tensor(w) for w in weights]
    out: dict[str, Callable[[], object]] = {"pyflame": lambda: multiply(left, *tensors)}
    if rows != PROMPT:
        copied = pf.jit(lambda *ws: [w ^ 1 for w in ws])
        out["pyflame copy"] = lambda: copied(*tensors)
    if ggml is not None and kind.ggml is not None:
        products = [ggml.linear(kind.ggml, w, x) for w in weights]
        out["llama.cpp"] = lambda: [product() for product in products]
    return out, len(weights)


def run() -> list[Result]:
    ggml, results = libraries(), []
    for name, rows in itertools.product(NAMES, (1, 4, PROMPT)):
        kind, few = ENCODINGS[name], rows != PROMPT
        fns, count = contenders(kind, rows, ggml)
        amount = count * OUT * (kind.row_bytes(WIDTH) if few else 2 * rows * WIDTH)
        work = f"{name}, {rows} x {WIDTH} by {OUT}"
        seconds = measure(fns, rounds=5, budget=0.25)
        results.append(Result(work, amount, "GB/s" if few else "GFLOP/s", seconds, 1.0 if few else 1.2))
    return results
