"""expert_linear at shapes that reach every way of experts.hip: what simulated GPUs and a real one compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import pyflame as pf
from pyflame.core.encoding import encoding
from pyflame.tensor import Tensor
from tests.gpu import gemm_cases

Build = Callable[[], list[Tensor]]


def operands(
    name: str | None, rows: int, share: int, count: int, out: int, width: int, dtype: pf.DType
) -> tuple[Tensor, Tensor, Tensor]:
    """x, the stack and ids, of which half name one matrix; some count from the end."""
    weight = gemm_cases.numbers((count, out, width), pf.float32, 1)
    data = pf.tensor(encoding(name).encode(weight)) if name else pf.tensor(weight).to(dtype)
    rng = np.random.default_rng(rows)
    ids = np.where(rng.random((rows, share)) < 0.5, -1, rng.integers(0, count, (rows, share)))
    return pf.tensor(gemm_cases.numbers((rows, width), dtype, 2)), data, pf.tensor(ids)


def lines(
    name: str | None, rows: int, share: int, count: int, out: int, width: int, dtype: pf.DType = pf.float32
) -> list[Tensor]:
    return [pf.expert_linear(*operands(name, rows, share, count, out, width, dtype), encoding=name)]


def gated(rows: int, dtype: pf.DType) -> list[Tensor]:
    """What may follow in the same kernel: a bias, a gate, a cast; and the sum over the matrices of a token by score."""
    x, gate, ids = operands("q4_0", rows, 2, 3, 24, 64, dtype)
    _, up, _ = operands("q8_0", rows, 2, 3, 24, 64, dtype)
    bias = pf.tensor(gemm_cases.numbers((3, 24), dtype, 4))
    y = pf.silu(pf.expert_linear(x, gate, ids, encoding="q4_0")) * pf.expert_linear(x, up, ids, bias, encoding="q8_0")
    scores = pf.tensor(gemm_cases.numbers((rows, 2), dtype, 5))
    return [y, (y * scores.unsqueeze(-1)).sum(1), (y[:, 0] * 0.5).to(pf.float16)]


CASES: dict[str, Build] = {
    "one line": partial(lines, "q4_0", 1, 1, 3, 9, 64),
    "a token": partial(lines, "q4_k", 1, 4, 16, 40, 768, pf.bfloat16),
    "a token, plain": partial(lines, None, 1, 4, 8, 5, 48, pf.float16),
    "two tokens": partial(lines, "q4_0", 2, 2, 4, 9, 64),
    "few tokens": partial(lines, "q6_k", 9, 3, 4, 7, 256),
    "few tokens, plain": partial(lines, None, 16, 4, 8, 5, 48, pf.bfloat16),
    "many": partial(lines, "q4_0", 45, 2, 5, 37, 96, pf.bfloat16),
    "many, plain": partial(lines, None, 70, 1, 3, 40, 64, pf.float16),
    "many, float32": partial(lines, "q4_k", 33, 2, 2, 20, 256),
    "many, plain, float32": partial(lines, None, 40, 2, 4, 70, 48),
    "one matrix": partial(lines, "q8_0", 150, 1, 1, 16, 32, pf.bfloat16),
    "many matrices": partial(lines, "q4_0", 40, 2, 300, 4, 32, pf.float16),
    "gated, few": partial(gated, 3, pf.float32),
    "gated, many": partial(gated, 40, pf.bfloat16),
}
