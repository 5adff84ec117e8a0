"""Code objects of a compiler, loaded and launched: what a kernel finds in registers, arguments, stack and LDS."""

from __future__ import annotations

import functools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.core.targets import TARGETS as KNOWN
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.metadata import code_object_version
from pyflame.runtime.sim.machine import UNINITIALISED, Machine
from pyflame.runtime.sim.memory import Memory

SOURCE = (Path(__file__).with_name("launch.hip")).read_text()
PRELOAD = ("-mllvm", "-amdgpu-kernarg-preload-count=8")
CASES = [
    ("gfx942", ()), ("gfx942", ("-O0",)), ("gfx942", PRELOAD),
    ("gfx1100", ()), ("gfx1100", ("-O0",)), ("gfx1100", ("-mwavefrontsize64",)),
    ("gfx90a", ()), ("gfx90a", ("-O0",)), ("gfx950", ()),
    ("gfx1201", ()), ("gfx1201", ("-O0",)), ("gfx1201", ("-mwavefrontsize64",)),
]  # fmt: skip


@functools.cache
def code_for(target: str, options: tuple[str, ...]) -> bytes:
    return ClangHip().compile(SOURCE, KNOWN[target], options)


class Bench:
    def __init__(self, target: str, options: tuple[str, ...]) -> None:
        self.memory = Memory(1 << 22)
        self.machine = Machine(target, self.memory)
        self.module = self.machine.load(code_for(target, options))

    def buffer(self, values: Any) -> int:
        raw = np.ascontiguousarray(values).view(np.uint8).ravel()
        address = self.memory.allocate(len(raw))
        self.memory.view(address, len(raw), write=True)[:] = raw
        return address

    def read(self, address: int, count: int, dtype: Any) -> Any:
        return self.memory.view(address, count * np.dtype(dtype).itemsize).view(dtype)

    def launch(
        self, name: str, arguments: bytes, grid: Any = (1, 1, 1), block: Any = (256, 1, 1), lds: int = 0
    ) -> None:
        self.machine.launch(self.module.kernels[name], grid, block, lds, arguments)


@pytest.fixture(params=CASES, ids=[" ".join((target, *options)) for target, options in CASES])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(*request.param)


def test_everything_is_known(bench: Bench) -> None:
    code = bench.machine.code(bench.module.kernels["calls"])
    assert not {code.lines[n].text: why for n, why in code.problems.items()}


def test_calls_recursion_and_function_pointers(bench: Bench) -> None:
    out = bench.memory.allocate(1024)
    bench.launch("calls", struct.pack("<Qi", out, 1))
    thread = np.arange(256)
    fib = np.array([0, 1, 1, 2, 3, 5, 8, 13])
    want = fib[thread % 8] + np.where((thread + 1) & 1, thread * 3, thread + 3) + 7
    assert np.array_equal(bench.read(out, 256, np.int32), want)


def test_globals_can_be_seen_and_set(bench: Bench) -> None:
    out = bench.memory.allocate(1024)
    address, nbytes = bench.module.globals["cell"]
    assert nbytes == 4 and bench.read(address, 1, np.int32)[0] == 7
    bench.memory.view(address, 4, write=True).view(np.int32)[:] = 20
    bench.launch("globals", struct.pack("<Q", out))
    assert np.array_equal(bench.read(out, 256, np.float32), 2.0 ** (np.arange(256) & 3) + 20)


