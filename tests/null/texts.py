"""GPU kernel text of many graphs, and its emulation: compiled for the host and run thread by thread."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.engine import reference
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_source
from pyflame.engine.value import Value
from pyflame.ir import Node
from pyflame.ir.kernel import Draft, GpuSource, Launch
from pyflame.runtime.cache import digest
from pyflame.runtime.rocm.clang import ClangHip, find_clang
from tests.emulated import PARTED, host_compiler, kept_for_host
from tests.needs import need

Build = Callable[[], list[Any]]
rng = np.random.default_rng(0)


def randn(*shape: int, dtype: Any = np.float32) -> Any:
    return pf.tensor(rng.standard_normal(shape).astype(np.float32), dtype=dtype)


def complex_numbers(dtype: Any, size: int) -> list[Any]:
    z = pf.tensor(rng.standard_normal((6, size, 2))[..., 0] + 1j * rng.standard_normal((6, size)), dtype=dtype)
    w = pf.tensor(rng.standard_normal(size) + 1j * rng.standard_normal(size), dtype=dtype)
    return [z * w + 2j, (z.T / w[:6]).contiguous(), z.abs().sum(0), z.sum(1), pf.where(z.real > 0, z, w)]


def rotary() -> list[Any]:
    """Of (B, T, H, D) by angles (T, D / 2)."""
    x, angles = randn(2, 5, 3, 16), randn(5, 8)
    turned = pf.view_as_complex(x.reshape(2, 5, 3, 8, 2)) * pf.polar(pf.ones(5, 8), angles).reshape(1, 5, 1, 8)
    return [pf.view_as_real(turned).flatten(3)]


# --- graphs -----------------------------------------------------------------------------------------------------------


def softmax(x: Any, axis: int = -1) -> Any:
    e = (x - x.amax(axis=axis, keepdims=True)).exp()
    return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    n = 1.0 / x.shape[-1]
    centred = x - x.sum(axis=-1, keepdims=True) * n
    return centred * ((centred * centred).sum(axis=-1, keepdims=True) * n + 1e-5).rsqrt() * w + b


def chain(shape: tuple[int, ...], dtype: Any = pf.float32) -> list[Any]:
    """Broadcasts, casts, a view and costly functions."""
    x, row, column = randn(*shape, dtype=dtype), randn(shape[-1]), randn(shape[0], *[1] * (len(shape) - 1))
    y = (x * 0.5 + row).tanh() * column
    return [(y.exp() - x).relu().cast(pf.bfloat16).cast(pf.float32) + (x > 0.0).cast(pf.float32)]


def gather(bad: bool = False) -> list[Any]:
    from pyflame.ir import F
    from pyflame.tensor import Tensor

    table = randn(11, 24)
    index = pf.tensor(np.array([3, -1, 0, 11 if bad else 10, 7, 7, 2]))
    return [Tensor(F.gather_at(table._node, (F.reshape(index._node, (7, 1)),), (0,), (1, 1), (7, 24))) * 2.0]


def mlp() -> list[Any]:
    x, t = randn(16, 12), randn(16, 10)
    parameters = [p.requires_grad_() for p in (randn(12, 32), randn(32), randn(32, 10), randn(10))]
    w1, b1, w2, b2 = parameters
    loss = ((softmax((x @ w1 + b1).tanh() @ w2 + b2) - t) * 0.5).exp().sum()
    loss.backward()
    return [loss, *(p.grad for p in parameters)]


def log_sums(x: Any) -> list[Any]:
    """The maximum and the sum of exp(x - max) of each row."""
    high = x.amax(axis=-1, keepdims=True)
    return [high, (x - high).exp().sum(axis=-1)]


def odd_rows(columns: int) -> Any:
    """Rows whose maximum is no number, or none that a difference can be taken of, beside common ones."""
    x = rng.standard_normal((9, columns)).astype(np.float32)
    x[0] = x[1, 5:] = -np.inf
    x[2, 3] = np.inf
    x[3, 2:4] = np.inf
    x[4, columns // 2] = np.nan
    x[5] = np.finfo(np.float32).min
    x[6] = np.finfo(np.float32).max
    x[7] *= 1e30
    return pf.tensor(x)


def gelu_backward(rows: int, columns: int) -> list[Any]:
    """The gradients of x and of a bias in gelu(x + bias), by both formulas."""
    out = []
    for approximate in ("none", "tanh"):
        x, g = (randn(rows, columns, dtype=pf.bfloat16).cast(pf.float32) for _ in range(2))
        x.requires_grad_()
        (grad,) = pf.autograd.grad(pf.gelu(x, approximate), x, g)
        out += [grad.cast(pf.bfloat16), grad.sum(axis=0)]
    return out


def transposed(rows: int, columns: int) -> list[Any]:
    return [(randn(columns, rows).permute(1, 0) + randn(rows, columns)).contiguous()]


CASES: dict[str, Build] = {
    "chain": lambda: chain((6, 40)),
    "chain odd": lambda: chain((5, 37)),
    "chain 3d": lambda: chain((3, 4, 8)),
    "chain bf16": lambda: chain((4, 64), pf.bfloat16),
    "chain f16": lambda: chain((4, 33), pf.float16),
    "chain f64": lambda: chain((4, 36), pf.float64),
    "scalar": lambda: [randn().exp() + 1.0],
    "transposed": lambda: transposed(12, 20),
    "transposed odd": lambda: transposed(7, 13),
    "turned": lambda: transposed(70, 45),
    "turned halves": lambda: [randn(70, 130, dtype=pf.bfloat16).permute(1, 0).contiguous()],
    "turned doubles": lambda: [(randn(33, 64, dtype=pf.float64).permute(1, 0) * 2.0).contiguous()],
    "turned 3d": lambda: [randn(3, 20, 37).permute(0, 2, 1).contiguous(), randn(17, 5, 33).permute(2, 1, 0).exp()],
    "turned backwards": lambda: [(randn(40, 35).flip(0).permute(1, 0) + randn(35, 40)).exp()],
    "turned twice": lambda: [randn(40, 35).permute(1, 0) * randn(40, 35).permute(1, 0) + randn(35, 40)],
    "integers": lambda: [
        pf.tensor(np.arange(60).reshape(5, 12)).cast(pf.int8) * pf.tensor(np.arange(12), dtype=pf.int8)
    ],
    "gather": gather,
    "softmax 5": lambda: [softmax(randn(9, 5))],
    "softmax 40": lambda: [softmax(randn(33, 40))],
    "softmax 1000": lambda: [softmax(randn(3, 1000))],
    "softmax 5000": lambda: [softmax(randn(2, 5000))],
    "softmax odd": lambda: [softmax(randn(3, 1009))],
    "softmax columns": lambda: [softmax(randn(50, 33), axis=0)],
    "softmax bf16": lambda: [softmax(randn(4, 256, dtype=pf.bfloat16))],
    "softmax f64": lambda: [softmax(randn(4, 130, dtype=pf.float64))],
    "softmax 20000": lambda: [softmax(randn(2, 20000, dtype=pf.bfloat16)), softmax(randn(3, 20001))],
    "softmax long columns": lambda: [softmax(randn(6000, 3), axis=0)],
    "log sums": lambda: [*log_sums(odd_rows(40)), *log_sums(odd_rows(3000)), *log_sums(odd_rows(30001))],
    "rows that stay packed": lambda: [
        (lambda x, w: x * (x * w).sum(axis=-1, keepdims=True) + (x + w).amax(axis=-1, keepdims=True))(
            randn(40, 2048, dtype=pf.bfloat16), randn(2048, dtype=pf.bfloat16)
        )
    ],
    "layer norm": lambda: [layer_norm(randn(6, 96), randn(96), randn(96))],
    "layer norm long": lambda: [layer_norm(randn(2, 6000), randn(6000), randn(6000))],
    "layer norm very long": lambda: [layer_norm(randn(2, 50000), randn(50000), randn(50000))],
    "two outputs": lambda: (lambda x, s: [s, x - s.reshape(5, 1)])(*(lambda x: (x, x.sum(axis=1)))(randn(5, 70))),
    "sum 0": lambda: [randn(40, 6, 9).sum(axis=0)],
    "sum 1": lambda: [randn(5, 40, 9).sum(axis=1)],
    "sum 2": lambda: [randn(5, 6, 40).sum(axis=2)],
    "sum 0 2": lambda: [randn(5, 6, 40).sum(axis=(0, 2))],
    "sum 1 of permuted": lambda: [randn(5, 6, 40).permute(2, 0, 1).sum(axis=1)],
    "sum rows of 1": lambda: [(randn(200, 1) * 2.0).sum(axis=1)],
    "sum all": lambda: [(randn(300, 1000) * 2.0).sum()],
    "sum few rows": lambda: [(randn(2, 60000) * 0.001).sum(axis=1).exp()],
    "sum few columns": lambda: [randn(40000, 3).sum(axis=0), randn(9000, 40).amax(axis=0)],
    "sum wide columns": lambda: (lambda x, y, r: [x.sum(axis=0), (x * (y - r)).sum(axis=0), (y * r).amax(axis=0)])(
        randn(300, 64, dtype=pf.bfloat16), randn(300, 64, dtype=pf.bfloat16), randn(300, 1)
    ),
    "gelu backward": lambda: gelu_backward(300, 64),
    "sum wide columns of few": lambda: [(randn(5, 7, 24) * 2.0).sum(axis=1).exp(), randn(3, 9, 20).sum(axis=(0, 1))],
    "sum integers": lambda: [
        pf.tensor(np.arange(3000).reshape(3, 1000)).sum(axis=1),
        pf.tensor(np.arange(30).reshape(5, 6)).max(),
    ],
    "complex product": lambda: complex_numbers(pf.complex64, 31),
    "complex product f64": lambda: complex_numbers(pf.complex128, 64),
    "rotary": lambda: rotary(),
    "broadcast sum": lambda: [(randn(8, 1) + randn(1, 30)).sum(axis=1)],
    "mlp": mlp,
}

AMD = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
# Short waves and few compute units: small shapes then take every path.
TINY = Target("gfx942", "hip", (), 4, 4, 64 * 1024)


@dataclass
class Planned:
    """A case's plan for a target, the text of its launches, and what it needs to run."""

    plan: Draft
    sources: list[GpuSource | None]  # None: a kernel of its own that is another test's matter
    inputs: list[Value]
    constants: list[Any]
    outputs: list[Any]
    order: list[Node]

    @functools.cached_property
    def references(self) -> dict[Node, Any]:
        """What the ops' NumPy twins say."""
        return reference.compute(self.order)


