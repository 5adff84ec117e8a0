"""PyFlame's products and cuBLASLt through its binding against torch.matmul, on a real NVIDIA GPU, in one run.

    python -m benchmarks.gpu_matmul

Each contender works on operands of its own with normal values (zeros raise the clock), takes turns with the others in
rounds, and is timed by the GPU's events; the median of the rounds counts. "best of N" tries the library's first N
proposals and keeps the fastest; "first" is the one the library likes best. "plan" is `pf.jit` of the product, which
chooses by measuring and replays a captured graph; torch and the binding launch one by one, so small products measure
their host as much as the GPU.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine.devices import get_device
from pyflame.libs.cuda.cublaslt import CublasLt
from pyflame.libs.gemm import GemmSpec
from tests.gpu.memory import Area
from tests.gpu.nvidia import Clock, Nvidia, absent, done, driver

ROUNDS, SECONDS, PROPOSALS = 9, 0.05, 8
WORKSPACE = 32 << 20


@dataclass(frozen=True)
class Case:
    """A product, and whether B is given by columns, as the weight of a linear layer is."""

    m: int
    n: int
    k: int
    dtype: str
    batch: int = 1
    b_by_columns: bool = False
    tf32: bool = False
    bias: bool = False

    @property
    def spec(self) -> GemmSpec:
        b = (1, self.k, self.k * self.n) if self.b_by_columns else (self.n, 1, self.k * self.n)
        sizes = (self.m, self.n, self.k, self.dtype)
        return GemmSpec(*sizes, batch=self.batch, b=b, tf32=self.tf32, bias=self.bias)


CASES = [
    Case(8192, 8192, 8192, "bfloat16"),
    Case(8192, 8192, 8192, "bfloat16", b_by_columns=True),
    Case(4096, 4096, 4096, "bfloat16"),
    Case(4096, 4096, 4096, "float16"),
    Case(4096, 4096, 4096, "float32", tf32=True),
    Case(4096, 4096, 4096, "float32"),
    Case(16384, 768, 768, "bfloat16", b_by_columns=True),
    Case(16384, 3072, 768, "bfloat16", b_by_columns=True, bias=True),
    Case(16384, 50304, 768, "bfloat16", b_by_columns=True),
    Case(1024, 1024, 64, "bfloat16", batch=192, b_by_columns=True),
    Case(256, 1024, 784, "float32", b_by_columns=True, bias=True, tf32=True),
    Case(1, 4096, 4096, "bfloat16", b_by_columns=True),
]


def seconds_of(contenders: dict[str, Callable[[], object]], stream: int = 0) -> dict[str, float]:
    """Median seconds of a call, contenders in turns; `stream`: that of "plan"."""
    repeats = {}
    for name, run in contenders.items():
        for _ in range(3):
            run()
        with Clock(stream if name == "plan" else 0) as clock:
            run()
        repeats[name] = max(1, min(2000, int(SECONDS / max(clock.seconds(), 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            done(driver.cuCtxSynchronize())
            with Clock(stream if name == "plan" else 0) as clock:
                for _ in range(repeats[name]):
                    run()
            times[name].append(clock.seconds() / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def operands(case: Case, torch: Any) -> tuple[Any, Any, Any, Any]:
    kind = getattr(torch, case.dtype)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.float32).to(kind)

    many = (case.batch,) if case.batch > 1 else ()
    a = normal(*many, case.m, case.k)
    b = normal(*many, case.n, case.k).mT if case.b_by_columns else normal(*many, case.k, case.n)
    return a, b, torch.empty((*many, case.m, case.n), device="cuda", dtype=kind), normal(case.n)


def planned(case: Case, a: Any, b: Any, bias: Any, want: Any, torch: Any) -> tuple[Callable[[], object], str]:
    """The product as a jitted step that leaves its result in a cell, and what was chosen for it."""
    pf.set_float32_matmul_precision("high" if case.tf32 else "highest")

    def here(value: Any) -> pf.Tensor:
        host = value.contiguous().view(torch.int16 if value.element_size() == 2 else value.dtype).cpu().numpy()
        kind = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}.get(case.dtype, np.float32)
        return pf.tensor(host.view(kind), device="cuda:0")

    left, right, along = here(a), here(b.mT if case.b_by_columns else b), here(bias)
    result = pf.zeros(*want.shape, dtype=getattr(pf, case.dtype), device="cuda:0") + 0.0
    pf.eval(left, right, along, result)

    @pf.jit
    def step() -> None:
        y = left @ (right.swapaxes(-1, -2) if case.b_by_columns else right)
        result.copy_(y + along if case.bias else y)

    for _ in range(3):
        step()
    rows = want[..., -64:, :].float().cpu().numpy()
    far = np.abs(result[..., -64:, :].to(pf.float32).numpy() - rows).max() / np.abs(rows).max()
    assert far < 2e-2, f"{case.spec.text}: results differ by {far:.3g}"
    chosen = [x.implementation for x in pf.explain(step, run=False).launches]
    return step, " + ".join(chosen)


def compare(lt: CublasLt, case: Case, area: Area, torch: Any) -> tuple[dict[str, float], str]:
    """Seconds of torch, of the library's first proposal, of its best one and of a plan, and what the plan launches."""
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    a, b, c, bias = operands(case, torch)
    spec = case.spec
    where = (a.data_ptr(), b.data_ptr(), c.data_ptr(), bias.data_ptr() if case.bias else 0, 0, area.address, WORKSPACE)

    def ours(rank: int) -> Callable[[], object]:
        return lambda: lt.matmul(spec, *where, rank)

    def peer() -> object:
        if case.bias:
            return torch.nn.functional.linear(a, b.mT, bias)
        return torch.matmul(a, b)

    want = peer()
    ours(0)()
    torch.cuda.synchronize()
    difference = float((c.float() - want.float()).abs().max() / want.float().abs().max())
    assert difference < 2e-2, f"{spec.text}: results differ by {difference:.3g}"
    step, chosen = planned(case, a, b, bias, want, torch)
    del want
    quick = {str(r): ours(r) for r in range(lt.count(spec, WORKSPACE, PROPOSALS))}
    best = 0
    if len(quick) > 1:
        times = seconds_of(quick)
        best = int(min(times, key=lambda name: times[name]))
    stream = get_device(DeviceId("cuda", 0)).stream.handle
    return seconds_of({"torch": peer, "first": ours(0), "best": ours(best), "plan": step}, stream), chosen


def main() -> None:
    if absent():
        sys.exit(absent())
    import torch

    torch.cuda.init()
    gpu = Nvidia()  # the same primary context that torch uses
    lt = CublasLt()
    area = Area(WORKSPACE)
    print(f"{gpu.name}; cuBLASLt {lt.version} from {lt.path}; torch {torch.__version__}")
    heads = f"{'torch':>10}{'first':>10}{f'best of {PROPOSALS}':>12}{'plan':>10}"
    print(f"{'work':52}{heads}   ratio to torch (first, best, plan)")
    for case in CASES:
        seconds, chosen = compare(lt, case, area, torch)
        rates = {name: case.spec.flops / s / 1e12 for name, s in seconds.items()}
        columns = " B by columns" if case.b_by_columns else ""
        ratios = "".join(f"{seconds['torch'] / seconds[n]:8.3f}" for n in ("first", "best", "plan"))
        shown = "".join(f"{rates[n]:10.1f}" for n in ("torch", "first")) + f"{rates['best']:12.1f}{rates['plan']:10.1f}"
        print(f"{case.spec.text + columns:52}{shown}   {ratios}  TFLOP/s; plan: {chosen}", flush=True)
    done(driver.cuCtxSynchronize())


if __name__ == "__main__":
    main()