def test_static_and_dynamic_lds(bench: Bench) -> None:
    x = np.arange(256, dtype=np.float32)
    out, source = bench.memory.allocate(1024), bench.buffer(x)
    bench.launch("reverse", struct.pack("<QQ", out, source), lds=1024)
    thread = np.arange(256)
    assert np.array_equal(bench.read(out, 256, np.float32), thread * 199 // 255 + 100 * x[::-1])
    most = bench.machine.target.lds_bytes
    with pytest.raises(ArgumentError, match=f"at most {most} bytes of LDS"):
        bench.launch("reverse", struct.pack("<QQ", out, source), lds=most)


def test_sizes_and_numbers_in_three_dimensions(bench: Bench) -> None:
    grid, block = (2, 3, 2), (2, 3, 4)
    out = bench.memory.allocate(12 * 24 * 4)
    bench.launch("sizes", struct.pack("<Q", out), grid, block)
    want = np.arange(24)[None] + 1000 * np.arange(12)[:, None] + 8_000_000
    assert np.array_equal(bench.read(out, 288, np.int32).reshape(12, 24), want)


def test_a_stack_of_each_thread(bench: Bench) -> None:
    index = [3, 5, 9, 3]
    out, at = bench.memory.allocate(256), bench.buffer(np.array(index, np.int32))
    bench.launch("stack", struct.pack("<QQi", out, at, 4), block=(64, 1, 1))
    want = []
    for thread in range(64):
        local = [i * i for i in range(32)]
        for i in index:
            local[i] += local[(i + thread) & 31]
        want.append(local[thread & 31])
    assert bench.read(out, 64, np.int32).tolist() == want


def test_arguments_of_all_sizes(bench: Bench) -> None:
    params = bench.module.kernels["by_value"].params
    assert [p.nbytes for p in params] == [24, 1, 2, 8]
    out = bench.memory.allocate(24)
    raw = bytearray(params[-1].offset + 8)
    for param, form, values in zip(
        params, ("<d5hbxi", "<b", "<h", "<Q"), ((42.0, 1, 2, 3, 4, 5, -6, 99), (-56,), (-77,), (out,)), strict=True
    ):
        struct.pack_into(form, raw, param.offset, *values)
    bench.launch("by_value", bytes(raw), block=(64, 1, 1))
    assert bench.read(out, 6, np.int32).tolist() == [42, 5, -6, 99, -56, -77]


def test_atomics_of_several_blocks(bench: Bench) -> None:
    sums, f, d = bench.buffer(np.zeros(8, np.uint32)), bench.buffer(np.zeros(1, np.float32)), bench.buffer(np.zeros(1))
    most, tickets = bench.buffer(np.zeros(1, np.uint64)), bench.memory.allocate(1024)
    bench.launch("counters", struct.pack("<QQQQQ", sums, f, d, most, tickets), (2, 1, 1), (128, 1, 1))
    thread = np.arange(128)
    assert bench.read(sums, 5, np.uint32).tolist() == [*(2 * thread[thread % 4 == k].sum() for k in range(4)), 256]
    assert bench.read(f, 1, np.float32)[0] == 128 and bench.read(d, 1, np.float64)[0] == 64
    assert bench.read(most, 1, np.uint64)[0] == 127 << 33
    assert sorted(bench.read(tickets, 256, np.int32)) == list(range(256))


def test_waves_take_turns(bench: Bench) -> None:
    """Whichever comes first: one that spins gives way. Atomic loads look like others to the race check."""
    bench.machine.checks = UNINITIALISED
    out = bench.memory.allocate(512)
    for seed in range(4):
        bench.machine.seed = seed
        bench.launch("hand_over", struct.pack("<Q", out), block=(128, 1, 1))
    assert bench.read(out, 128, np.int32).tolist() == list(range(128))


def test_a_code_object_that_is_gone(bench: Bench) -> None:
    used = bench.memory.used
    again = bench.machine.load(bench.module.code)
    assert bench.memory.used > used
    bench.machine.unload(again)
    assert bench.memory.used == used


def test_code_objects_are_of_a_version_that_old_runtimes_load(bench: Bench) -> None:
    assert code_object_version(bench.module.code) == 5
    newer = code_for("gfx942", ("-mcode-object-version=6",))
    with pytest.raises(FileFormatError, match=r"expected a code object of version 5, .* but got version 6"):
        Machine("gfx942", Memory(1 << 22)).load(newer)