Sources = Callable[[Launch, Target, bool], GpuSource | None]


def fused(launch: Launch, target: Target, aligned: bool) -> GpuSource | None:
    """Generated text: whole kernels, and what follows a product."""
    anchor = launch.kernel.anchor
    return None if anchor and anchor.op.name != "matmul" else gpu_source(launch, target, aligned)


def planned(build: Build, target: Target, aligned: bool = True, source: Sources = fused) -> Planned:
    outputs = build()
    graph = PendingGraph([t._node for t in outputs], keep_held=False)
    plan = draft_plan(graph, target)
    sources = [source(launch, target, aligned) for launch in plan.launches]
    return Planned(
        plan, sources, [n.data for n in graph.inputs], [n.data for n in graph.constants], outputs, graph.order
    )


def symbol(text: str) -> str:
    return "k" + digest(text)[:16]


def named(text: str) -> str:
    return text.replace("PF_KEY", symbol(text))


def all_texts(target: Target, aligned: bool = True) -> dict[str, GpuSource]:
    """The distinct texts of all cases, each under names of its own."""
    found = [s for name in CASES for s in planned(CASES[name], target, aligned).sources if s is not None]
    return {named(s.text): s for s in found}


# --- what clang makes of them -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def clang() -> ClangHip:
    return ClangHip(need(find_clang(), "a clang with the AMDGPU target"))


