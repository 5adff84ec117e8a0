"""The same plans that the CPU runs, as GPU kernel text: built for AMD by clang, and run on the host by an emulation.

What is shown here: every text compiles for each gfx target with no spills and no scratch memory; its code object holds
the kernels; and run thread by thread (`emulate_gpu.h`) it computes what the CPU computes, in two orders of threads.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.codegen.gpu_shape import MAX_BLOCK
from pyflame.core.device import Target
from pyflame.core.errors import CompileError
from pyflame.core.targets import TARGETS
from pyflame.engine import reference
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_source
from pyflame.engine.value import Value
from pyflame.ir import OPS, Node
from pyflame.ir.kernel import Draft, GpuSource, Launch
from pyflame.runtime.cache import digest
from pyflame.runtime.rocm.clang import ClangHip, find_clang
from tests.chosen import chosen
from tests.emulated import PARTED, host_compiler, kept_for_host
from tests.needs import need
from tests.plans import long_positions

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


@pytest.mark.slow
@pytest.mark.parametrize("name", AMD)
def test_builds_without_spills(name: str, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[name]
    texts = all_texts(target)
    code = clang.build("\n".join(texts), target)
    assert code[:4] == b"\x7fELF"
    kernels = metadata(code, tmp_path)
    wanted = {symbol(s.text) + phase.suffix for s in texts.values() for phase in s.phases}
    assert set(kernels) == wanted
    for kernel, numbers in kernels.items():
        assert numbers["private_segment_fixed_size"] == 0, kernel
        assert numbers["vgpr_spill_count"] == 0, kernel
        assert numbers["sgpr_spill_count"] == 0, kernel
        assert numbers["wavefront_size"] == target.wave_size, kernel
    for source in texts.values():
        for phase in source.phases:
            numbers = kernels[symbol(source.text) + phase.suffix]
            assert numbers["kernarg_segment_size"] == 8 * (source.buffers + 3 + len(phase.args))
            assert numbers["group_segment_fixed_size"] == phase.lds_bytes <= target.lds_bytes


def test_wide_loads(clang: ClangHip, tmp_path: Path) -> None:
    """A contiguous float32 chain moves 16 bytes per lane and instruction."""
    target = TARGETS["gfx942"]
    (source,) = [s for s in planned(CASES["chain"], target).sources if s]
    file = tmp_path / "kernel.hip"
    file.write_text('#include "pf_gpu.h"\n' + named(source.text))
    assembly = tmp_path / "kernel.s"
    subprocess.run([*clang.command(target, str(file), str(assembly)), "-S"], check=True)
    text = assembly.read_text()
    assert "global_load_dwordx4" in text
    assert "global_store_dwordx4" in text
    assert "flat_load" not in text


def test_refused_text_shows_the_line(clang: ClangHip) -> None:
    with pytest.raises(CompileError, match=r"(?s)gfx942.*>\s+3 \| +nonsense;"):
        clang.build("PF_GLOBAL(64) k(int64_t a) {\n  nonsense;\n}\n", TARGETS["gfx942"])


def test_second_build_comes_from_disk(clang: ClangHip) -> None:
    from pyflame.runtime.cache import stats

    text = "PF_GLOBAL(64) k(int64_t *a) { a[pf_thread()] = 1; }\n"
    first = clang.build(text, TARGETS["gfx1100"])
    before = stats.compiles
    assert clang.build(text, TARGETS["gfx1100"]) == first
    assert stats.compiles == before


# --- geometry and text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*AMD, "sm_90"])
def test_geometry(name: str) -> None:
    target = TARGETS[name]
    for source in all_texts(target).values():
        assert len(source.alignment) == source.buffers
        for phase in source.phases:
            assert phase.grid >= 1
            assert target.wave_size <= phase.block <= MAX_BLOCK
            assert phase.block & (phase.block - 1) == 0
            assert f"PF_GLOBAL({phase.block}) PF_KEY{phase.suffix}(" in source.text


def test_shapes_share_text() -> None:
    """Extents and strides are arguments: other sizes of the same class give the same text."""
    target = TARGETS["gfx942"]

    def text(rows: int, columns: int) -> str:
        (source,) = planned(lambda: [layer_norm(randn(rows, columns), randn(columns), randn(columns))], target).sources
        assert source is not None
        return source.text

    assert text(8, 512) == text(100, 512)
    assert text(400, 2400) == text(500, 2800)
    assert text(400, 2400) != text(400, 2401), "rows of odd length cannot be read as vectors"


def test_transpositions_go_through_lds() -> None:
    """Reads and writes both run along memory, each in a loop of its own; short sides and plain chains do without."""
    target = TARGETS["gfx942"]
    (turned,) = planned(CASES["turned"], target).sources
    (halves,) = planned(CASES["turned halves"], target).sources
    (short,) = planned(CASES["transposed"], target).sources
    (plain,) = planned(CASES["chain"], target).sources
    assert turned and halves and short and plain
    assert [s.phases[0].lds_bytes for s in (turned, halves, short, plain)] == [32 * 33 * 4, 64 * 65 * 2, 0, 0]
    assert turned.phases[0].grid == 3 * 2
    twice = planned(lambda: transposed(1000, 700), target).sources[0]
    assert twice is not None and twice.text == turned.text


def test_long_sums_take_two_launches() -> None:
    source = planned(CASES["sum all"], TARGETS["gfx942"]).sources[-1]
    assert source is not None
    assert [p.suffix for p in source.phases] == ["_0", "_1"]
    assert source.scratch_bytes == 8 * source.phases[0].grid


def test_few_long_rows_are_cut() -> None:
    """Each pass is a launch of its own: with two the statistics of softmax, then its values."""
    target = TARGETS["gfx942"]
    (few,) = planned(lambda: [softmax(randn(4, 1 << 20))], target).sources
    (many,) = planned(lambda: [softmax(randn(4, 1 << 12))], target).sources
    assert few and many
    assert [p.grid > target.workers for p in few.phases] == [True, True]
    assert len(many.phases) == 1, "short rows stay where they are"


def test_maximum_and_sum_in_one_pass() -> None:
    """Where a row does not stay in registers it is read once for both; where it does, the plain way is shorter."""
    target = TARGETS["gfx942"]
    (long,) = planned(lambda: log_sums(randn(400, 50304, dtype=pf.bfloat16)), target).sources
    (short,) = planned(lambda: log_sums(randn(400, 512)), target).sources
    assert long and short
    assert "pf_online(" in long.text and long.text.count("*(const pf_vector") == 1
    assert "pf_online(" not in short.text


def test_columns_are_read_as_vectors() -> None:
    """Sums over rows that lie beside each other; what reads the same tensor shares a launch."""
    sources = planned(CASES["sum wide columns"], TARGETS["gfx942"]).sources
    assert len(sources) == 1 and sources[0] and sources[0].text.count("const pf_vector<uint16_t, 8> q") == 2


@pytest.mark.slow
def test_gradients_and_their_sums_are_one_pass() -> None:
    """x and g are read once, by as many threads as run at once, and a small launch adds up what blocks have."""
    target = TARGETS["sm_90"]
    sources = [s for s in planned(lambda: gelu_backward(4096, 3072), target).sources if s and len(s.phases) == 2]
    assert len(sources) == 2
    for source in sources:
        assert source.text.count("*(const pf_vector<uint16_t, 8> *)") == 2
        sums, last = source.phases
        assert (sums.grid, sums.block) == (3 * target.workers, 512)
        assert last.grid * last.block <= 3072 * 8


def test_narrow_rows_stay_packed() -> None:
    (source,) = planned(CASES["rows that stay packed"], TARGETS["gfx942"]).sources
    assert source and "pf_hidden(r" in source.text and "float r" not in source.text


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
        memory = [_Guarded(b.nbytes) for b in plan.buffers]
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
            scratch = _Guarded(source.scratch_bytes)
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


class _Guarded:
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


def test_the_emulation_refuses_what_lies_askew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As NVIDIA GPUs do: a vector at an address that is none of its multiples, a word of scratch behind odd halves."""
    vectors = "typedef pf_vector<float, 4> v; *(v *)(y + 4) = *(const v *)(x + at);"
    words = "*(int32_t *)((char *)y + 2 * at) = 1;"
    kernels = {"vectors": (vectors, 16), "words": (words, 4)}
    text = "\n".join(
        f"PF_GLOBAL(1) {name}_0(const float *x, float *y, int64_t at) {{ {body} }}\nEMU_EXPORT({name}_0)"
        for name, (body, _) in kernels.items()
    )
    library = host_library(text, 64, tmp_path)
    memory = [_Guarded(64), _Guarded(64)]
    for name, (_, alignment) in kernels.items():
        run = getattr(library, f"run_{name}_0")
        for at, status in ((8, 0), (1, -1), (4, 0)):
            assert launch_host(run, [*(m.address for m in memory), at], 1, 1) == status, (name, at)
            assert (f"is no multiple of {alignment}\n" in capfd.readouterr().err) == (status != 0)


