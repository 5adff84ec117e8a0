"""What stands behind the functions of the simulated HIP: devices, streams, modules, captures, and how calls fail."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pyflame.core.device import Target
from pyflame.core.errors import PyFlameError
from pyflame.core.locks import rlock
from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.metadata import KernelMetadata
from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.hip.arguments import Handle, Param, address_of
from pyflame.runtime.sim.hip.capture import Capture, Graph
from pyflame.runtime.sim.hip.types import (
    HIP_VERSION,
    hipError_t,
    hipGraphNodeType,
    hipStreamCaptureMode,
    hipStreamNonBlocking,
)
from pyflame.runtime.sim.hip.work import Event, Scheduler, Stream, Work
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.modes import Modes

Grid = tuple[int, int, int]
P = ParamSpec("P")
S = TypeVar("S", bound="HipState")

# What a fault of a kernel looks like to the host. HIP has no status for most of them.
_FAULTS = {"illegal address": hipError_t.hipErrorIllegalAddress, "limit": hipError_t.hipErrorLaunchTimeOut}
_HANDLES = 1 << 62  # handles are no addresses of anything
_LEGACY, _PER_THREAD = 1, 2  # hipStreamLegacy and hipStreamPerThread
_GO_ON = (
    "Go on with another one (PYFLAME_SIM_DEVICES sets how many there are), or reset it (hipDeviceReset, "
    "pyflame.reset_device), which frees its memory"
)


class Kernel(Protocol):
    """A kernel of a loaded module."""

    name: str
    metadata: KernelMetadata
    params: Sequence[Param]
    static_lds: int
    max_threads: int


class Module(Protocol):
    """A loaded code object. `globals`: address and size by name."""

    @property
    def kernels(self) -> dict[str, Any]: ...
    @property
    def globals(self) -> dict[str, tuple[int, int]]: ...


class Machine(Protocol):
    """Executes kernels over a memory."""

    def load(self, code: bytes) -> Module: ...
    def unload(self, module: Any) -> None: ...
    def launch(
        self, kernel: Any, grid: Grid, block: Grid, dynamic_lds: int, kernarg: bytes, *, acquire: bool = True
    ) -> Any:
        """Run a kernel to its end; raises a SimulationFault where it does something wrong."""

    def acquire(self) -> None:
        """Invalidate what outlives a launch in caches."""


class Refused(Exception):
    """A call that ends with a status. `detail`: what HIP would not tell."""

    def __init__(self, status: hipError_t, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Gpu:
    """One simulated device."""

    def __init__(self, index: int, memory: Memory, make_machine: Callable[[], Machine]) -> None:
        self.index = index
        self.memory = memory
        self._make_machine = make_machine
        self.reset()

    def reset(self) -> None:
        self.fault: SimulationFault | None = None
        self.memory.clear()
        self.null = Stream(0, self.index, null=True)
        self.orphans: list[Work] = []  # of blocking streams that are gone
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self._machine = self._make_machine()
        return self._machine


def hip(values: int = 0, anyway: bool = False) -> Callable[[Callable[Concatenate[S, P], Any]], Callable[..., Any]]:
    """A function of HIP: gives (status, values...). `anyway`: also while the current device is broken.

    The function itself gives its values, or raises Refused. One call runs at a time.
    """

    def decorate(function: Callable[Concatenate[S, P], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(self: S, *args: P.args, **kwargs: P.kwargs) -> tuple[Any, ...]:
            with self.lock:
                try:
                    if not anyway:
                        self.working(self.current)
                    got = function(self, *args, **kwargs)
                except Refused as refused:
                    self.remember(refused)
                    return (refused.status, *[None] * values)
            return (hipError_t.hipSuccess, *((got,) if values == 1 else got if values else ()))

        call.values = values  # type: ignore[attr-defined]
        return call

    return decorate


class HipState:
    """Devices of one target, and everything that was made on them."""

    def __init__(
        self,
        target: str,
        count: int,
        nbytes: int,
        seed: int,
        make_machine: Callable[[str, Memory], Machine],
        first: int,
        modes: Modes = frozenset(),
        version: int = HIP_VERSION,
    ) -> None:
        self.modes, self.version = modes, version
        self.target: Target = TARGETS[target]
        self.lock = rlock()
        memories = [Memory(nbytes, seed, first + index) for index in range(count)]
        self.gpus = [Gpu(i, m, functools.partial(make_machine, target, m)) for i, m in enumerate(memories)]
        self.host = Memory(0)  # pinned and managed memory, which every device reaches
        self.kept: dict[int, tuple[Any, int, str]] = {}  # of host memory, by address: bytes, flags, kind
        self.scheduler = Scheduler(seed, self._broke)
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.modules: dict[int, tuple[int, Module]] = {}  # device and module
        self.functions: dict[int, tuple[int, int, Kernel]] = {}  # device, module's handle and kernel
        self.graphs: dict[int, Graph] = {}
        self.executables: dict[int, Graph] = {}
        self.captures: list[Capture] = []
        self._handles = itertools.count(_HANDLES, 16)
        self._numbers = itertools.count(1)
        self._local = threading.local()

    # --- failing ------------------------------------------------------------------------------------------------------

    def remember(self, refused: Refused) -> None:
        if refused.status != hipError_t.hipErrorNotReady:
            self._local.last = refused.status
        self._local.detail = refused.detail

    def explain(self) -> str:
        """What the last call of this thread that failed would say if statuses had words."""
        detail: str = getattr(self._local, "detail", "")
        return detail

    @property
    def last_error(self) -> hipError_t:
        """The last error of this thread; for good where its device is broken."""
        fault = self.gpus[self.current].fault
        if fault is not None:
            return _status(fault)
        found: hipError_t = getattr(self._local, "last", hipError_t.hipSuccess)
        return found

    def forget_error(self) -> None:
        self._local.last = hipError_t.hipSuccess

    def _broke(self, device: int, fault: SimulationFault) -> None:
        if "abort" in self.modes:  # as the driver's default handler does before ROCm 7.0
            print(f"{fault.message}\nGPU {device} has faulted; aborting the process", file=sys.stderr, flush=True)
            os.abort()
        gpu = self.gpus[device]
        gpu.fault = gpu.fault or fault
        self.scheduler.drop(device, fault)

    def working(self, device: int) -> None:
        """Refuse a device that is broken, with what broke it."""
        fault = self.gpus[device].fault
        if fault is not None:
            raise Refused(
                _status(fault), f"{fault.message}\nDevice {device} stopped there and refuses all work. {_GO_ON}"
            )

    def finish(self, goals: Iterable[Work | None]) -> None:
        """Wait for work; refuses where it failed."""
        wanted = [g for g in goals if g is not None]
        self.scheduler.finish(wanted)
        for work in wanted:
            self.working(work.device)
            if work.failed is not None:
                raise Refused(_status(work.failed), f"{work.failed.message}\n{work.what} came behind work that failed")

    def synchronize(self, device: int) -> None:
        """Wait for all that a device was given."""
        self.finish(self.scheduler.of(device))
        self.scheduler.waited(device)
        self.working(device)

    # --- devices, streams, handles ------------------------------------------------------------------------------------

    @property
    def current(self) -> int:
        """The device of this thread; 0 until it chooses."""
        return int(getattr(self._local, "device", 0))

    @current.setter
    def current(self, device: int) -> None:
        self._local.device = device

    @property
    def gpu(self) -> Gpu:
        return self.gpus[self.current]

    def device(self, number: Any) -> Gpu:
        index = int(number)
        if not 0 <= index < len(self.gpus):
            raise Refused(hipError_t.hipErrorInvalidDevice, f"there are {len(self.gpus)} devices but {index} was named")
        return self.gpus[index]

    def handle(self) -> Handle:
        """A new one, never handed out again."""
        return Handle(next(self._handles))

    def stream(self, given: Any) -> Stream:
        """The stream that an argument names. 0 is the null stream of the current device."""
        handle = address_of(given)
        if handle in (0, _LEGACY):
            return self.gpu.null
        if handle == _PER_THREAD:
            mine: dict[Gpu, Stream] = self._local.__dict__.setdefault("streams", {})
            found = mine.get(self.gpu)
            if found is None or found.handle not in self.streams:
                found = mine[self.gpu] = self.new_stream(0, 0)
        else:
            maybe = self.streams.get(handle)
            if maybe is None:
                raise Refused(hipError_t.hipErrorInvalidHandle, f"{handle:#x} is no stream, or one that was destroyed")
            found = maybe
        self.working(found.device)
        return found

    def new_stream(self, flags: int, priority: int) -> Stream:
        stream = Stream(self.handle(), self.current, flags, priority)
        self.streams[stream.handle] = stream
        return stream

    def event(self, given: Any) -> Event:
        handle = address_of(given)
        found = self.events.get(handle)
        if found is None:
            raise Refused(hipError_t.hipErrorInvalidHandle, f"{handle:#x} is no event, or one that was destroyed")
        return found

    # --- giving work --------------------------------------------------------------------------------------------------

    def submit(
        self, stream: Stream, kind: hipGraphNodeType, what: str, run: Callable[[], None] | None, handle: int = 0
    ) -> Work | None:
        """Queue work, or capture it, which gives nothing. `handle`: of a library whose work it is."""
        handle = handle if "handles" in self.modes else 0
        if stream.capture is not None:
            self.valid(stream.capture).add(stream, kind, what, run, handle)
            return None
        return self.queue(stream, what, run, handle=handle)

    def queue(
        self,
        stream: Stream,
        what: str,
        run: Callable[[], None] | None = None,
        behind: Iterable[Work | None] = (),
        handle: int = 0,
    ) -> Work:
        """Queue work that is no part of a capture."""
        stream.tail = self.scheduler.add(stream.device, what, run, [*self.leaders(stream), *behind], handle)
        return stream.tail

    def leaders(self, stream: Stream) -> list[Work | None]:
        """What the next work of a stream comes behind."""
        gpu = self.gpus[stream.device]
        if stream.null:
            blocking = [s for s in self.streams.values() if s.device == stream.device and s.blocking]
            self.invalidate(
                {s.capture for s in blocking if s.capture is not None},
                hipError_t.hipErrorStreamCaptureImplicit,
                "the null stream would have to wait for a stream that is being captured",
            )
            gpu.orphans = [w for w in gpu.orphans if not w.done or w.known]
            return [stream.tail, *gpu.orphans, *[s.tail for s in blocking]]
        return [stream.tail, gpu.null.tail] if not stream.flags & hipStreamNonBlocking else [stream.tail]

    # --- captures -----------------------------------------------------------------------------------------------------

    @staticmethod
    def valid(capture: Capture) -> Capture:
        if not capture.valid:
            raise Refused(
                hipError_t.hipErrorStreamCaptureInvalidated,
                "an earlier call spoiled this capture; end it and begin anew",
            )
        return capture

    @staticmethod
    def invalidate(captures: Iterable[Capture], status: hipError_t, detail: str) -> None:
        """Spoil captures, if there are any, and refuse the call that did."""
        spoiled = list(captures)
        for capture in spoiled:
            capture.valid = False
        if spoiled:
            raise Refused(status, f"{detail}; the capture is spoiled")

    def unsafe(self, what: str) -> None:
        """Refuse a call that no capture stands but a relaxed one (or, for other threads, a thread-local one)."""
        me = threading.get_ident()
        strict = [
            c
            for c in self.captures
            if c.mode == hipStreamCaptureMode.hipStreamCaptureModeGlobal
            or (c.thread == me and c.mode == hipStreamCaptureMode.hipStreamCaptureModeThreadLocal)
        ]
        self.invalidate(strict, hipError_t.hipErrorStreamCaptureUnsupported, f"{what} is not allowed during a capture")

    def synchronous(self, what: str) -> None:
        """Refuse a call on the null stream that waits, whatever the mode of a capture."""
        self.invalidate(
            self.captures, hipError_t.hipErrorStreamCaptureImplicit, f"{what} waits, which no capture allows"
        )

    # --- code ---------------------------------------------------------------------------------------------------------

    def load(self, code: bytes) -> Handle:
        """Load a code object onto the current device."""
        try:
            module = self.gpu.machine.load(code)
        except PyFlameError as error:
            raise Refused(hipError_t.hipErrorInvalidImage, str(error)) from error
        made = self.handle()
        self.modules[made] = self.current, module
        return made

    def module(self, given: Any) -> tuple[int, Module]:
        found = self.modules.get(address_of(given))
        if found is None:
            raise Refused(
                hipError_t.hipErrorInvalidHandle, f"{address_of(given):#x} is no module, or one that was unloaded"
            )
        return found


def _status(fault: SimulationFault) -> hipError_t:
    return _FAULTS.get(fault.kind, hipError_t.hipErrorLaunchFailure)