def metadata(code: bytes, folder: Path) -> dict[str, dict[str, int]]:
    """The numbers that a code object's notes give for each kernel."""
    file = folder / "kernels.hsaco"
    file.write_bytes(code)
    names = ["llvm-readobj", *(f"llvm-readobj-{n}" for n in range(40, 16, -1))]
    tool = need(next(filter(None, map(shutil.which, names)), None), "llvm-readobj")
    text = subprocess.run([tool, "--notes", str(file)], capture_output=True, text=True, check=True).stdout
    kernels: dict[str, dict[str, int]] = {}
    for part in re.split(r"\n  - \.", text)[1:]:
        symbol = re.search(r"\.name:\s+(\S+)\n(?!\s+\.(?:offset|size))", part)
        numbers = {k: int(v) for k, v in re.findall(r"\.(\w+):\s+(\d+)$", part, re.MULTILINE)}
        if symbol and "vgpr_count" in numbers:
            kernels[symbol[1]] = numbers
    return kernels


# --- what they compute ------------------------------------------------------------------------------------------------


def host_library(text: str, wave: int, folder: Path) -> ctypes.CDLL:
    """Kernels compiled for the host; kept on disk, since the workers of a run need the same ones."""
    need(host_compiler(), "a C++ compiler")
    return ctypes.CDLL(str(kept_for_host(text, wave, folder)))


