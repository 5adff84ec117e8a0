"""Modes: each shows a mistake that nothing shows without it, and lets through what is right."""

from __future__ import annotations

import ctypes
import functools
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import ArgumentError, ROCmNotAvailableError
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.runtime.sim.decode.ordering import STORES_MARKED
from pyflame.runtime.sim.hip.module import Hip
from pyflame.runtime.sim.machine import RACES, UNINITIALISED
from pyflame.runtime.sim.modes import DIES, MODES, wanted_modes
from tests.children import ended, printed
from tests.sim import test_faults
from tests.sim.devices import own_gpus
from tests.sim.machines import Host
from tests.sim.test_faults import Bench

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
SOURCE = Path(__file__).with_name("modes.hip").read_text()
code_for = functools.partial(test_faults.code_for, source=SOURCE)
line_of = functools.partial(test_faults.line_of, source=SOURCE)


def bench_of(target: str, *modes: str, seed: int = 0, checks: int = UNINITIALISED | RACES) -> Bench:
    return Bench(target, SOURCE, modes=frozenset(modes), seed=seed, checks=checks)


def zeros(bench: Bench, count: int) -> int:
    return bench.buffer(np.zeros(count, np.int32))


def ints(bench: Bench, address: int, count: int) -> Any:
    return bench.memory.view(address, 4 * count).view(np.int32)


# --- interleave -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_block_reads_what_another_writes(target: str) -> None:
    plain = bench_of(target)
    plain.launch("neighbour", zeros(plain, 512), zeros(plain, 512), 512, blocks=4)
    for seed in range(3):
        bench = bench_of(target, "interleave", seed=seed)
        cells = zeros(bench, 512)
        fault = bench.fault("neighbour", zeros(bench, 512), cells, 512, blocks=4)
        assert fault.kind == "race"
        for part in (
            "[neighbour] expected a barrier, or a release and an acquire, between two accesses to ",
            f"of the allocation of 2048 bytes at {cells:#x}", "_store_", "_load_", "block (", "wave ",
            line_of("neighbour write"), line_of("neighbour read"),
        ):  # fmt: skip
            assert part in fault.message, (part, fault.message)


@pytest.mark.parametrize("target", TARGETS)
def test_waves_of_a_block_need_a_barrier(target: str) -> None:
    bench = bench_of(target, "interleave")
    out, cells = zeros(bench, 128), zeros(bench, 64)
    bench.launch("hand_on", out, cells, 1, blocks=1)
    assert ints(bench, out, 128)[64:].tolist() == list(range(64))
    assert line_of("hand on") in bench.fault("hand_on", out, cells, 0).message


@pytest.mark.parametrize("target", TARGETS)
def test_the_last_block_needs_a_release_and_an_acquire(target: str) -> None:
    for how in range(4):
        bench = bench_of(target, "interleave", seed=how)
        out, parts, count = zeros(bench, 128), zeros(bench, 12 * 128), zeros(bench, 1)
        # A barrier waits for stores: where that is a release, the fence adds nothing.
        if how == 3 or (how == 2 and target in ("gfx90a", "gfx1100", "gfx1201")):
            bench.launch("last_block", out, parts, count, 12, how, blocks=12)
            assert ints(bench, out, 128).tolist() == [12 * n for n in range(128)]
        else:
            fault = bench.fault("last_block", out, parts, count, 12, how, blocks=12)
            assert fault.kind == "race" and line_of("last block read") in fault.message


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_that_wait_for_each_other(target: str) -> None:
    bench = bench_of(target, "interleave", "stale")
    cell, flag = zeros(bench, 1), zeros(bench, 1)
    bench.launch("queue", cell, flag, 1, blocks=6)
    assert ints(bench, cell, 1)[0] == sum(range(6))
    fault = bench_of(target, "interleave")
    assert line_of("queue") in fault.fault("queue", zeros(fault, 1), zeros(fault, 1), 0, blocks=6).message


@pytest.mark.parametrize("target", TARGETS)
def test_threads_that_store_in_one_place(target: str) -> None:
    bench = bench_of(target, "interleave")
    out = zeros(bench, 256)
    bench.launch("crowd", out, 256, blocks=2)
    for width in (16, 64, 128):
        assert bench.fault("crowd", out, width, blocks=2).kind == "race"
    bench.launch("take_turns", out, 1)
    bench.launch("bump", out)
    bench.launch("bump", out, blocks=7)
    assert bench.fault("take_turns", out, 0).kind == "race"


