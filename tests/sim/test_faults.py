"""Kernels with a planted mistake: each is caught and named, with the source line."""

from __future__ import annotations

import functools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.targets import TARGETS as KNOWN
from pyflame.runtime.gpu.compiler import PREFIX
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.machine import COUNT, RACES, UNINITIALISED, Machine
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.report import source_line

TARGETS = ("gfx942", "gfx1100")
SOURCE = (Path(__file__).with_name("planted.hip")).read_text()


@functools.cache
def code_for(target: str, debug: bool = True, source: str = SOURCE) -> bytes:
    return ClangHip().compile(source, KNOWN[target], ["-g"] if debug else [])


def line_of(mark: str, source: str = SOURCE) -> str:
    """`kernels.hip:<n>` of the line of the source that a comment marks."""
    rows = (PREFIX + source).splitlines()
    return f":{next(n for n, row in enumerate(rows, 1) if f'// {mark}' in row)}"


class Bench:
    """A machine with the planted kernels loaded, and some buffers."""

    def __init__(self, target: str, source: str = SOURCE, **options: Any) -> None:
        self.memory = Memory(1 << 22)
        self.machine = Machine(target, self.memory, **options)
        self.module = self.machine.load(code_for(target, source=source))

    def buffer(self, values: Any) -> int:
        raw = np.ascontiguousarray(values).view(np.uint8).ravel()
        address = self.memory.allocate(len(raw))
        self.memory.view(address, len(raw), write=True)[:] = raw
        return address

    def launch(self, name: str, *arguments: int, threads: int = 128, blocks: int = 1, dynamic: int = 0) -> None:
        kernel = self.module.kernels[name]
        raw = bytearray(kernel.params[-1].offset + kernel.params[-1].nbytes)
        for param, value in zip(kernel.params, arguments, strict=True):
            struct.pack_into("<Q" if param.nbytes == 8 else "<i", raw, param.offset, value)
        self.machine.launch(kernel, (blocks, 1, 1), (threads, 1, 1), dynamic, bytes(raw))

    def fault(self, name: str, *arguments: int, **options: int) -> SimulationFault:
        with pytest.raises(SimulationFault) as caught:
            self.launch(name, *arguments, **options)
        return caught.value


@pytest.fixture(params=TARGETS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_write_behind_the_end(bench: Bench) -> None:
    out = bench.buffer(np.zeros(300, np.float32))
    bench.launch("fill", out, 300, blocks=3)
    fault = bench.fault("fill", out, 301, blocks=3)
    assert fault.kind == "illegal address"
    for part in (
        "[fill] expected a write of 4 bytes inside an allocation", f"{out + 1200:#x}, 1 byte past the end",
        f"the allocation of 1200 bytes at {out:#x}", "global_store_", f"{line_of('fill')})", "block (2, 0, 0)",
        "thread (44, 0, 0)", "check the index",
    ):  # fmt: skip
        assert part in fault.message, (part, fault.message)


def test_without_debug_information_there_is_no_line(bench: Bench) -> None:
    bench.module = bench.machine.load(code_for(bench.machine.target.name, debug=False))
    fault = bench.fault("fill", bench.buffer(np.zeros(4, np.float32)), 5)
    assert "global_store_" in fault.message and ".hip" not in fault.message
    assert source_line(code_for(bench.machine.target.name, debug=False), 0) is None


def test_read_of_freed_memory(bench: Bench) -> None:
    source, out = bench.buffer(np.zeros(128, np.float32)), bench.buffer(np.zeros(128, np.float32))
    bench.launch("copy", out, source, 128)
    bench.memory.free(source)
    fault = bench.fault("copy", out, source, 128)
    assert fault.kind == "illegal address"
    assert "a read of 4 bytes" in fault.message and f"allocated at {source:#x} and freed" in fault.message


def test_missing_barrier(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.float32))
    bench.launch("mirror", out, 1)
    assert np.array_equal(bench.memory.view(out, 512).view(np.float32), np.arange(128)[::-1])
    fault = bench.fault("mirror", out, 0)
    assert fault.kind == "race"
    assert "expected a barrier between two waves' accesses to byte" in fault.message
    assert "put __syncthreads() between them" in fault.message and "ds_" in fault.message
    assert line_of("mirror write") in fault.message or line_of("mirror read") in fault.message