def launch_host(run: Any, kernel_args: Sequence[int], grid: int, block: int, reverse: bool = False) -> int:
    array = np.array(kernel_args, np.int64)
    return int(run(ctypes.c_void_p(array.ctypes.data), ctypes.c_longlong(grid), block, int(reverse)))


class Emulator:
    """The texts of some cases for one target, compiled for the host."""

    def __init__(
        self, cases: dict[str, Build], target: Target, aligned: bool, folder: Path, source: Sources = fused
    ) -> None:
        self.cases = {name: planned(build, target, aligned, source) for name, build in cases.items()}
        sources = {s.text: s for case in self.cases.values() for s in case.sources if s is not None}
        lines = []
        for text, source in sources.items():
            lines.append(named(text))
            lines += [
                f"EMU_EXPORT({symbol(text)}{suffix})" for suffix in dict.fromkeys(p.suffix for p in source.phases)
            ]
        self.library = host_library("\n".join(lines), target.wave_size, folder)

    def run(self, case: Planned, reverse: bool) -> tuple[list[Any], list[int]]:
        """The plan's outputs as arrays, and the error record."""
        plan = case.plan
        memory = [Guarded(b.nbytes) for b in plan.buffers]
        address = [m.address for m in memory]
        for i, b in enumerate(plan.buffers):
            if b.role == "input" and b.position in plan.overwritten_inputs:
                ctypes.memmove(memory[i].address, case.inputs[b.position].address, b.nbytes)
            elif b.role == "input":
                address[i] = case.inputs[b.position].address
        values = [case.constants[v] if source == "slot" else v for source, v, _ in plan.uniforms]
        floats = [f for _, _, f in plan.uniforms]
        words = [int(np.float64(v).view(np.int64)) if f else int(v) for v, f in zip(values, floats, strict=True)]
        uniforms = np.array(words or [0], np.int64)
        error = np.zeros(3, np.int64)
        for launch, source in zip(plan.launches, case.sources, strict=True):
            pointers = [address[b] + offset for b, offset in launch.buffers]
            assert source is not None
            pointers = pointers[: source.buffers]
            assert all(p % a == 0 for p, a in zip(pointers, source.alignment, strict=True))
            scratch = Guarded(source.scratch_bytes)
            for phase in source.phases:
                common = [scratch.address, uniforms.ctypes.data, error.ctypes.data]
                run = getattr(self.library, f"run_{symbol(source.text)}{phase.suffix}")
                parted = launch_host(run, [*pointers, *common, *phase.args], phase.grid, phase.block, reverse)
                assert parted == 0, f"{PARTED} in\n{source.text}"
            scratch.check()
        for m in memory:
            m.check()
        out = []
        for view, tensor in zip(plan.outputs, case.outputs, strict=True):
            itemsize = tensor.dtype.itemsize
            strides = None if view.strides is None else [s * itemsize for s in view.strides]
            start = address[view.buffer] + view.offset * itemsize
            out.append(_view(start, tensor.shape, tensor.dtype.numpy, strides).copy())
        return out, error.tolist()


class Guarded:
    """Memory between two fences that nobody may write to; filled with what is NaN as any float."""

    FENCE = 256

    def __init__(self, nbytes: int) -> None:
        self.raw = np.full(nbytes + 3 * self.FENCE, 0xFF, np.uint8)
        self.start = self.FENCE + -(self.raw.ctypes.data + self.FENCE) % 64
        self.end = self.start + nbytes
        self.address = self.raw.ctypes.data + self.start

    def check(self) -> None:
        assert (self.raw[: self.start] == 0xFF).all(), "written before the start of a buffer"
        assert (self.raw[self.end :] == 0xFF).all(), "written behind the end of a buffer"


def _view(address: int, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None) -> Any:
    if 0 in shape:
        return np.array([], dtype).reshape(shape)
    bits = np.dtype(f"V{dtype.itemsize}")  # as_strided does not know small floats
    raw = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (dtype.itemsize,)).view(bits)
    return np.lib.stride_tricks.as_strided(raw, shape, strides or np.empty(shape, dtype).strides).view(dtype)