@pytest.mark.parametrize("target", TARGETS)
def test_stores_of_one_value_are_a_race_unless_they_are_atomic(target: str) -> None:
    bench = bench_of(target, "interleave")
    out = zeros(bench, 128)
    bench.launch("agree", out, 1, blocks=4)
    if target in STORES_MARKED:
        assert bench.fault("agree", out, 0, blocks=4).kind == "race"
    else:  # an atomic store looks like a plain one there
        bench.launch("agree", out, 0, blocks=4)


# --- stale ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [*TARGETS, "gfx950"])
def test_what_other_dies_write_is_seen_after_an_acquire(target: str) -> None:
    plain, bench = (bench_of(target, *modes, checks=UNINITIALISED) for modes in ((), ("stale",)))
    several = target in DIES
    for machine, fences, want in ((plain, 0, 24), (bench, 1, 24), (bench, 0, 24 // DIES[target] if several else 24)):
        cells = zeros(machine, 64)
        machine.launch("count_up", cells, fences, blocks=24, threads=64)
        assert set(ints(machine, cells, 64)) == {want}


# --- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_replay_does_not_see_what_was_copied_before_it(target: str) -> None:
    for modes, want in (((), 5), (("replay",), 3)):
        hip = Hip(target, nbytes=1 << 22, modes=frozenset(modes))
        host = Host(hip)
        code = ctypes.create_string_buffer(code_for(target))
        function = host.hipModuleGetFunction(host.hipModuleLoadData(ctypes.addressof(code)), "scale")
        out, factor, stream = host.array([0] * 64), host.array([3]), host.hipStreamCreate()
        host.hipStreamBeginCapture(stream, 2)
        host.launch(function, stream, out, factor)
        graph = host.hipGraphInstantiateWithFlags(host.hipStreamEndCapture(stream), 0)
        for value in (3, 5):
            host.hipMemcpyHtoD(factor, np.array([value], np.int32), 4)
            host.hipGraphLaunch(graph, stream)
            host.hipStreamSynchronize(stream)
        assert host.read(out, 64) == [want * n for n in range(64)]
        host.launch(function, stream, out, factor)  # begins with an acquire
        host.hipStreamSynchronize(stream)
        assert host.read(out, 64) == [5 * n for n in range(64)]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_numbers_of_jitted_functions_are_right_in_replays_without_acquire(target: str) -> None:
    with own_gpus(target, modes=frozenset({"replay", "stale"})) as (gpu,), pf.device(str(gpu.id)):

        @pf.jit
        def f(x: pf.Tensor, other: pf.Tensor, factor: float) -> pf.Tensor:
            return (x * factor).sum() + other

        x = pf.arange(8, dtype=pf.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # that a replay differs from its launches
            for factor in (2.0, 3.0, 4.0, 5.0, 6.0):
                assert f(x, x.sum() * factor, factor).item() == 56 * factor


# --- abort, code objects ----------------------------------------------------------------------------------------------

ABORTS = """
import pyflame as pf
source = "__global__ void far(float* x) { x[threadIdx.x + (1 << 20)] = 1; }"
kernel = pf.compile_kernel(source, "far", device="sim:gfx942")
with pf.device("sim:gfx942"):
    x = pf.zeros(4) + 0
    pf.eval(x)
    try:
        kernel(x, grid=1, block=64)
        pf.synchronize()
    except pf.DeviceFaultError:
        print("caught")
"""


@pytest.mark.slow
def test_a_fault_ends_the_process_where_asked() -> None:
    assert printed(ABORTS) == "caught\n"
    aborted = ended(ABORTS, PYFLAME_SIM_MODES="abort")
    assert aborted.returncode == -signal.SIGABRT and "caught" not in aborted.stdout
    assert "[far] expected a write" in aborted.stderr and "aborting the process" in aborted.stderr


def test_a_runtime_that_is_too_old_says_so() -> None:
    code = code_for("gfx942")
    HipDriver(Hip("gfx942", nbytes=1 << 22), "sim:gfx942").load_module(code)
    old = HipDriver(Hip("gfx942", nbytes=1 << 22, code_objects=4), "sim:gfx942")
    with pytest.raises(ROCmNotAvailableError, match=r"HIP 6.0 or newer.*code object of version 5.*got HIP 5\."):
        old.load_module(code)


def test_names_of_modes() -> None:
    assert wanted_modes("all") == set(MODES) and not wanted_modes("")
    with pytest.raises(ArgumentError, match=r"expected all or some of .* but got 'stael'.*stale"):
        wanted_modes("stael")
