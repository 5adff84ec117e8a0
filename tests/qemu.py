"""Programs on an aarch64 CPU that this machine is not: planned and compiled here for its instruction sets, and each
call of a plan run by QEMU. `python -m tests.qemu FILE every|some CPU ISA..` runs those below and writes their results.

Python itself would take a minute to start there, so only kernels and the few lines of qemu.c are emulated.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.encoding import ENCODINGS
from pyflame.engine import native
from pyflame.engine.build import CpuRunner
from pyflame.kernels import matmul
from pyflame.runtime.cpu import compiler
from pyflame.runtime.cpu.compiler import CompilerC, find_compiler, include_flags

Array = np.ndarray[Any, Any]


def numbers(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def named(function: tuple[str, str]) -> bytes:
    return b"".join(numbers(len(part)) + part.encode() for part in function)


class Emulator:
    """Stands in for the runner: sends the memory of each call to QEMU and takes back what it wrote."""

    def __init__(self, cpu: str, folder: Path) -> None:
        self.folder = folder
        self.functions: dict[int, tuple[str, str]] = {}  # by address: library and name
        cc, program = find_compiler(), folder / "run"
        assert cc is not None
        source = str(Path(__file__).with_suffix(".c"))
        subprocess.run([cc, "-O1", *include_flags(), source, "-o", str(program), "-ldl"], check=True)
        self.command = ["qemu-aarch64", "-cpu", cpu, str(program), str(folder / "in"), str(folder / "out")]

    def find(self, compiled: CompilerC, library: ctypes.CDLL, name: str) -> int:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        self.functions[address] = library._name, name
        return address

    def run_at(self, runner: Any, places: list[int], constants: Sequence[Any], *others: Any) -> None:
        """As `CpuRunner._run_at`, whose last argument takes the results."""
        layout, binding = runner._layout, runner.binding
        given = [*(binding.input_bytes[p] for p in binding.positions), *binding.output_sizes]
        size = dict.fromkeys(places, 0)
        for place, nbytes in zip(places, given, strict=True):  # an output may lie where an input does
            size[place] = max(size[place], nbytes)
        regions = list(size)
        parts = [numbers(len(regions) + 2)]
        for place in regions:
            parts += [numbers(size[place], size[place]), ctypes.string_at(place, size[place])]
        parts += [numbers(binding.arena_bytes, 0, binding.scratch_bytes, 0)]
        slots = [(regions.index(place), 0) for place in places] + [(len(regions), 0), (len(regions) + 1, 0)]
        first = len(constants) - runner.plan.starts
        for start, (slot, offset, itemsize) in layout.starts.items():
            region, at = slots[slot]
            slots.append((region, at + offset + constants[first + start] * itemsize))
        parts += [numbers(len(slots)), *(numbers(*slot) for slot in slots), *self.table(layout)]
        uniforms = binding.pack_uniforms(constants)
        parts += [numbers(len(uniforms) // 8), uniforms, *self.rows(layout)]
        (self.folder / "in").write_bytes(b"".join(parts))
        subprocess.run(self.command, check=True)
        with open(self.folder / "out", "rb") as file:
            for place in regions:
                ctypes.memmove(place, file.read(size[place]), size[place])
        others[-1](())

    def table(self, layout: Any) -> Iterator[bytes]:
        yield numbers(len(layout.cells), *layout.cells, len(layout.epilogues))
        for cell, (address,) in zip(layout.epilogues, layout.addresses[layout.launches :], strict=True):
            yield numbers(cell) + named(self.functions[address])

    def rows(self, layout: Any) -> Iterator[bytes]:
        yield numbers(len(layout.rows))
        for (text, phase, buffers, slots_at, args_at, _), iterations in zip(
            layout.rows, layout.spans[::2], strict=True
        ):
            function = self.functions[layout.addresses[text][phase]]
            yield named(function) + numbers(iterations, buffers, slots_at, args_at)


def programs(every: bool) -> Iterator[tuple[str, pf.Tensor]]:
    """What kernels are made of: vectors of all types, conversions, masks, sums, shuffles, products and gathers.

    Without `every` those that differ most.
    """
    rng = np.random.default_rng(0)

    def normal(*shape: int, dtype: Any = pf.float32) -> pf.Tensor:
        return pf.tensor(rng.standard_normal(shape).astype(np.float32)).to(dtype)

    def whole(*shape: int, dtype: Any = pf.int8) -> pf.Tensor:
        return pf.tensor(rng.integers(0 if dtype == pf.uint8 else -100, 100, shape), dtype=dtype)

    kinds = [pf.float32, pf.bfloat16, *([pf.float16, pf.float64] if every else [])]
    for dtype in kinds:
        x = normal(5, 123, dtype=dtype)
        yield f"chain {dtype}", pf.gelu(x * 3 + 1) * pf.sigmoid(x) + pf.tanh(x).exp() + pf.log(x.abs() + 1)
        yield f"softmax {dtype}", pf.softmax(x, -1)
        yield f"layer_norm {dtype}", pf.nn.functional.layer_norm(x, (123,))
        yield f"sums {dtype}", pf.cat([x.sum(0), x.mean(1), x.amax(1), x.var(1)])
        if every:
            yield f"order {dtype}", pf.cat([pf.sort(x)[0], pf.cumsum(x, 1)])
    for dtype in (*kinds, *((pf.int32, pf.int64, pf.int16) if every else ())):
        made = normal if dtype.is_floating_point else whole
        yield f"product {dtype}", made(37, 45, dtype=dtype) @ made(45, 51, dtype=dtype)
        yield f"transposed {dtype}", made(37, 45, dtype=dtype) @ made(51, 45, dtype=dtype).T
        yield f"few rows {dtype}", made(3, 77, dtype=dtype) @ made(50, 77, dtype=dtype).T
        yield f"few rows, other side {dtype}", made(3, 77, dtype=dtype) @ made(77, 50, dtype=dtype)
    yield "int8 product", pf._int_mm(whole(37, 45), whole(45, 51))
    yield "int8 product, transposed", pf._int_mm(whole(18, 77), whole(40, 77).T)
    yield "deep product", normal(13, 9000) @ normal(9000, 17)
    for dtype in kinds if every else [pf.float32]:
        yield from itertools.islice(layers(dtype, normal), None if every else 2)
    x = normal(100)
    for source in (x * 50, whole(100), whole(100, dtype=pf.uint8), whole(100, dtype=pf.int64)):
        for dtype in (pf.float32, pf.float16, pf.bfloat16, pf.float64, pf.int8, pf.int16, pf.int32, pf.int64, pf.bool):
            yield f"{source.dtype} to {dtype}", source.to(dtype)
    table, index = normal(40, 9), pf.tensor(rng.integers(0, 40, 60))
    yield "gather", table[index]
    if every:
        yield "scatter", pf.zeros(40, 9).index_add(0, index, normal(60, 9))
        pages, places = normal(5, 16, 2, 32), pf.tensor([[0, 3], [4, 1]])
        yield "paged", pf.paged_attention(normal(2, 4, 1, 32), pages, pages, places, pf.tensor([20, 32]))
        weights = pf.tensor(ENCODINGS["q4_0"].encode(rng.standard_normal((37, 96)).astype(np.float32)))
        for rows in (3, 40):
            product = pf.encoded_linear(normal(rows, 96), weights, encoding="q4_0", width=96, activation_bits=32)
            yield f"encoded, {rows} rows", product
    yield "where", pf.where(x > 0, x, -2 * x).clamp(-1, 1)
    pf.manual_seed(3)
    yield "normals", pf.randn(1000)
    yield "uniforms", pf.rand(1000)
    yield "integers", pf.randint(0, 1000, (1000,))
    yield "dropout", pf.dropout(normal(1000), 0.5)


def layers(dtype: Any, normal: Callable[..., pf.Tensor]) -> Iterator[tuple[str, pf.Tensor]]:
    """Convolutions, a gradient of pooling, and attention with its own."""
    image, weights = normal(2, 5, 9, 11, dtype=dtype), normal(7, 5, 3, 3, dtype=dtype)
    q, k, v = (normal(1, 2, 37, 24, dtype=dtype).requires_grad_() for _ in range(3))
    out = pf.scaled_dot_product_attention(q, k, v, is_causal=True)
    yield f"attention {dtype}", out
    yield f"conv {dtype}", pf.conv2d(image, weights, padding=1)
    yield f"conv, stride 2 {dtype}", pf.conv2d(image, weights, stride=2)
    yield f"conv, depthwise {dtype}", pf.conv2d(image, normal(5, 1, 3, 3, dtype=dtype), padding=1, groups=5)
    squares = normal(3, 2, 8, 70, dtype=dtype).requires_grad_()
    (pf.max_pool2d(squares, 2) * normal(3, 2, 4, 35, dtype=dtype)).float().sum().backward()
    assert squares.grad is not None
    yield f"pool backward {dtype}", squares.grad
    out.float().square().sum().backward()
    assert q.grad is not None
    yield f"attention backward {dtype}", q.grad


def results(every: bool) -> dict[str, Array]:
    """All programs in one plan: their kernels are compiled together, and QEMU starts once."""
    found = {name: x.detach().to(pf.float64) for name, x in programs(every)}
    pf.eval(*found.values())
    return {name: x.numpy() for name, x in found.items()}


def main(file: str, every: str, cpu: str = "", *isa: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        if cpu:
            emulator = Emulator(cpu, Path(folder))
            compiler.cpu_flags = lambda: isa  # type: ignore[assignment]
            native.load = lambda: None  # type: ignore[assignment]  # it would run here, compiled for that CPU
            CompilerC._find = lambda *given: emulator.find(*given)  # type: ignore[method-assign]
            CpuRunner._run_at = lambda runner, *given: emulator.run_at(runner, *given)  # type: ignore[method-assign]
        found = results(every == "every")
    print(matmul.isa_of(set(pf.device_info()["isa"])))
    np.savez(file, **found)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
