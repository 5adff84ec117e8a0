"""Matrix products: 2*n^3 flops; fp32 through the vector units, bf16 through AMX where the CPU has it."""

from __future__ import annotations

import numpy as np

import pyflame as pf
from benchmarks.peers import jax_contender, torch_contenders, torch_has_bf16
from benchmarks.timing import Result, measure


def run() -> list[Result]:
    results = []
    product = pf.jit(lambda a, b: a @ b)
    for n in (256, 1024, 2048, 4096):
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((n, n), dtype=np.float32), rng.standard_normal((n, n), dtype=np.float32)
        ta, tb = pf.tensor(a), pf.tensor(b)
        contenders = {
            "pyflame": lambda ta=ta, tb=tb: pf.eval(product(ta, tb)),
            "numpy": lambda a=a, b=b: a @ b,
            **torch_contenders(lambda torch, x, y: x @ y, a, b, compiled=False),
            **jax_contender(lambda jax, jnp, x, y: x @ y, a, b),
        }
        results.append(Result(f"matmul {n} f32", 2 * n**3, "GFLOP/s", measure(contenders, budget=1.5), 0.9))
    n = 2048
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    ta, tb = pf.tensor(a, dtype=pf.bfloat16), pf.tensor(a.T.copy(), dtype=pf.bfloat16)
    contenders = {"pyflame": lambda: pf.eval(product(ta, tb))}
    if torch_has_bf16():
        import torch

        ba, bb = torch.from_numpy(a).bfloat16(), torch.from_numpy(a.T.copy()).bfloat16()
        contenders["torch"] = lambda: ba @ bb
    results.append(Result(f"matmul {n} bf16", 2 * n**3, "GFLOP/s", measure(contenders, budget=1.0), 0.7))
    return results
