"""What a device must offer. The engine knows devices through these protocols only.

`Device` is what all have in common, `GpuDevice` adds streams, copies, launches and captured graphs. The CPU runs tables
of launches in one call and is known to its runner as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from pyflame.core.device import DeviceId, Target
from pyflame.core.errors import DeviceFaultError
from pyflame.core.locks import Lock
from pyflame.core.trace import TraceEvent

if TYPE_CHECKING:
    from pyflame.runtime.gpu.driver import DeviceProperties, Driver, KernelArguments, NativeCalls
    from pyflame.runtime.gpu.pinned import PinnedPool
    from pyflame.runtime.kernels import Ahead
    from pyflame.runtime.stats import MemoryStats

T = TypeVar("T")


class Storage(Protocol):
    """Memory of a device, given back when nothing refers to it."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def on_host(self) -> bool:
        """Whether the host may read it at its address. A GPU's memory it may not, wherever that is."""

    @property
    def read_only(self) -> bool:
        """Foreign memory: no plan may write to it."""


class Allocator(Protocol):
    """A device's pool of memory."""

    limit: int | None  # bytes that it holds at most, in use and cached

    @property
    def exact(self) -> bool:
        """Whether each block is an allocation of its own, with exactly its bytes."""

    @property
    def stats(self) -> MemoryStats: ...
    def size_class(self, nbytes: int) -> int:
        """The size that a block of so many bytes has."""

    def empty_cache(self) -> int: ...
    def reset_peak(self) -> None: ...
    def take_recent_peak(self) -> int:
        """The most bytes in use since this was last asked."""


class GpuAllocator(Allocator, Protocol):
    """A GPU's pool, whose blocks belong to streams."""

    captures: int  # under way: until they end nothing is taken back

    def take_all(self, sizes: Sequence[int], stream: int) -> Sequence[Storage]:
        """Blocks of exactly these size classes."""

    def merge(self) -> None:
        """Merge what is free, so that the next blocks lie as close together as they can."""


class Device(Protocol):
    """A machine that runs launches, or the null device, which plans only."""

    @property
    def id(self) -> DeviceId: ...
    @property
    def target(self) -> Target: ...
    @property
    def lock(self) -> Lock:
        """Held by who runs a plan, from the choice of memory to overwrite until results are taken; never while
        compiling or waiting. Who needs those of several devices takes them in the order of their names."""

    @property
    def pool(self) -> Allocator | None:
        """Its memory. The null device has none."""

    @property
    def gpu(self) -> GpuDevice | None:
        """The device itself where it is a GPU."""

    @property
    def interprets(self) -> bool:
        """Whether ops run as their NumPy references because there is no compiler."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in total."""

    def empty_cache(self) -> int: ...
    def info(self) -> dict[str, Any]: ...
    def synchronize(self) -> None: ...


class Stream(Protocol):
    """A queue of work. Work of one stream runs in order; streams wait for each other by events only."""

    @property
    def handle(self) -> int: ...
    @property
    def idle(self) -> bool: ...
    def synchronize(self) -> None: ...
    def wait(self, event: Event) -> None:
        """Let what comes next wait for an event, perhaps of another device."""


