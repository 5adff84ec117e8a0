"""Convolutions of small CNNs, forward and backward, against torch (oneDNN): 2*N*O*C*k*k*pixels flops each way."""

from __future__ import annotations

import numpy as np

import pyflame as pf
from benchmarks.peers import have
from benchmarks.timing import Result, measure

# batch, channels, outputs, size, kernel, stride, groups
CASES = [
    (64, 3, 32, 32, 3, 1, 1),
    (64, 32, 64, 32, 3, 1, 1),
    (64, 128, 128, 8, 3, 1, 1),
    (16, 64, 256, 28, 1, 1, 1),
    (16, 64, 128, 32, 3, 2, 1),
    (16, 64, 64, 32, 3, 1, 64),
]


def run() -> list[Result]:
    if not have("torch"):
        return []
    import torch

    results = []
    for n, c, o, size, k, stride, groups in CASES:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n, c, size, size), dtype=np.float32)
        w = rng.standard_normal((o, c // groups, k, k), dtype=np.float32)
        options = {"stride": stride, "padding": k // 2, "groups": groups}
        a, b = pf.tensor(x), pf.tensor(w)
        ta, tb = torch.from_numpy(x), torch.from_numpy(w)
        forward = pf.jit(lambda u, v, options=options: pf.relu(pf.conv2d(u, v, **options)))

        def step(u: pf.Tensor, v: pf.Tensor, options: dict = options) -> tuple[pf.Tensor, pf.Tensor]:
            u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
            pf.relu(pf.conv2d(u, v, **options)).sum().backward()
            return u.grad, v.grad

        def torch_step(ta: torch.Tensor = ta, tb: torch.Tensor = tb, options: dict = options) -> None:
            u, v = ta.detach().requires_grad_(), tb.detach().requires_grad_()
            torch.relu(torch.conv2d(u, v, **options)).sum().backward()

        backward = pf.jit(step)
        pixels = ((size + 2 * (k // 2) - k) // stride + 1) ** 2
        flops = 2 * n * o * c // groups * k * k * pixels
        name = f"conv {n}x{c}x{size}x{size} -> {o}, {k}x{k} stride {stride} groups {groups}"
        fast = {
            "pyflame": lambda f=forward, a=a, b=b: pf.eval(f(a, b)),
            "torch": lambda ta=ta, tb=tb, options=options: torch.relu(torch.conv2d(ta, tb, **options)),
        }
        slow = {"pyflame": lambda f=backward, a=a, b=b: pf.eval(f(a, b)), "torch": torch_step}
        results.append(Result(name + " + relu", flops, "GFLOP/s", measure(fast, budget=0.6)))
        results.append(Result(name + ", with gradients", 3 * flops, "GFLOP/s", measure(slow, budget=0.6)))
    return results
