"""A GPU: its memory, its kernels, its stream, and copies to and from it. The same for every vendor's driver.

Everything is asynchronous, in the order of the device's stream, until something is downloaded or waited for.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pyflame.core import knobs, trace
from pyflame.core.cached import cached_property
from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError, DeviceFaultError, OutOfMemoryError, PyFlameError
from pyflame.core.locks import lock, rlock
from pyflame.core.trace import TraceEvent
from pyflame.runtime import base
from pyflame.runtime.gpu.compiler import Function, GpuKernels, KernelCompiler
from pyflame.runtime.gpu.description import description
from pyflame.runtime.gpu.driver import DeviceProperties, Driver, KernelArguments, NativeCalls, dimensions
from pyflame.runtime.gpu.foreign import ForeignMemory
from pyflame.runtime.gpu.graph import Graph, capture, some
from pyflame.runtime.gpu.guard import guard
from pyflame.runtime.gpu.memory import Block, DevicePool
from pyflame.runtime.gpu.modules import Modules
from pyflame.runtime.gpu.pinned import PinnedPool
from pyflame.runtime.gpu.stream import Event, ForeignStream, Stream
from pyflame.runtime.gpu.timing import Timings
from pyflame.runtime.gpu.transfer import Transfers
from pyflame.runtime.gpu.watched import Watched
from pyflame.runtime.kernels import Ahead

_REMEMBERED = 1024  # launches that a fault is looked for in, at most
T = TypeVar("T")


class _OfThread(threading.local):
    """The graph that a thread captures, and the stream that it has chosen."""

    graph: Graph | None = None
    stream: base.Stream | None = None


class GpuDevice:
    """One GPU.

    `find_compiler` is asked when the first kernel is needed. `memory_error`: raised when memory runs out.
    """

    interprets = False

    def __init__(
        self,
        driver: Driver,
        find_compiler: Callable[[], KernelCompiler],
        index: int = 0,
        memory_error: type[OutOfMemoryError] = OutOfMemoryError,
    ) -> None:
        self.driver = driver
        self.guard = guard(driver, self._broken)  # the same, for all calls but launches: a fault names the kernels
        self.index = index
        self.id = DeviceId.of(driver.kind, index)
        self.fault: DeviceFaultError | None = None
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)  # launches since the device was last known to work
        self.remember_all = self._recent.extend
        self.properties: DeviceProperties = driver.properties(index)
        self.target = driver.target(index)
        self.spare_streams: dict[int, deque[int]] = {}  # by priority
        self.spare_events: dict[bool, deque[int]] = {}  # by whether they take the time
        self.retired_graphs: deque[tuple[int, int]] = deque()
        self.pool = DevicePool(self.guard, index, error=memory_error)
        self.pinned = PinnedPool(self.guard, index)
        self.timings = Timings(self)
        self._main = Stream(self)
        self._side: Stream | None = None  # for captures: what other threads do meanwhile is no part of them
        self._copies: Stream | None = None  # for uploads from pinned memory, beside the work of the others
        self.forked = False  # whether anything ever ran on a stream that somebody chose: then uses are noted
        self._followed: ForeignStream | None = None
        self._foreign_streams: dict[int, ForeignStream] = {}  # by handle
        self._beside = False  # whether anything was launched on another stream than the chosen one
        self._transfers = Transfers(self.guard, self.pinned)
        self._find_compiler = find_compiler
        self._kernels: GpuKernels | None = None
        self.lock = rlock()
        self._opening = lock()
        self._capture_lock = rlock()
        self._thread = _OfThread()
        self._watched = Watched()
        self._modules = Modules(self.guard)
        self._peers: dict[DeviceId, bool] = {}

    def use(self) -> None:
        """Make it this thread's current device. Refuses one that has broken."""
        if self.fault is not None:
            self._refuse_broken()
        self.guard.set_device(self.index)

    @cached_property
    def native_calls(self) -> NativeCalls | None:
        """How C launches here, where the driver can be called from there."""
        return self.driver.native_calls(self.index)

    @property
    def direct_calls(self) -> bytes | None:
        """What C must know to work on the device's own stream; None where more is to be seen to, or it cannot."""
        if self.forked or self.fault is not None or self.capturing or trace.recording is not None:
            return None
        return self._direct_calls

    @cached_property
    def _direct_calls(self) -> bytes | None:
        calls = self.native_calls
        return None if calls is None else struct.pack("=7q", *calls, self._main.handle)

    @property
    def gpu(self) -> GpuDevice:
        """Itself: the CPU and the null device say None."""
        return self

    @property
    def stream(self) -> base.Stream:
        """The stream of everything that names no other; in a thread that captures, the one that is captured."""
        here = self._thread  # each launch comes by here, and this takes a third of the time of calls in a row
        return (here.stream or self._main) if here.graph is None else here.graph.stream

    @property
    def main(self) -> Stream:
        """The device's own stream."""
        return self._main

    def make_stream(self, priority: int = 0) -> Stream:
        """Another stream. `priority`: below 0 is more urgent."""
        return Stream(self, priority)

    @property
    def chosen(self) -> base.Stream:
        """The stream that this thread has chosen, else the device's own."""
        return self._thread.stream or self._main

    @contextmanager
    def using(self, stream: base.Stream) -> Iterator[None]:
        """Give this thread's work to another stream: behind what was given before, and before what comes after."""
        self._no_capture("change of streams")
        before = self.chosen
        self.forked = True
        stream.wait(Event(self).record(before))
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before
            before.wait(Event(self).record(stream))

    def follow(self, handle: int) -> base.Stream | None:
        """Give this thread's work to a stream of somebody else's, in whose order it belongs; gives what `unfollow`
        takes. What the stream followed before was given, in any thread, comes first."""
        stream = self._followed
        if stream is None or stream.handle != handle:
            self._no_capture("change of streams")
            with self.lock:
                before: Stream = self._followed or self._main
                stream = self._foreign_streams.get(handle)
                if stream is None:
                    stream = self._foreign_streams[handle] = ForeignStream(self, handle)
                stream.wait(Event(self).record(before))
                self._followed = stream
                self.forked = True
        chosen = self._thread.stream
        self._thread.stream = stream
        return chosen

    def unfollow(self, chosen: base.Stream | None) -> None:
        """Go back to the stream that this thread had chosen."""
        self._thread.stream = chosen

    def lend(self, storage: Any, handle: int) -> None:
        """Let somebody else's stream read memory: behind what this thread's stream was given so far. What is given up
        is used again behind what that stream was given by then."""
        if handle == self.chosen.handle:
            return
        self.use()
        self.guard.stream_wait_event(handle, Event(self).record().handle)
        self.forked = True
        if isinstance(storage, Block | ForeignMemory):
            storage.used_on(handle)

    def note_uses(self, storages: Iterable[Any]) -> None:
        """Tell that this thread's stream uses memory that may belong to another one."""
        handle = self.chosen.handle
        for storage in storages:
            if isinstance(storage, Block | ForeignMemory):
                storage.used_on(handle)

    def guarded(self, work: Callable[[], T]) -> T:
        """Run something that may find out that the device broke; the error then names the last kernels."""
        try:
            return work()
        except DeviceFaultError as error:
            if error is self.fault:
                raise  # it names them
            raise self._broken(error) from error

    def _broken(self, error: DeviceFaultError) -> DeviceFaultError:
        self._refuse_broken()
        names = some(reversed(list(self._recent)))
        self.fault = type(error)(f"{error}. Kernels launched last, newest first: {names}")
        return self.fault

    def _refuse_broken(self) -> None:
        if self.fault is not None:
            told = f"[device] expected {self.id} to work but it broke before: {self.fault}"
            raise type(self.fault)(told) from self.fault

    def remember(self, kernel: str) -> None:
        """Note that a kernel, or something that launches kernels, is given to the device: a fault may be its."""
        self._recent.append(kernel)

    def waited(self, wait: Callable[[], T], for_all: bool = False) -> T:
        """Wait for a stream, or `for_all`: where that is all there was, a later fault comes from what follows."""
        before = len(self._recent)
        result = self.guarded(wait)
        if for_all or not (self.forked or self._beside):
            with suppress(IndexError):  # another thread has waited too
                for _ in range(before):
                    self._recent.popleft()
        return result

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: base.Stream | None = None) -> Block:
        """Memory for work on a stream. A graph that is being captured keeps it."""
        self._refuse_broken()  # memory from the cache would hide it
        block = self.pool.allocate(nbytes, (stream or self.chosen).handle)
        graph = self._capture
        if graph is not None:
            graph.keep(block)
        return block

    def foreign(self, address: int, nbytes: int, owner: Any) -> ForeignMemory:
        """Memory of another library's, whose owner is kept until this device has done what it is given with it."""
        streams = {self._main.handle, self.chosen.handle}
        return ForeignMemory(address, nbytes, owner, streams, self.pool.foreign)

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in total, as the driver sees them."""
        self.use()
        return self.guard.mem_info()

    def pinned_empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An uninitialised array in pinned memory, which `received` copies from without waiting."""
        return self.pinned.empty(shape, dtype)

    def is_pinned(self, address: int, nbytes: int) -> bool:
        """Whether host memory is of the device's pinned pool."""
        return self.pinned.holding(address, nbytes) is not None

    def empty_cache(self) -> int:
        """Give unused memory back, of the device and pinned; gives the bytes."""
        self.use()
        self._transfers.empty_cache()
        return self.pool.empty_cache() + self.pinned.empty_cache()

    # --- kernels ------------------------------------------------------------------------------------------------------

    @property
    def kernels(self) -> GpuKernels:
        """Compiled kernels, in memory and on disk."""
        if self._kernels is None:
            with self._opening:
                if self._kernels is None:
                    self._kernels = GpuKernels(self.guard, self.index, self.target, self._find_compiler())
        return self._kernels

    def functions(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[list[Function]]:
        """Each text's kernels, by the suffixes given with it. A text defines kernels PF_KEY<suffix>."""
        self.use()  # or a device that has broken would refuse to load what is compiled, and not say why
        return self.kernels.functions(texts)

    def ahead(self) -> Ahead:
        """What compiles kernels in the background, before they are asked for."""
        return self.kernels.ahead()

    def load(self, code: bytes, names: Sequence[str]) -> list[Function]:
        """Kernels of a code object, which stays loaded until it is unloaded as often: a launch may be under way."""
        self.use()
        return self._modules.load(code, names)

    def unload(self, code: bytes) -> None:
        """Give up a code object, behind all work on the device. A device that has broken holds none."""
        module = self._modules.given_up(code)
        if module is not None and self.fault is None:
            self.use()
            self.guard.synchronize()
            self.guard.unload_module(module)

    def launch(
        self,
        function: Function,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        dynamic_lds: int,
        kernel_args: KernelArguments | Sequence[int] | np.ndarray[Any, Any],
        start: int = 0,
        stream: base.Stream | None = None,
    ) -> None:
        """Give a kernel to the stream. `kernel_args`: its arguments of 8 bytes each, from `start` on."""
        given = kernel_args if isinstance(kernel_args, KernelArguments) else KernelArguments(kernel_args)
        self.launch_all([(function, dimensions(grid), dimensions(block), dynamic_lds, start)], given, stream)

    def launch_all(
        self,
        launches: Iterable[base.Launch],
        kernel_args: KernelArguments,
        stream: base.Stream | None = None,
        behind: bool = False,
    ) -> None:
        """Give kernels to the stream, in order: (function, grid, block, dynamic LDS, its first argument) each.

        `behind`: a kernel is what the stream was given last, with nothing to wait for since.
        """
        if trace.recording is None:
            self._give(launches, kernel_args, stream, behind)
            return
        launches = list(launches)
        names = dict.fromkeys(function.name for function, *_ in launches)
        event = TraceEvent("kernel", ", ".join(names), implementation="own", why="given to the device as it is")
        self.timings.around(event, lambda: self._give(launches, kernel_args, stream, behind), stream)

    def _give(
        self, launches: Iterable[base.Launch], kernel_args: KernelArguments, stream: base.Stream | None, behind: bool
    ) -> None:
        self.use()
        overlaps = self._capture is not None and knobs.GRAPH_OVERLAP.integer() > 0
        self._beside = self._beside or stream is not None
        handle, give, remember = (stream or self.stream).handle, self.driver.launch, (self._capture or self).remember
        for function, grid, block, dynamic_lds, start in launches:
            remember(function.name)
            try:
                early = overlaps and behind and function.awaits
                give(function.handle, grid, block, dynamic_lds, handle, kernel_args, start, early)
            except DeviceFaultError as error:  # of an earlier launch: it is found by whoever comes next
                raise self._broken(error) from error
            except PyFlameError as error:
                shape = f"grid {grid}, block {block}, dynamic LDS {dynamic_lds}"
                raise type(error)(f"{error}. The kernel is {function.name}, {shape}") from error
            behind = True

    def start(self, name: str, work: Callable[[int], None], stream: base.Stream | None = None) -> None:
        """Give work of another kind, a library's, to the stream: `work(stream)` starts it."""
        self.use()
        (self._capture or self).remember(name)
        self._move("kernel", name, 0, lambda: work((stream or self.stream).handle), stream)

    def attributes(self, function: base.Program) -> dict[str, int]:
        """registers, lds_bytes, local_bytes (spills) and max_threads of a kernel."""
        self.use()
        return self.guard.function_attributes(function.handle)

    # --- copies -------------------------------------------------------------------------------------------------------

    def stage(self, nbytes: int) -> tuple[Any, int]:
        """Pinned memory for a few bytes that the device's own stream shall be sent, and where it lies: to be held until
        the copy is given."""
        return self._transfers.stage(nbytes, self._main.handle)

    def upload(self, address: int, data: bytes, stream: base.Stream | None = None) -> None:
        """Send bytes. They may be forgotten when this returns."""
        source = np.frombuffer(data, np.uint8)
        self.upload_from(address, source.ctypes.data, len(data), stream)

    def upload_from(self, address: int, host: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Send host memory. It may be changed when this returns; the device has it when its stream gets there."""
        self._no_capture("upload")
        self.use()
        self._move(
            "copy",
            f"host to {self.id}",
            nbytes,
            lambda: self._transfers.upload(address, host, nbytes, (stream or self.stream).handle),
            stream,
        )

    def send(self, address: int, host: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Send host memory; what is pinned is read when the stream gets there and must not change before."""
        block = self.pinned.holding(host, nbytes)
        if block is None:
            self.upload_from(address, host, nbytes, stream)
            return
        self._no_capture("upload")
        self.use()
        handle = (stream or self.stream).handle
        block.used_on(handle)
        self._move(
            "copy",
            f"host to {self.id}",
            nbytes,
            lambda: self.guard.copy_h2d(address, host, nbytes, handle),
            stream,
        )

    def fetch(self, host: int, address: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Fetch memory: into pinned memory when the stream gets there, into other memory now, waiting for it."""
        block = self.pinned.holding(host, nbytes)
        if block is None:
            self.download(host, address, nbytes, stream)
            return
        self._no_capture("download")
        self.use()
        handle = (stream or self.stream).handle
        block.used_on(handle)
        self._move(
            "copy",
            f"{self.id} to host",
            nbytes,
            lambda: self.guard.copy_d2h(host, address, nbytes, handle),
            stream,
        )

    def received(self, host: int, nbytes: int) -> Block:
        """Host memory as new memory of the device.

        Pinned memory is read while the caller goes on and other work runs: it must not change before that is done, and
        returns to its pool only then. Other memory may be changed when this returns.
        """
        if not self.is_pinned(host, nbytes):
            fresh = self.allocate(nbytes)
            self.upload_from(fresh.address, host, nbytes)
            return fresh
        with self._opening:
            self._copies = self._copies or Stream(self)
        copies = self._copies
        # Memory of the copying stream: that of the others may still be in use there, and would have to be waited for.
        fresh = self.pool.allocate(nbytes, copies.handle)
        self.send(fresh.address, host, nbytes, copies)
        self.chosen.wait(Event(self).record(copies))
        fresh.used_on(self.chosen.handle)
        return fresh

    def download(self, host: int, address: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Fetch memory. Waits until it is there, then looks at what is watched."""
        self._no_capture("download")
        self.use()
        self._move(
            "copy",
            f"{self.id} to host",
            nbytes,
            lambda: self.waited(
                lambda: self._transfers.download(host, address, nbytes, (stream or self.stream).handle)
            ),
            stream,
        )
        self.check()

    def copy(self, dst: int, src: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Copy inside the device."""
        self.use()
        if nbytes:
            self._move(
                "copy",
                f"inside {self.id}",
                2 * nbytes,  # read and written
                lambda: self.guard.copy_d2d(dst, src, nbytes, (stream or self.stream).handle),
                stream,
            )

    def fill(self, address: int, byte: int, nbytes: int, stream: base.Stream | None = None) -> None:
        """Set every byte."""
        self.use()
        if nbytes:
            self._move(
                "fill",
                f"fill of {self.id}",
                nbytes,
                lambda: self.guard.memset(address, byte, nbytes, (stream or self.stream).handle),
                stream,
            )

    def zero(self, address: int, nbytes: int, stream: base.Stream | None = None) -> None:
        self.fill(address, 0, nbytes, stream)

    def _move(
        self, kind: str, name: str, nbytes: int, work: Callable[[], None], stream: base.Stream | None = None
    ) -> None:
        """Give something that is no kernel of ours to the stream."""
        if trace.recording is None:
            self.guarded(work)
        else:
            self.timings.around(TraceEvent(kind, name, nbytes=nbytes), lambda: self.guarded(work), stream)

    def reaches(self, other: base.GpuDevice) -> bool:
        """Whether it can copy straight from another device's memory; asked and enabled once."""
        known = self._peers.get(other.id)
        if known is None:
            known = other.driver is self.driver and self.guard.can_access_peer(self.index, other.index)
            if known:
                self.guard.enable_peer(self.index, other.index)
            self._peers[other.id] = known
        return known

    def copy_from_peer(self, address: int, other: base.GpuDevice, src: int, nbytes: int) -> None:
        """Copy from another device's memory, behind what its stream was given so far; it waits for the copy in turn."""
        if not nbytes:
            return
        written = other.event().record()
        self.stream.wait(written)
        self._move(
            "copy",
            f"{other.id} to {self.id}",
            nbytes,
            lambda: self.guard.copy_peer(address, self.index, src, other.index, nbytes, self.stream.handle),
        )
        other.stream.wait(Event(self).record())  # or the source could be given away and overwritten before

    # --- waiting ------------------------------------------------------------------------------------------------------

    def watch(self, storage: Any, address: int, nbytes: int, report: Callable[[bytes], None]) -> None:
        """Have bytes that a launch leaves fetched when the host next waits, and shown to `report`, which may raise:
        once, however often they were watched."""
        if self._watched.add(storage, address, nbytes, report) and self._capture is None:
            self.use()
            self.check()

    def check(self) -> None:
        """Look at all that is watched; then the first error that was reported is raised."""
        self._watched.check(lambda to, at, nbytes: self._transfers.download(to, at, nbytes, self.stream.handle))

    def synchronize(self) -> None:
        """Wait for everything, then look at what is watched."""
        self._no_capture("synchronize")
        with self._capture_lock:  # a device cannot be waited for while another thread captures on it
            self.use()
            self.waited(self.guard.synchronize, for_all=True)
            self.bury()
        self.check()

    def event(self, timing: bool = False) -> Event:
        return Event(self, timing)

    # --- graphs -------------------------------------------------------------------------------------------------------

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Capture launches, copies inside the device and fills of this thread, to be replayed as one.

        >>> with device.capture() as graph:  # doctest: +SKIP
        ...     device.launch(function, 1, 64, 0, kernel_args)
        >>> graph.replay()  # doctest: +SKIP
        """
        with self._capture_lock:
            if self._capture is not None:
                raise DeviceError("[graph] expected no capture inside of another; end the first one")
            self._side = self._side or Stream(self)
            with capture(self, self._side) as graph:
                self._thread.graph = graph
                try:
                    yield graph
                finally:
                    self._thread.graph = None

    @property
    def capturing(self) -> bool:
        """Whether what this thread gives to the device is captured."""
        return self._capture is not None

    @property
    def _capture(self) -> Graph | None:
        """The graph that this thread is capturing."""
        return self._thread.graph

    def bury(self) -> None:
        """Destroy graphs that nobody holds any more, when the stream is done with them."""
        if self.retired_graphs:
            if self.forked:
                self.guard.synchronize()
            else:
                self.guard.stream_synchronize(self._main.handle)
        while self.retired_graphs:
            self.guard.graph_destroy(*self.retired_graphs.popleft())

    def _no_capture(self, what: str) -> None:
        if self._capture is not None:
            raise DeviceError(f"[graph] expected no {what} while a graph is captured; do it before or after that")

    # --- telling ------------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        return description(self)


if TYPE_CHECKING:  # it is what the engine asks for

    def _fits(device: GpuDevice) -> base.GpuDevice:
        return device
