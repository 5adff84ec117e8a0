"""Simulated GPUs whose kernels are much like another's: gfx90a and gfx950 are relatives
of gfx942, gfx1201 is one of gfx1100.

What the tests of the two run in full is sampled here: our kernels decode, every type of number gives the right results,
atomics, graphs and user kernels work. test_catalogue.py runs some ops on each, `thorough` all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.core.errors import ArgumentError, DeviceError
from pyflame.core.targets import TARGETS
from pyflame.runtime.sim.checks import SIMULATED
from pyflame.runtime.sim.machine import Machine
from pyflame.runtime.sim.memory import Memory

RELATIVES = tuple(t for t in SIMULATED if t not in ("gfx942", "gfx1100"))
each_relative = pytest.mark.parametrize("target", RELATIVES)


FEW = ("matmul_odd", "conv2d", "scatter_reduce", "sort", "cumsum", "attention")


@pytest.mark.slow
@each_relative
@pytest.mark.parametrize("programs", [
    FEW, pytest.param([n for n in PROGRAMS if n not in FEW], marks=pytest.mark.thorough)], ids=["some", "the rest"],
)  # fmt: skip
def test_our_kernels_are_decoded(target: str, programs: Sequence[str]) -> None:
    machine, memory = Machine(target, Memory(1 << 28)), set[bytes]()
    for name in programs:
        function, inputs = PROGRAMS[name]()
        try:
            plan = pf.aot.compile(function, *inputs, target=target)
        except DeviceError:  # an op that has no kernel on any GPU
            continue
        for launch in plan.launches:
            if launch.code_object in memory:
                continue
            memory.add(launch.code_object)
            module = machine.load(launch.code_object)
            code = machine.code(next(iter(module.kernels.values())))
            assert not {code.texts[n]: why for n, why in code.problems.items()}, (name, launch.name)
    assert len(memory) > 5


KINDS: dict[Any, tuple[Any, float]] = {
    pf.float16: (np.float16, 2e-3), pf.bfloat16: (ml_dtypes.bfloat16, 2e-2), pf.float64: (np.float64, 1e-12),
}  # fmt: skip


@pytest.mark.slow
@each_relative
def test_types_of_numbers(target: str) -> None:
    """Arithmetic, a product and sums of floats; integers wrap and divide. In one evaluation, compiled at once."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 33, 20)).astype(np.float32)
    m, n = rng.integers(-100, 100, (2, 50)).astype(np.int64)
    n[n == 0] = 3
    found: list[pf.Tensor] = []
    wanted: list[tuple[Any, float]] = []
    with pf.device(f"sim:{target}"):
        for dtype, (numpy, tolerance) in KINDS.items():
            x, y = (pf.tensor(v).to(dtype) for v in (a, b))
            left, right = (v.astype(numpy).astype(np.float64) for v in (a, b))
            found += [x * y + x / (y * y + 1.0), pf.exp(x).sum(1), x @ y.T]
            exact = (left * right + left / (right * right + 1), np.exp(left).sum(1), left @ right.T)
            wanted += [(want, tolerance) for want in exact]
        for dtype in (np.int8, np.int64):
            p, q = (pf.tensor(v.astype(dtype)) for v in (m, n))
            found += [p * q + p, p // q]
            wanted += [((m * n + m).astype(dtype), 0), ((m // n).astype(dtype), 0)]
        pf.eval(*found)
    for got, (want, tolerance) in zip(found, wanted, strict=True):
        values = got.to(pf.float64).numpy() if got.dtype.is_float else got.numpy()
        np.testing.assert_allclose(values, want, rtol=tolerance, atol=8 * tolerance)


ATOMICS = """
extern "C" __global__ void count(int* total, float* sum, double* wide, unsigned long* most, const float* x, int n) {
  __shared__ int local;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  if (i < n) {
    __hip_atomic_fetch_add(&local, i % 3, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_add(sum, x[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(wide, (double)x[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_max(most, (unsigned long)i << 33, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
  __syncthreads();
  if (threadIdx.x == 0) __hip_atomic_fetch_add(total, local, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
"""


@each_relative
@pytest.mark.parametrize("options", [[], ["-O0"], ["-munsafe-fp-atomics"]], ids=["", "-O0", "-munsafe-fp-atomics"])
def test_atomics(target: str, options: list[str]) -> None:
    """Barriers, LDS and atomics of a user kernel; at -O0 its variables live on the stack."""
    device, n = f"sim:{target}", 300
    count = pf.compile_kernel(ATOMICS, "count", device=device, options=options)
    total, sums = pf.zeros(1, dtype=pf.int32, device=device), pf.zeros(1, device=device)
    wide, most = pf.zeros(1, dtype=pf.float64, device=device), pf.zeros(1, dtype=pf.int64, device=device)
    x = pf.arange(n, dtype=pf.float32, device=device)
    pf.eval(total, sums, wide, most, x)
    count(total, sums, wide, most, x, n, grid=2, block=256)
    assert total.item() == sum(i % 3 for i in range(n)) and most.item() == (n - 1) << 33
    assert sums.item() == wide.item() == n * (n - 1) / 2


@pytest.mark.thorough
@each_relative
def test_a_step_of_training_as_a_graph(target: str) -> None:
    losses = {}
    for device in ("cpu", f"sim:{target}"):
        with pf.device(device):
            pf.manual_seed(0)
            model = pf.nn.Sequential(pf.nn.Linear(6, 9), pf.nn.GELU(), pf.nn.Linear(9, 3))
            optimizer = pf.optim.AdamW(model.parameters(), lr=1e-2)
            x, y = pf.randn(8, 6), pf.randn(8, 3)

            @pf.jit
            def step(x: pf.Tensor, y: pf.Tensor, model: Any = model, optimizer: Any = optimizer) -> pf.Tensor:
                loss = pf.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss

            losses[device] = [step(x, y).item() for _ in range(4)]
    np.testing.assert_allclose(losses[f"sim:{target}"], losses["cpu"], rtol=1e-4)


@each_relative
def test_limits_of_a_block(target: str) -> None:
    """What a block may use of the LDS is the target's."""
    source = """extern "C" __global__ void k(int* x) {
      extern __shared__ int s[];
      s[threadIdx.x] = 1;
      x[threadIdx.x] = s[threadIdx.x];
    }"""
    device, most = f"sim:{target}", TARGETS[target].lds_bytes
    kernel = pf.compile_kernel(source, "k", device=device)
    x = pf.zeros(32, dtype=pf.int32, device=device)
    kernel(x, grid=1, block=32, shared=most)
    assert x.tolist() == [1] * 32
    with pytest.raises(ArgumentError, match=r"LDS|shared"):
        kernel(x, grid=1, block=32, shared=most + 1)