def test_two_waves_write_the_same_byte(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    fault = bench.fault("same_place", out)
    assert fault.kind == "race" and "writes what wave" in fault.message and "has written" in fault.message


def test_neighbouring_bytes_and_atomics_are_no_race(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    bench.launch("no_race", out)
    got = bench.memory.view(out, 512).view(np.int32)
    assert got.tolist() == [128 + (127 - n) for n in range(128)]


def test_an_atomic_and_a_read_without_a_barrier(bench: Bench) -> None:
    fault = bench.fault("atomic_and_read", bench.buffer(np.zeros(128, np.int32)))
    assert fault.kind == "race"


def test_a_wave_that_ends_while_another_waits(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    bench.launch("early_end", out, 128)
    fault = bench.fault("early_end", out, 64)
    assert fault.kind == "barrier"
    assert "expected every wave of the block to reach the barrier" in fault.message
    assert "has ended while wave" in fault.message and "s_barrier" in fault.message
    assert line_of("early end") in fault.message


def test_threads_of_a_wave_that_go_around_a_barrier(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    bench.launch("around", out, 2)  # all threads have an n below 2
    fault = bench.fault("around", out, 1)
    assert fault.kind == "barrier" and "went around it" in fault.message and line_of("around") in fault.message


def test_threads_that_returned_may_miss_a_barrier(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    bench.launch("returned", out, 120)
    assert bench.memory.view(out, 512).view(np.int32)[:120].tolist() == [119 - n for n in range(120)]


def test_uninitialised_memory(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.float32))
    source = bench.memory.allocate(512)
    bench.memory.view(source, 480, write=True)[:] = 0
    fault = bench.fault("copy", out, source, 128)
    assert fault.kind == "uninitialised read"
    assert f"{source + 480:#x}, byte 480 of" in fault.message and "which nothing has written" in fault.message
    assert line_of("copy") in fault.message
    bench.machine.checks = RACES
    bench.launch("copy", out, source, 128)


def test_uninitialised_lds(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.float32))
    bench.launch("some_shared", out, 128)
    fault = bench.fault("some_shared", out, 100)
    assert fault.kind == "uninitialised read" and "byte 400 of the LDS" in fault.message
    assert line_of("some shared") in fault.message


def test_uninitialised_stack(bench: Bench) -> None:
    out, index = bench.buffer(np.zeros(64, np.int32)), bench.buffer(np.arange(64, dtype=np.int32))
    bench.launch("some_stack", out, index, 64, threads=64)
    fault = bench.fault("some_stack", out, index, 63, threads=64)
    assert fault.kind == "uninitialised read" and "of the thread's stack" in fault.message
    assert "lane" in fault.message


def test_stack_and_lds_have_bounds(bench: Bench) -> None:
    out, index = bench.buffer(np.zeros(64, np.int32)), bench.buffer(np.arange(64, dtype=np.int32) * 400)
    fault = bench.fault("some_stack", out, index, 64, threads=64)
    assert fault.kind == "illegal address" and "bytes of stack" in fault.message
    bench.launch("dynamic_lds", out, threads=64, dynamic=256)
    fault = bench.fault("dynamic_lds", out, threads=64, dynamic=252)
    assert fault.kind == "illegal address" and "within the block's 252 bytes of LDS" in fault.message


def test_a_loop_without_end(bench: Bench) -> None:
    bench.machine.step_limit = 10_000
    fault = bench.fault("forever", bench.buffer(np.ones(1, np.int32)))
    assert fault.kind == "limit" and "within 10000 instructions" in fault.message and "[forever]" in fault.message


def test_an_instruction_that_is_not_known(bench: Bench) -> None:
    fault = bench.fault("unknown", bench.buffer(np.ones(128, np.int32)))
    assert fault.kind == "illegal instruction"
    assert "ds_gws_init" in fault.message and "[unknown]" in fault.message and line_of("unknown") in fault.message


def test_a_trap(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    bench.launch("trap", out, 0)
    fault = bench.fault("trap", out, 1)
    assert fault.kind == "illegal instruction" and "trap" in fault.message


def test_atomics_off_their_alignment(bench: Bench) -> None:
    out = bench.buffer(np.zeros(128, np.int32))
    fault = bench.fault("bump", out + 2)
    assert fault.kind == "illegal address" and "multiple of 4" in fault.message


def test_inlined_lines_are_named_with_their_callers(bench: Bench) -> None:
    fault = bench.fault("through_a_function", bench.buffer(np.zeros(4, np.int32)), 4)
    assert f"{line_of('callee')}, inlined at " in fault.message and line_of("caller") in fault.message


@pytest.mark.parametrize("target", TARGETS)
def test_the_order_of_waves_does_not_hide_a_race(target: str) -> None:
    for seed in range(6):
        bench = Bench(target, seed=seed)
        assert bench.fault("mirror", bench.buffer(np.zeros(128, np.float32)), 0).kind == "race"


def test_counts(bench: Bench) -> None:
    bench.machine.checks = COUNT | UNINITIALISED
    out, source = bench.buffer(np.zeros(4096, np.float32)), bench.buffer(np.zeros(4096, np.float32))
    bench.launch("strided", out, source, 32)
    code, counts = bench.machine.code(bench.module.kernels["strided"]), bench.machine.counts
    lanes = code.lanes
    found = {line.name.split("_")[1]: counts[n] for n, line in enumerate(code.lines)
             if line.name.startswith("global_") and counts[n].steps}  # fmt: skip
    waves = 128 // lanes
    assert found["load"].steps == waves and found["load"].lanes == 128
    assert found["load"].lines == 128  # a stride of 128 bytes: each lane a line of its own
    assert found["store"].lines == waves * lanes * 4 // 128
    bench.launch("odd_lanes", out)
    code = bench.machine.code(bench.module.kernels["odd_lanes"])
    branches = [c for c, line in zip(bench.machine.counts, code.lines, strict=True) if "cbranch_exec" in line.name]
    assert sum(c.divergent for c in branches) >= waves


def test_two_threads_store_one_result(bench: Bench) -> None:
    """In bounds, and yet wrong: lanes of a wave, waves of a block, and blocks that meet where one result belongs."""
    out = bench.buffer(np.zeros(256, np.int32))
    bench.launch("crowd", out, 256, blocks=2)
    for width in (16, 64, 128):
        fault = bench.fault("crowd", out, width, blocks=2)
        assert fault.kind == "race"
        for part in (
            "[crowd] expected one thread to store a result",
            "of the allocation of 1024 bytes",
            line_of("crowd"),
        ):
            assert part in fault.message, (part, fault.message)


def test_threads_may_store_the_same_value_or_take_turns(bench: Bench) -> None:
    out = bench.buffer(np.zeros(256, np.int32))
    bench.launch("agree", out, 16, blocks=2)
    bench.launch("take_turns", out, 1)
    assert (bench.memory.view(out, 256).view(np.int32) == np.arange(64, 128)).all()
    assert bench.fault("take_turns", out, 0).kind == "race"
    bench.machine.checks = UNINITIALISED
    bench.launch("crowd", out, 16, blocks=2)
