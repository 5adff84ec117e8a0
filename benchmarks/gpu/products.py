"""Matrix products against torch, and cuBLASLt through our binding where there is one.

A product leaves its result in a tensor that exists before, as torch's caching allocator does in effect. "cuBLASLt best"
is the fastest of the library's first proposals, "cuBLASLt first" the one that it likes best; the note says what our
plan has chosen for itself. Small products measure the host as much as the GPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Call, Group, Line
from benchmarks.gpu.models import without_libraries
from benchmarks.gpu.ops import normal
from benchmarks.peers import torch_tensor
from pyflame.libs.cuda.cublaslt import CublasLt
from pyflame.libs.gemm import GemmSpec

PROPOSALS = 8
WORKSPACE = 32 << 20
FAR = 2e-2


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
    chain: int = 1  # products in a row, each of the result of the one before

    @property
    def spec(self) -> GemmSpec:
        b = (1, self.k, self.k * self.n) if self.b_by_columns else (self.n, 1, self.k * self.n)
        sizes = (self.m, self.n, self.k, self.dtype)
        return GemmSpec(*sizes, batch=self.batch, b=b, tf32=self.tf32, bias=self.bias)

    def smaller(self) -> Case:
        return replace(self, m=-(-self.m // 64), n=-(-self.n // 64), k=-(-self.k // 64), batch=min(self.batch, 3))


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

# Our own kernel beside the library: large, of a GPT's width, and few rows, as a batch of tokens has.
OWN_CASES = [
    Case(8192, 8192, 8192, "bfloat16"),
    Case(8192, 8192, 8192, "bfloat16", b_by_columns=True),
    Case(4096, 4096, 4096, "bfloat16"),
    Case(4096, 4096, 4096, "bfloat16", b_by_columns=True),
    Case(4096, 4096, 4096, "float16", b_by_columns=True),
    Case(4096, 4096, 4096, "float32"),
    Case(16384, 768, 768, "bfloat16", b_by_columns=True),
    *(Case(m, 4096, 4096, "bfloat16", b_by_columns=True) for m in (1, 4, 8, 16, 32, 64)),
    *(Case(m, 4096, 4096, "bfloat16") for m in (16, 64)),
    # The same without the host's time: of many products in a row only the first has to wait for it.
    *(Case(m, 4096, 4096, "bfloat16", b_by_columns=c, chain=32) for m in (1, 8, 16, 32, 64) for c in (True, False)),
]

Operands = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _operands(case: Case) -> Operands:
    """A, B as it lies in memory, and the bias."""
    many = (case.batch,) if case.batch > 1 else ()
    b = (case.n, case.k) if case.b_by_columns else (case.k, case.n)
    a, w, bias = (normal(*shape, dtype=case.dtype) for shape in ((*many, case.m, case.k), (*many, *b), (case.n,)))
    # results of a chain stay as large as its input
    return a, (w * w.dtype.type(case.k**-0.5)).astype(w.dtype) if case.chain > 1 else w, bias


def _ours(case: Case, bench: Bench, operands: Operands, note: list[str], why: bool = False) -> dict[str, Call]:
    left, right, bias = (pf.tensor(x, device=bench.device) for x in operands)
    shape = (*left.shape[:-1], case.n)
    result = pf.zeros(*shape, dtype=getattr(pf, case.dtype), device=bench.device) + 0.0
    pf.eval(left, right, bias, result)

    @pf.jit
    def step() -> None:
        y = left
        for _ in range(case.chain):
            y = y @ (right.swapaxes(-1, -2) if case.b_by_columns else right)
        result.copy_(y + bias if case.bias else y)

    def run() -> Any:
        step()
        return result

    run()
    launches = pf.explain(step, run=False).launches[-1 if case.chain > 1 else 0 :]
    note.append("plan: " + " + ".join(x.why if why else x.implementation for x in launches))
    return {"pyflame": run}


def _torch(case: Case, bench: Bench, operands: Operands) -> dict[str, Call]:
    import torch

    a, b, bias = (torch_tensor(x, bench.torch_device) for x in operands)
    turned = b.mT if case.b_by_columns else b
    if case.bias:
        return {"torch": lambda: torch.nn.functional.linear(a, turned.mT, bias)}

    def run() -> Any:
        y = a
        for _ in range(case.chain):
            y = torch.matmul(y, turned)
        return y

    return {"torch": run}


@functools.cache
def _cublaslt() -> CublasLt:
    return CublasLt()


def _library(case: Case, bench: Bench, operands: Operands) -> dict[str, Call]:
    """cuBLASLt's first proposal and its best one, on torch's memory and torch's default stream."""
    import torch

    lt = _cublaslt()
    a, b, bias = (torch_tensor(x, bench.torch_device) for x in operands)
    c = torch.empty((*a.shape[:-1], case.n), device=a.device, dtype=a.dtype)
    area = torch.empty(WORKSPACE, device=a.device, dtype=torch.uint8)
    spec = case.spec

    def proposal(rank: int) -> Call:
        def run() -> Any:
            lt.matmul(
                spec, a.data_ptr(), b.data_ptr(), c.data_ptr(), bias.data_ptr() if case.bias else 0, 0,
                area.data_ptr(), WORKSPACE, rank,
            )  # fmt: skip
            return c

        return run

    ranks = range(lt.count(spec, WORKSPACE, PROPOSALS))
    quick = replace(bench, rounds=3, seconds=0.01)
    seconds, _ = quick.measure({str(r): lambda r=r: {f"cuBLASLt {r}": proposal(r)} for r in ranks})
    best = int(min(seconds, key=lambda n: seconds[n], default="cuBLASLt 0").split()[1])
    return {"cuBLASLt first": proposal(0), "cuBLASLt best": proposal(best)}


