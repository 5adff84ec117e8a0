"""Kernels that are compiled in the background before somebody asks for them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pyflame.core.errors import CompileError
from pyflame.runtime.cache import DiskCache, stats
from pyflame.runtime.gpu.compiler import GpuKernels
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.kernels import Text
from tests.runtime.fake import FakeDriver, fake_device

LIMIT = 10.0  # seconds of what should take none


def kernel(name: str) -> Text:
    return f"PF_GLOBAL(64) PF_KEY_0(float* {name}) {{}}", ("_0",)


class Gate:
    """Lets the compiler go on when it is open, and notes in which order texts come to it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.seen: list[str] = []
        build = GpuKernels.build

        def waiting(table: GpuKernels, source: str) -> bytes:
            self.seen.append(source)
            assert self.open.wait(LIMIT)
            return build(table, source)

        patch.setattr(GpuKernels, "build", waiting)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # one file at a time
    return Gate(monkeypatch)


@pytest.fixture
def device(tmp_path: Path) -> GpuDevice:
    return fake_device(FakeDriver(), DiskCache(tmp_path))


def test_who_asks_waits_for_what_is_on_its_way(device: GpuDevice, gate: Gate) -> None:
    before = stats.compiles
    with device.ahead() as ahead:
        ahead.add([kernel("a")])
        ahead.add([kernel("a")])  # which is on its way
        threading.Timer(0.05, gate.open.set).start()
        ((function,),) = device.functions([kernel("a")])
    assert function.name.endswith("_0") and stats.compiles == before + 1 and len(gate.seen) == 1


def test_it_goes_on_behind_its_statement(device: GpuDevice, gate: Gate) -> None:
    with device.ahead() as ahead:
        ahead.add([kernel("a")])
        ahead.add([kernel("b")])
    gate.open.set()
    device.functions([kernel("a"), kernel("b")])
    assert len(gate.seen) == 2


def test_what_is_wanted_soon_comes_first(device: GpuDevice, gate: Gate) -> None:
    with device.ahead() as ahead:
        for name in ("a", "b"):
            ahead.add([kernel(name)])
        ahead.add([kernel("c")], soon=True)
        gate.open.set()
        device.functions([kernel(name) for name in "abc"])
    order = [next(n for n in "abc" if f"float* {n}" in source) for source in gate.seen]
    assert order in (["a", "c", "b"], ["c", "a", "b"])  # the first one may have begun


def test_an_error_gives_up_what_waits(device: GpuDevice, gate: Gate) -> None:
    ahead = device.ahead()
    for name in ("a", "b"):
        ahead.add([kernel(name)])
    ahead.__exit__(KeyboardInterrupt)
    gate.open.set()
    assert device.functions([kernel("b")])[0][0].name.endswith("_0")


def test_who_asks_for_a_refused_kernel_is_told(device: GpuDevice) -> None:
    with device.ahead() as ahead:
        ahead.add([("refuse PF_KEY_0", ("_0",)), kernel("a")])
    with pytest.raises(CompileError, match="refused"):
        device.functions([("refuse PF_KEY_0", ("_0",))])
    assert device.functions([kernel("a")])[0][0].name.endswith("_0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_waits_for_no_thread_of_its_parents(device: GpuDevice, gate: Gate) -> None:
    with device.ahead() as ahead:
        ahead.add([kernel("a")])
    child = os.fork()
    if not child:
        gate.open.set()
        table: GpuKernels = device.kernels
        table._await([table.key(kernel("a")[0])])
        os._exit(0)
    gate.open.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_process_finds_it(device: GpuDevice) -> None:
    with device.ahead() as ahead:
        ahead.add([kernel("a")])
    device.functions([kernel("a")])
    again = fake_device(FakeDriver(), device.kernels.cache)
    before = stats.compiles
    again.functions([kernel("a")])
    assert stats.compiles == before
