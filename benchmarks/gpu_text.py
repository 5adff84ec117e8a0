"""Generated GPU kernel text on a real NVIDIA GPU: memory traffic against what a plain copy reaches in the same run.

    python -m benchmarks.gpu_text

Bytes are those that must move: every input and every output once. A kernel that reads more often than it writes may
beat the copy, which does both in equal parts. Tensors are far larger than the L2, so nothing is kept between calls.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf
from tests.gpu.nvidia import Clock, Nvidia, Prepared, absent, done, driver
from tests.gpu.programs import Program

ROUNDS, REPEATS = 7, 20
MEGA = 1 << 20
COPY_BYTES = 512 * MEGA


def normal(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    return pf.tensor(np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype.numpy))


def chain() -> pf.Tensor:
    x, a, b, c = normal(64 * MEGA), normal(1), normal(1), normal(1)
    return pf.gelu(x * a + b) * pf.sigmoid(x) + c


def chain_bf16() -> pf.Tensor:
    x, a, b, c = (normal(n, dtype=pf.bfloat16) for n in (64 * MEGA, 1, 1, 1))
    return pf.gelu(x * a + b) * pf.sigmoid(x) + c


def rows(op: Callable[[pf.Tensor], pf.Tensor], dtype: pf.DType = pf.bfloat16) -> Callable[[], pf.Tensor]:
    return lambda: op(normal(16384, 8192, dtype=dtype))


def layer_norm(x: pf.Tensor) -> pf.Tensor:
    n = x.shape[-1]
    return pf.layer_norm(x, (n,), normal(n, dtype=x.dtype), normal(n, dtype=x.dtype))


def rms_norm(x: pf.Tensor) -> pf.Tensor:
    return pf.rms_norm(x, (x.shape[-1],), normal(x.shape[-1], dtype=x.dtype))


WORK: dict[str, Callable[[], pf.Tensor]] = {
    "gelu(x*a+b)*sigmoid(x)+c 64M f32": chain,
    "gelu(x*a+b)*sigmoid(x)+c 64M bf16": chain_bf16,
    "softmax 16384x8192 bf16": rows(lambda x: pf.softmax(x, axis=-1)),
    "layer_norm 16384x8192 bf16": rows(layer_norm),
    "rms_norm 16384x8192 bf16": rows(rms_norm),
    "softmax 16384x8192 f32": rows(lambda x: pf.softmax(x, axis=-1), pf.float32),
    "sum over rows 16384x8192 f32": rows(lambda x: x.sum(axis=1), pf.float32),
    "sum over columns 16384x8192 f32": rows(lambda x: x.sum(axis=0), pf.float32),
    "sum of all 16384x8192 f32": rows(lambda x: x.sum(), pf.float32),
    "transposed copy 16384x8192 f32": rows(lambda x: x.permute(1, 0).contiguous(), pf.float32),
    "transposed copy 16384x8192 bf16": rows(lambda x: x.permute(1, 0).contiguous()),
}


def seconds_of(work: Callable[[], Any]) -> float:
    """The median of some rounds. A round is many calls, so that the first one's way to the GPU does not count."""
    for _ in range(3):
        work()
    times = []
    clock = Clock()
    for _ in range(ROUNDS):
        with clock:
            for _ in range(REPEATS):
                work()
        times.append(clock.seconds() / REPEATS)
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes read and written per second by the driver's own copy."""
    source, target = (done(driver.cuMemAlloc(COPY_BYTES)) for _ in range(2))
    done(driver.cuMemsetD8(source, 1, COPY_BYTES))
    seconds = seconds_of(lambda: done(driver.cuMemcpyDtoDAsync(target, source, COPY_BYTES, 0)))
    for memory in (source, target):
        done(driver.cuMemFree(memory))
    return 2 * COPY_BYTES / seconds


def measure(gpu: Nvidia, build: Callable[[], pf.Tensor]) -> tuple[Program, float]:
    """A program and its seconds."""
    program = Program([build()], gpu.target)
    gpu.build([program])
    with Prepared(gpu, program) as prepared:
        return program, seconds_of(prepared.launch)


def line(name: str, microseconds: float, rate: float, limit: float, launches: int) -> str:
    return f"{name:36} {microseconds:10.1f} {rate / 1e9:9.0f} {rate / limit:8.1%} {launches:9}"


def main() -> int:
    if absent():
        print(absent())
        return 1
    os.environ.setdefault("PYFLAME_CACHE_DIR", tempfile.mkdtemp(prefix="pyflame-"))
    gpu = Nvidia()
    limit = copy_rate()
    print(f"{gpu.name}, {gpu.target.workers} multiprocessors")
    print(f"{'work':36} {'us':>10} {'GB/s':>9} {'of copy':>8} {'launches':>9}")
    print(line("copy, cuMemcpyDtoDAsync", 2 * COPY_BYTES / limit * 1e6, limit, limit, 1))
    for name, build in WORK.items():
        program, seconds = measure(gpu, build)
        print(line(name, seconds * 1e6, program.nbytes / seconds, limit, len(program.calls)), flush=True)
    again = copy_rate()
    print(line("copy once more", 2 * COPY_BYTES / again * 1e6, again, limit, 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
