"""A driver without a GPU: memory is the host's, and streams run their work as late as they may.

Work is queued and runs when the host waits for it, when `run` is called, or when another stream's event needs it; so
whoever reads a copy before waiting reads what was there before. Every access is checked against what is allocated.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyflame.core.device import Target
from pyflame.core.errors import CompileError, DeviceError, OutOfMemoryError
from pyflame.core.targets import TARGETS
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import DeviceProperties, Grid, KernelArguments

GIB = 1 << 30
Body = Callable[[list[int]], None]  # what a kernel does with its arguments


@dataclass
class Event:
    timing: bool
    recorded: int = 0  # times it was recorded, and that is done
    done: int = 0
    stream: int = 0
    at: float = 0.0
    passed: set[int] = field(default_factory=set)  # the recordings that their streams came to


@dataclass
class FakeDriver:
    """A driver of `devices` GPUs with `total` bytes each."""

    devices: int = 1
    total: int = 4 * GIB
    kind: str = "fake"
    arch: str = "gfx942"
    peer: bool = True
    launches: list[tuple[str, Grid, Grid, int, list[int]]] = field(default_factory=list)
    bodies: dict[str, Body] = field(default_factory=dict)  # by the end of a kernel's name
    failures: dict[str, Exception] = field(default_factory=dict)  # raised by the next call of that name
    calls: Counter[str] = field(default_factory=Counter)
    ranges: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory: dict[int, tuple[np.ndarray[Any, Any], int]] = {}  # address -> bytes, device or -1 for the host
        self.held: Counter[int] = Counter()  # bytes by device
        self.streams: dict[int, deque[Callable[[], bool]]] = {}
        self.events: dict[int, Event] = {}
        self.modules: dict[int, str] = {}
        self.graphs: dict[int, list[Callable[[], bool]]] = {}
        self.captured: dict[int, list[Callable[[], bool]]] = {}
        self.lock = threading.RLock()
        self.numbers = itertools.count(1)
        self.local = threading.local()
        self.time = 0.0
        self.enabled: set[tuple[int, int]] = set()

    def _enter(self, name: str) -> None:
        self.calls[name] += 1
        error = self.failures.pop(name, None)
        if error is not None:
            raise error

    # --- devices ------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return self.devices

    def properties(self, index: int) -> DeviceProperties:
        return DeviceProperties(
            f"Fake {index}", self.arch, self.arch + ":xnack-", self.total, 8, 64, 65536, 1024, 10**6, f"0:{index}"
        )

    def target(self, index: int) -> Target:
        return TARGETS[self.arch]

    def version(self) -> str:
        return "1.0"

    def graph_troubles(self, index: int) -> tuple[Any, ...]:
        return ()

    def set_device(self, index: int) -> None:
        self.local.device = index

    @property
    def current(self) -> int:
        found = getattr(self.local, "device", None)
        if found is None:
            raise DeviceError("no device is current in this thread")
        return int(found)

    def synchronize(self) -> None:
        self._enter("synchronize")
        if self.captured:
            raise DeviceError("a capture is under way")
        with self.lock:
            for stream in list(self.streams):
                self.run(stream)

    def can_access_peer(self, index: int, peer: int) -> bool:
        return self.peer

    def enable_peer(self, index: int, peer: int) -> None:
        self.set_device(index)
        self.enabled.add((index, peer))

    # --- memory -------------------------------------------------------------------------------------------------------

    def mem_info(self) -> tuple[int, int]:
        return self.total - self.held[self.current], self.total

    def alloc(self, nbytes: int) -> int:
        self._enter("alloc")
        return self._new(nbytes, self.current, self.total)

    def _new(self, nbytes: int, device: int, room: int) -> int:
        with self.lock:
            if self.held[device] + nbytes > room:
                raise OutOfMemoryError(f"the driver has no {nbytes} bytes")
            data = np.empty(nbytes + 256, np.uint8)
            address = -(-data.ctypes.data // 256) * 256
            self.memory[address] = data, device
            self.held[device] += nbytes
            return address

    def _drop(self, address: int, device: int) -> None:
        with self.lock:
            data, owner = self.memory.pop(address)
            assert owner == device, "freed on another device"
            self.held[device] -= data.nbytes - 256

    def free(self, address: int) -> None:
        """Waits for nothing: no driver promises to."""
        self._enter("free")
        self._drop(address, self.current)

    def host_alloc(self, nbytes: int) -> int:
        self._enter("host_alloc")
        return self._new(nbytes, -1, 1 << 60)

    def host_free(self, address: int) -> None:
        self._enter("host_free")
        self._drop(address, -1)

    def owner(self, address: int, nbytes: int) -> int:
        """The device whose memory this is, all of it."""
        with self.lock:
            for start, (data, device) in self.memory.items():
                if start <= address and address + nbytes <= data.ctypes.data + data.nbytes:
                    return device
        raise AssertionError(f"{nbytes} bytes at {address} are not allocated")

    def _copy(self, dst: int, src: int, nbytes: int, stream: int, checked: list[int]) -> None:
        def work() -> bool:
            for address in checked:
                self.owner(address, nbytes)
            ctypes.memmove(dst, src, nbytes)
            return True

        self._queue(stream, work)

    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._enter("copy_h2d")
        assert self.owner(src, nbytes) == -1, "the source is not pinned"
        self._copy(dst, src, nbytes, stream, [dst, src])

    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._enter("copy_d2h")
        assert self.owner(dst, nbytes) == -1, "the target is not pinned"
        self._copy(dst, src, nbytes, stream, [dst, src])

    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._enter("copy_d2d")
        self._copy(dst, src, nbytes, stream, [dst, src])

    def copy_peer(self, dst: int, dst_device: int, src: int, src_device: int, nbytes: int, stream: int) -> None:
        self._enter("copy_peer")
        assert (self.owner(dst, nbytes), self.owner(src, nbytes)) == (dst_device, src_device)
        self._copy(dst, src, nbytes, stream, [dst, src])

    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._enter("memset")

        def work() -> bool:
            self.owner(address, nbytes)
            ctypes.memset(address, byte, nbytes)
            return True

        self._queue(stream, work)

    # --- streams and events -------------------------------------------------------------------------------------------

    def _queue(self, stream: int, work: Callable[[], bool]) -> None:
        with self.lock:
            if stream in self.captured:
                self.captured[stream].append(work)
            else:
                self.streams[stream].append(work)

    def run(self, stream: int) -> None:
        """Run what a stream was given."""
        with self.lock:
            queue = self.streams[stream]
            while queue:
                work = queue.popleft()
                if not work():
                    raise AssertionError("a stream waits for an event that nobody records")
                self.time += 1e-6

    def stream_create(self, priority: int = 0) -> int:
        self._enter("stream_create")
        number = next(self.numbers)
        self.streams[number] = deque()
        return number

    def stream_destroy(self, stream: int) -> None:
        del self.streams[stream]

    def stream_synchronize(self, stream: int) -> None:
        self._enter("stream_synchronize")
        if stream in self.captured:
            raise DeviceError("a capture is under way")
        self.run(stream)

    def stream_query(self, stream: int) -> bool:
        self._enter("stream_query")
        return not self.streams[stream]

    def stream_wait_event(self, stream: int, event: int) -> None:
        self._enter("stream_wait_event")
        found = self.events[event]
        wanted, source = found.recorded, found.stream  # recording it again does not change what is waited for

        def work() -> bool:
            if wanted and wanted not in found.passed:
                self.run(source)
            return not wanted or wanted in found.passed

        self._queue(stream, work)

    def event_create(self, timing: bool) -> int:
        self._enter("event_create")
        with self.lock:
            number = next(self.numbers)
            self.events[number] = Event(timing)
            return number

    def event_destroy(self, event: int) -> None:
        self._enter("event_destroy")
        del self.events[event]

    def event_record(self, event: int, stream: int) -> None:
        self._enter("event_record")
        found = self.events[event]
        found.recorded += 1
        found.stream = stream
        number = found.recorded

        def work() -> bool:
            found.passed.add(number)
            found.done, found.at = max(number, found.done), self.time
            return True

        self._queue(stream, work)

    def event_synchronize(self, event: int) -> None:
        self._enter("event_synchronize")
        found = self.events[event]
        if found.done < found.recorded:
            self.run(found.stream)

    def event_query(self, event: int) -> bool:
        self._enter("event_query")
        found = self.events[event]
        if found.stream in self.captured:
            raise DeviceError("a capture is under way")
        return found.done == found.recorded

    def event_elapsed(self, start: int, end: int) -> float:
        first, last = self.events[start], self.events[end]
        assert first.timing and last.timing and first.done == first.recorded and last.done == last.recorded
        return last.at - first.at

    # --- kernels ------------------------------------------------------------------------------------------------------

    def load_module(self, code: bytes) -> int:
        self._enter("load_module")
        self.current  # loading needs a device
        if not code.startswith(b"code:"):
            raise CompileError("the image is not valid")
        with self.lock:
            number = next(self.numbers)
            self.modules[number] = code.decode()
            return number

    def unload_module(self, module: int) -> None:
        del self.modules[module]

    def native_calls(self, index: int) -> None:
        """Only Python can launch."""

    def get_function(self, module: int, name: str) -> str:
        if name not in self.modules[module]:
            raise CompileError(f"there is no {name}")
        return name

    def function_attributes(self, function: str) -> dict[str, int]:
        return {"registers": 32, "lds_bytes": 0, "local_bytes": 0, "max_threads": 1024}

    def launch(
        self,
        function: str,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        stream: int,
        kernel_args: KernelArguments,
        start: int = 0,
        early: bool = False,
    ) -> None:
        self._enter("launch")
        count = next((n for end, n in self.parameters.items() if function.endswith(end)), len(kernel_args) - start)
        places = (ctypes.c_void_p * count).from_address(kernel_args.address + 8 * start)
        taken = [ctypes.c_int64.from_address(p or 0).value for p in places]  # as the driver does: now, not later
        self.launches.append((function, grid, block, dynamic_lds, taken))
        body = next((b for end, b in self.bodies.items() if function.endswith(end)), None)

        def work() -> bool:
            if body is not None:
                body(taken)
            return True

        self._queue(stream, work)

    parameters: dict[str, int] = field(default_factory=dict)  # arguments of a kernel, by the end of its name

    # --- graphs -------------------------------------------------------------------------------------------------------

    def capture_begin(self, stream: int) -> None:
        self._enter("capture_begin")
        self.captured[stream] = []

    def capture_end(self, stream: int) -> int:
        self._enter("capture_end")
        number = next(self.numbers)
        self.graphs[number] = self.captured.pop(stream)
        return number

    def graph_instantiate(self, graph: int) -> int:
        self._enter("graph_instantiate")
        number = next(self.numbers)
        self.graphs[number] = list(self.graphs[graph])
        return number

    def graph_launch(self, executable: int, stream: int) -> None:
        self._enter("graph_launch")
        for work in self.graphs[executable]:
            self._queue(stream, work)

    def graph_destroy(self, graph: int, executable: int = 0) -> None:
        self._enter("graph_destroy")
        for number in (graph, executable):
            if number:
                del self.graphs[number]

    def range_push(self, name: str) -> None:
        self.ranges.append(name)

    def range_pop(self) -> None:
        self.ranges.pop()


class FakeCompiler(KernelCompiler):
    """Code is the source behind a mark; a source that says `refuse` is refused."""

    extension = ".fake"
    uncontracted = "-exact"

    def __init__(self, cache: DiskCache, version: str = "fake 1", flags: str = "-O3") -> None:
        super().__init__(version, flags, cache)
        self.sources: list[str] = []

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        self.sources.append(source)
        if "refuse" in source:
            raise CompileError("[compile] the fake compiler refused a kernel")
        return b"code:" + source.encode()


def fake_device(driver: FakeDriver, cache: DiskCache, index: int = 0) -> GpuDevice:
    """A device over the fakes."""
    return GpuDevice(driver, lambda: FakeCompiler(cache), index)
