"""`pyflame demo`: a fused computation, its plan, its speed against NumPy, and where the cache went."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf


def seconds_per_call(fn: Callable[[], Any], budget: float = 0.5) -> float:
    """The best of several calls, after one to warm up."""
    fn()
    best = float("inf")
    until = time.perf_counter() + budget
    while time.perf_counter() < until:
        started = time.perf_counter()
        fn()
        best = min(best, time.perf_counter() - started)
    return best


def attention_block(x: pf.Tensor, w: pf.Tensor, b: pf.Tensor) -> pf.Tensor:
    """layer_norm -> linear -> gelu -> softmax: four kernels' worth of ops that become two launches and a GEMM."""
    h = pf.layer_norm(x, (x.shape[-1],))
    h = pf.gelu(h @ w + b, approximate="tanh")
    return pf.softmax(h, axis=-1)


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="pyflame demo", description=__doc__)
    parser.add_argument("--rows", type=int, default=2048, help="rows of the input (default 2048)")
    parser.add_argument("--width", type=int, default=1024, help="features per row (default 1024)")
    options = parser.parse_args(argv)
    print(f"PyFlame {pf.__version__} on {pf.device_info()['name']} ({pf.get_device()})\n")

    pf.manual_seed(0)
    x = pf.randn(options.rows, options.width)
    w = pf.randn(options.width, options.width) * options.width**-0.5
    b = pf.zeros(options.width)
    pf.eval(x, w, b)

    print("1. What runs: softmax(gelu(layer_norm(x) @ w + b))\n")
    block = pf.jit(attention_block)
    print(pf.explain(block, x, w, b))

    print("2. Against NumPy: gelu(x*1.1+0.1)*sigmoid(x)+0.5 on 4M floats\n")
    v = pf.randn(1 << 22)
    array = v.numpy()

    def fused(t: pf.Tensor) -> pf.Tensor:
        return pf.gelu(t * 1.1 + 0.1, approximate="tanh") * pf.sigmoid(t) + 0.5

    def plain() -> np.ndarray[Any, Any]:
        u = array * np.float32(1.1) + np.float32(0.1)
        g = np.float32(0.5) * u * (1 + np.tanh(np.float32(0.79788456) * (u + np.float32(0.044715) * u * u * u)))
        return np.asarray(g / (1 + np.exp(-array)) + np.float32(0.5))

    jitted = pf.jit(fused)
    ours, theirs = seconds_per_call(lambda: pf.eval(jitted(v))), seconds_per_call(plain)
    worst = float(np.abs(jitted(v).numpy() - plain()).max())
    nbytes = 2 * array.nbytes
    print(
        f"   PyFlame {nbytes / ours / 1e9:6.2f} GB/s   NumPy {nbytes / theirs / 1e9:6.2f} GB/s   {theirs / ours:.1f}x, "
        f"largest difference {worst:.1e}\n"
    )

    print("3. Gradients: d/dw of the block's mean square, in one plan\n")
    w.requires_grad_()

    def loss(x: pf.Tensor) -> pf.Tensor:
        out = pf.square(attention_block(x, w, b)).mean()
        w.grad = None
        out.backward()
        return out

    report = pf.explain(pf.jit(loss), x)
    print(f"   {len(report.launches)} launches, arena {report.arena_bytes / 1e6:.1f} MB\n")

    stats = pf.compile_stats()
    print(
        f"4. Kernels: {stats.compiles} compiled in {stats.compile_seconds:.2f} s, {stats.disk_hits} from disk, "
        f"{stats.memory_hits} from memory"
    )
    print(f"   cache: {pf.cache_dir()}")
    return 0