def matmul(bench: Bench, section: str = "matmul") -> None:
    """Products of all sizes; flops count twice the multiplications."""
    for case in [c.smaller() for c in CASES] if bench.small else CASES:
        bench.set_precision("high" if case.tf32 else "highest")
        operands, note = _operands(case), []
        groups: dict[str, Group] = {"pyflame": functools.partial(_ours, case, bench, operands, note)}
        if bench.takes("torch"):
            groups["torch"] = functools.partial(_torch, case, bench, operands)
        if bench.takes("torch") and bench.device.startswith("cuda"):
            groups["cuBLASLt"] = functools.partial(_library, case, bench, operands)
        seconds, failed = bench.measure(groups, FAR)
        name = case.spec.text + (" B by columns" if case.b_by_columns else "")
        unit = "GFLOP/s" if bench.small else "TFLOP/s"
        line = Line(name, case.spec.flops, unit, seconds, failed=failed, goals={"torch": 0.97}, note="".join(note))
        bench.add(section, line)


def own(bench: Bench, section: str = "own") -> None:
    """Products by our own kernel, with libraries switched off for it, beside torch's library and our plan's choice.

    The note says which blocks of matrix tiles were timed.
    """
    bench.set_precision("highest")
    for case in [c.smaller() for c in OWN_CASES] if bench.small else OWN_CASES:
        operands, note, ignored = _operands(case), [], []
        groups: dict[str, Group] = {
            "own": functools.partial(_alone, case, bench, operands, note),
            "pyflame": functools.partial(_ours, case, bench, operands, ignored),
        }
        if bench.takes("torch"):
            groups["torch"] = functools.partial(_torch, case, bench, operands)
        seconds, failed = bench.measure(groups, FAR)
        name = case.spec.text + (" B by columns" if case.b_by_columns else "")
        name += f", {case.chain} in a row" if case.chain > 1 else ""
        unit = "GFLOP/s" if bench.small else "TFLOP/s"
        if "own" in seconds and "torch" in seconds:
            note.append(f"own {seconds['torch'] / seconds['own']:.2f}x torch")
        bench.add(section, Line(name, case.chain * case.spec.flops, unit, seconds, failed=failed, note="; ".join(note)))


def _alone(case: Case, bench: Bench, operands: Operands, note: list[str]) -> dict[str, Call]:
    """Our own kernel."""
    with without_libraries(True):
        (run,) = _ours(case, bench, operands, note, why=True).values()
    return {"own": run}