# ulp that pf_gpu_f64.h promises, and where to look
DOUBLE: dict[str, tuple[Any, float, float, float]] = {
    "exp": (np.exp, -745, 709, 1), "exp2": (np.exp2, -1074, 1023, 1), "expm1": (np.expm1, -40, 700, 2),
    "log": (np.log, 1e-300, 1e300, 2), "log2": (np.log2, 1e-9, 1e9, 2), "log10": (np.log10, 1e-9, 1e9, 2),
    "log1p": (np.log1p, -0.99, 10, 2), "sin": (np.sin, -1e4, 1e4, 2), "cos": (np.cos, -1e4, 1e4, 2),
    "tan": (np.tan, -1e3, 1e3, 4), "asin": (np.arcsin, -1, 1, 4), "acos": (np.arccos, -1, 1, 4),
    "atan": (np.arctan, -20, 20, 2), "tanh": (np.tanh, -5, 5, 4),
    "sinh": (np.sinh, -700, 700, 4), "cosh": (np.cosh, -700, 700, 4),
    "asinh": (np.arcsinh, -50, 50, 4), "acosh": (np.arccosh, 1.01, 50, 4), "atanh": (np.arctanh, -0.99, 0.99, 4),
    "erf": (np.vectorize(math.erf), -6, 6, 2), "erfc": (np.vectorize(math.erfc), -5, 25, 6),
    "lgamma": (np.vectorize(math.lgamma), 10, 170, 4),
    "erfinv": (OPS["erfinv"].reference, -1, 1, 4),
    "mantissa": (lambda x: np.frexp(x)[0], -9, 9, 0), "exponent": (OPS["exponent"].reference, -9, 9, 0),
}  # fmt: skip