class Event(Protocol):
    """A point in a stream."""

    @property
    def handle(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def record(self, stream: Stream | None = None) -> Event:
        """Put it behind what the stream (the default one) was given so far."""

    def synchronize(self) -> None: ...
    def seconds_since(self, start: Event) -> float:
        """Time on the GPU between two events made with `timing`; waits for this one."""


class Graph(Protocol):
    """Captured work."""

    def replay(self) -> None: ...


class Program(Protocol):
    """A kernel that is loaded on a GPU."""

    @property
    def name(self) -> str: ...
    @property
    def handle(self) -> Any:
        """What the driver launches."""

    @property
    def awaits(self) -> bool:
        """Whether it waits itself for what was launched before (`pf_await`), so that it may begin early."""

    def named(self, name: str, awaits: bool = False) -> Program:
        """The same under another name, for faults and traces."""


class Clock(Protocol):
    """Takes the times of a GPU's work."""

    def around(self, event: TraceEvent, work: Callable[[], T], stream: Stream | None = None) -> T: ...
    def resolve(self) -> None:
        """Wait for all that was timed, and read its times."""


Launch = tuple[
    Program, tuple[int, int, int], tuple[int, int, int], int, int
]  # with blocks, their threads, dynamic LDS and the first of its arguments


class GpuDevice(Device, Protocol):
    """A GPU. All work is asynchronous, in the order of a stream, until something is downloaded or waited for."""

    @property
    def index(self) -> int: ...
    @property
    def driver(self) -> Driver: ...
    @property
    def guard(self) -> Driver:
        """The same, for all calls but launches: a fault names the kernels."""

    @property
    def properties(self) -> DeviceProperties: ...
    @property
    def fault(self) -> DeviceFaultError | None:
        """What broke it."""

    @property
    def timings(self) -> Clock: ...
    @property
    def pool(self) -> GpuAllocator: ...
    @property
    def pinned(self) -> PinnedPool: ...
    def use(self) -> None:
        """Make it this thread's current device. Refuses one that has broken."""

    # --- streams
    @property
    def stream(self) -> Stream:
        """The stream of everything that names no other; in a thread that captures, the one that is captured."""

    @property
    def chosen(self) -> Stream:
        """The stream that this thread has chosen, else the device's own."""

    @property
    def forked(self) -> bool:
        """Whether anything ever ran on a stream that somebody chose: then uses are noted."""

    def make_stream(self, priority: int = 0) -> Stream: ...
    def follow(self, handle: int) -> Stream | None:
        """Give this thread's work to a stream of somebody else's until `unfollow`, which takes what this gives."""

    def unfollow(self, chosen: Stream | None) -> None: ...
    def event(self, timing: bool = False) -> Event: ...
    def note_uses(self, storages: Iterable[Any]) -> None: ...

    # --- memory
    def allocate(self, nbytes: int, stream: Stream | None = None) -> Storage: ...
    def foreign(self, address: int, nbytes: int, owner: Any) -> Storage:
        """Memory of another library's, whose owner is kept until this device has done what it is given with it."""

    def received(self, host: int, nbytes: int) -> Storage:
        """Host memory as new memory of the device."""

    def upload(self, address: int, data: bytes, stream: Stream | None = None) -> None: ...
    def upload_from(self, address: int, host: int, nbytes: int, stream: Stream | None = None) -> None: ...
    def download(self, host: int, address: int, nbytes: int, stream: Stream | None = None) -> None: ...
    def copy(self, dst: int, src: int, nbytes: int, stream: Stream | None = None) -> None: ...
    def fill(self, address: int, byte: int, nbytes: int, stream: Stream | None = None) -> None: ...
    def zero(self, address: int, nbytes: int, stream: Stream | None = None) -> None: ...
    def reaches(self, other: GpuDevice) -> bool:
        """Whether it can copy straight from another device's memory."""

    def copy_from_peer(self, address: int, other: GpuDevice, src: int, nbytes: int) -> None: ...
    def pinned_empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]: ...
    def is_pinned(self, address: int, nbytes: int) -> bool: ...

    # --- work
    def functions(self, texts: Sequence[tuple[str, Sequence[str]]]) -> Sequence[Sequence[Program]]:
        """Each text's kernels, by the suffixes given with it, compiled if need be."""

    def ahead(self) -> Ahead:
        """What compiles kernels in the background, before they are asked for."""

    def load(self, code: bytes, names: Sequence[str]) -> Sequence[Program]:
        """Kernels of a code object, loaded until it is unloaded as often."""

    def unload(self, code: bytes) -> None: ...

    def attributes(self, function: Program) -> dict[str, int]: ...
    def launch_all(
        self,
        launches: Iterable[Launch],
        kernel_args: KernelArguments,
        stream: Stream | None = None,
        behind: bool = False,
    ) -> None: ...
    @property
    def native_calls(self) -> NativeCalls | None:
        """How C launches here, where the driver can be called from there."""

    @property
    def direct_calls(self) -> bytes | None:
        """What C must know to work on the device's own stream; None where more is to be seen to, or it cannot."""

    def check(self) -> None:
        """Look at all that is watched; then the first error that was reported is raised."""

    def stage(self, nbytes: int) -> tuple[Any, int]:
        """Pinned memory for a few bytes that the device's own stream shall be sent, and where it lies: to be held until
        the copy is given."""

    def remember_all(self, kernels: Iterable[str]) -> None:
        """Note that these are given to the driver by somebody else: a fault may be theirs."""

    def start(self, name: str, work: Callable[[int], None], stream: Stream | None = None) -> None:
        """Give work of another kind, a library's, to the stream: `work(stream)` starts it."""

    def watch(self, storage: Any, address: int, nbytes: int, report: Callable[[bytes], None]) -> None:
        """Have bytes that a launch leaves fetched when the host next waits, and shown to `report`, which may raise:
        once, however often they were watched."""

    @property
    def capturing(self) -> bool:
        """Whether what this thread gives to the device is captured."""

    def capture(self) -> AbstractContextManager[Graph]: ...
