"""encoded_linear: weights of 1 to 512 rows of x, in bytes of weights (decoding) or flops (a prompt) per second.

Few rows are multiplied with one weight after the other, more bytes than caches hold, as in decoding a token.
x is rounded to 8 bits, as llama.cpp does it; `pyflame 16 bits` is the default. Weights lie interleaved where their
encoding can be, as in a model that generates; `pyflame as stored` are 8 bits by bytes as in the file. `pyflame copy`
reads and writes as many bytes. llama.cpp takes part where PYFLAME_GGML names its libraries: see ggml.py.
expert_linear: tokens that use 4 of 32 matrices each; `pyflame decoded` decodes the matrices that one token uses, or for
more tokens all of them, and multiplies every token with these.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.ggml import Ggml
from benchmarks.timing import Result, measure
from pyflame.core.device import CPU
from pyflame.core.encoding import ENCODINGS, Encoding
from pyflame.engine.devices import get_device
from pyflame.tensor.interleaved import Interleaved, interleave

NAMES = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "q5_0", "f16", "bf16")
WIDTH, OUT = 2048, 2048
FEW_BYTES = 48 << 20  # of all weights that few rows meet
PROMPT = 512
EXPERTS, USED, EXPERT_WIDTH = 32, 4, 512
Array = np.ndarray[Any, Any]


def libraries() -> Ggml | None:
    folder = os.environ.get("PYFLAME_GGML")
    return Ggml(Path(folder), get_device(CPU).target.workers) if folder else None


def multiplied(kind: Encoding, bits: int, tensors: list[pf.Tensor]) -> Callable[..., object]:
    options = {"encoding": kind.name, "width": WIDTH, "activation_bits": bits}
    return pf.jit(lambda x: [pf.encoded_linear(x, w, **options) for w in tensors])


def interleaved(bits: int, copies: list[Interleaved]) -> Callable[..., object]:
    return pf.jit(lambda x: [copy.linear(x, activation_bits=bits) for copy in copies])


def contenders(kind: Encoding, rows: int, ggml: Ggml | None) -> tuple[dict[str, Callable[[], object]], int]:
    """What to measure, and how many weights it multiplies with."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    data = np.tile(kind.encode(rng.normal(size=(16, WIDTH)).astype(np.float32)), (OUT // 16, 1))  # encoders take long
    weights = [data.copy() for _ in range(1 if rows == PROMPT else max(1, FEW_BYTES // data.nbytes))]
    left, tensors = pf.tensor(x), [pf.tensor(w) for w in weights]
    copies = [interleave(pf.EncodedTensor(w, kind)) for w in tensors] if kind.interleaves else []
    by_bits = [interleaved(b, copies) if copies else multiplied(kind, b, tensors) for b in (8, 16)]
    out: dict[str, Callable[[], object]] = dict(
        zip(("pyflame", "pyflame 16 bits"), (partial(f, left) for f in by_bits), strict=True)
    )
    if copies:
        out["pyflame as stored"] = partial(multiplied(kind, 8, tensors), left)
    if rows != PROMPT:
        copied = pf.jit(lambda *ws: [w ^ 1 for w in ws])
        out["pyflame copy"] = lambda: copied(*tensors)
    if ggml is not None and kind.ggml is not None:
        products = [ggml.linear(kind.ggml, w, x) for w in weights]
        out["llama.cpp"] = lambda: [product() for product in products]
    return out, len(weights)


def decoded_experts(name: str) -> Callable[..., pf.Tensor]:
    """expert_linear by ops that know no experts."""

    def product(x: pf.Tensor, data: pf.Tensor, ids: pf.Tensor) -> pf.Tensor:
        few = len(x) == 1
        stack = data.index_select(0, ids[0]) if few else data
        stack = stack if name == "bf16" else pf.dequantize(stack, encoding=name)
        y = (x @ stack.transpose(1, 2)).transpose(0, 1)  # (tokens, matrices, out)
        return y if few else pf.take_along_axis(y, ids.unsqueeze(-1), 1)

    return product


def experts(name: str, tokens: int) -> Result:
    """Tokens by matrices of their own."""
    rng, dtype = np.random.default_rng(0), pf.bfloat16 if name == "bf16" else pf.float32
    x = pf.tensor(rng.normal(size=(tokens, EXPERT_WIDTH)).astype(np.float32)).to(dtype)
    rows = pf.tensor(rng.normal(size=(EXPERTS, EXPERT_WIDTH, EXPERT_WIDTH)).astype(np.float32))
    data = rows.to(dtype) if name == "bf16" else pf.quantize(rows, name).data
    ids = pf.tensor(np.stack([rng.permutation(EXPERTS)[:USED] for _ in range(tokens)]))
    pf.eval(x, data)
    kind = None if name == "bf16" else name
    ways = {
        "pyflame": partial(pf.expert_linear, encoding=kind, activation_bits=8),
        "pyflame 16 bits": partial(pf.expert_linear, encoding=kind),
        "pyflame decoded": decoded_experts(name),
    }
    fns = {way: partial(pf.jit(product), x, data, ids) for way, product in ways.items()}
    flops = 2 * tokens * USED * EXPERT_WIDTH**2
    work = f"experts, {name}, {tokens} x {USED} of {EXPERTS}"
    return Result(work, flops, "GFLOP/s", measure(fns, rounds=5, budget=0.25))


def run() -> list[Result]:
    ggml, results = libraries(), []
    for name, rows in itertools.product(NAMES, (1, 4, PROMPT)):
        kind, few = ENCODINGS[name], rows != PROMPT
        fns, count = contenders(kind, rows, ggml)
        amount = count * OUT * (kind.row_bytes(WIDTH) if few else 2 * rows * WIDTH)
        work = f"{name}, {rows} x {WIDTH} by {OUT}"
        seconds = measure(fns, rounds=5, budget=0.25)
        results.append(Result(work, amount, "GB/s" if few else "GFLOP/s", seconds, 1.0 if few else 1.2))
    results += [experts(name, tokens) for name, tokens in itertools.product(("q4_0", "bf16"), (1, 32, 256))]
    return results