@pytest.mark.slow
def test_double_functions(tmp_path: Path) -> None:
    """AMD GPUs have no libm without ROCm: ours, against the C library's."""
    kernels = [_each(name, f"pf_{name}(x[i])") for name in DOUBLE]
    library = host_library("\n".join([*kernels, _each("pow", "pf_pow(x[i], x[19999 - i])")]), 64, tmp_path)

    def apply(name: str, x: Any) -> Any:
        y = np.empty_like(x)
        assert launch_host(getattr(library, f"run_{name}_0"), [x.ctypes.data, y.ctypes.data], 1, 64) == 0
        return y

    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, 1e-310, 1e-20, -1e-20]
    report = {}
    with np.errstate(all="ignore"):
        for name, (reference, low, high, _) in DOUBLE.items():
            x = np.random.default_rng(1).uniform(low, high, 20000)
            if name == "log":
                x = np.exp(np.random.default_rng(1).uniform(-700, 700, 20000))
            x[: len(special)] = special
            got, want = apply(name, x), np.array([_annex_f(reference, v) for v in x])
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), name)
            ok = np.isfinite(want)
            np.testing.assert_array_equal(got[~ok], want[~ok], name)
            np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]), name)
            report[name] = np.max(np.abs(got[ok] - want[ok]) / np.spacing(np.abs(want[ok])))
        x = np.random.default_rng(1).uniform(0.1, 30, 20000)
        got, want = apply("pow", x), np.power(x, x[::-1])
        report["pow"] = np.max(np.abs(got - want) / np.spacing(want))
    assert {n: u for n, u in report.items() if u > ({"pow": (0, 0, 0, 3)} | DOUBLE)[n][3]} == {}


def _each(name: str, expression: str) -> str:
    loop = f"for (int i = pf_thread(); i < 20000; i += 64) y[i] = {expression};"
    return f"PF_GLOBAL(64) {name}_0(const double *x, double *y) {{ {loop} }}\nEMU_EXPORT({name}_0)"


def _annex_f(reference: Any, x: float) -> float:
    """A libm function of one number, where Python's own raises for a pole or an infinity."""
    try:
        return float(reference(x))
    except (ValueError, OverflowError):
        return math.inf


EMULATED = {
    "gfx942": (TARGETS["gfx942"], True),
    "gfx1100": (TARGETS["gfx1100"], True),
    "tiny waves": (TINY, True),
    "unaligned": (replace(TINY, wave_size=8), False),
    "64-bit positions": (TINY, True),
}


@pytest.fixture(scope="session", params=EMULATED)
def emulator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    target, aligned = EMULATED[request.param]
    cases = chosen(request, test_computes_what_the_cpu_computes, "name", emulator=request.param)
    with long_positions() if request.param == "64-bit positions" else nullcontext():
        return Emulator({n: CASES[n] for n in cases}, target, aligned, tmp_path_factory.mktemp("emulator"))


def compare(case: Planned, emulator: Emulator, expected: list[Any]) -> None:
    """Results of the emulation, in both orders of threads, against those of the CPU."""
    for reverse in (False, True):
        results, error = emulator.run(case, reverse)
        assert error == [0, 0, 0]
        for result, want in zip(results, expected, strict=True):
            assert result.dtype == want.dtype
            if want.dtype.kind == "c":  # as pairs of real numbers
                result, want = (a.view(a.real.dtype) for a in (result, want))
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(result, want)
                continue
            loose = {8: 1e-12, 4: 2e-5, 2: 1e-2, 1: 0.1}[want.dtype.itemsize]
            left, right = result.astype(np.float64), want.astype(np.float64)
            scale = np.abs(right[np.isfinite(right)]).max(initial=1.0)
            np.testing.assert_allclose(left, right, rtol=loose, atol=loose * min(scale, 1e4))


@pytest.mark.parametrize("name", CASES)
def test_computes_what_the_cpu_computes(name: str, emulator: Emulator) -> None:
    case = emulator.cases[name]
    compare(case, emulator, [t.numpy() for t in case.outputs])


def test_bad_index_is_reported(tmp_path: Path) -> None:
    emulator = Emulator({"bad": lambda: gather(bad=True)}, TARGETS["gfx1100"], True, tmp_path)
    _, error = emulator.run(emulator.cases["bad"], False)
    assert error == [1, 11, 11]
