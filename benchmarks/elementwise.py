"""gelu(x*a+b)*sigmoid(x)+c over 16M floats: one pass over memory when fused, 4 bytes in and 4 out per element."""

from __future__ import annotations

import numpy as np

import pyflame as pf
from benchmarks.peers import jax_contender, torch_contenders
from benchmarks.timing import Result, measure

N = 1 << 24


def run() -> list[Result]:
    x = np.random.default_rng(0).standard_normal(N, dtype=np.float32)
    t = pf.tensor(x)

    @pf.jit
    def chain(v: pf.Tensor) -> pf.Tensor:
        return pf.gelu(v * 1.1 + 0.1, approximate="tanh") * pf.sigmoid(v) + 0.5

    def numpy_chain() -> np.ndarray:
        u = x * np.float32(1.1) + np.float32(0.1)
        g = 0.5 * u * (1 + np.tanh(np.float32(0.7978845608) * (u + np.float32(0.044715) * u * u * u)))
        return g / (1 + np.exp(-x)) + np.float32(0.5)

    contenders = {
        "pyflame": lambda: pf.eval(chain(t)),
        "numpy": numpy_chain,
        **torch_contenders(
            lambda torch, v: torch.nn.functional.gelu(v * 1.1 + 0.1, approximate="tanh") * torch.sigmoid(v) + 0.5, x
        ),
        **jax_contender(lambda jax, jnp, v: jax.nn.gelu(v * 1.1 + 0.1, approximate=True) * jax.nn.sigmoid(v) + 0.5, x),
    }
    return [Result("gelu(x*a+b)*sigmoid(x)+c, 16M f32", 8 * N, "GB/s", measure(contenders, budget=1.5), 1.5)]
