"""What a GPU's driver must offer, as one protocol, and how its status codes become errors.

A driver is thin: it translates calls and codes, keeps no state of its own but the thread's current device, and hides
which vendor it talks to. Addresses and handles (streams, events, modules, graphs) are integers, functions are whatever
the vendor's bindings launch fastest. Calls that touch a device mean the one that `set_device` named in this thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyflame.core.cached import cached_property
from pyflame.core.device import Target
from pyflame.core.errors import ArgumentError, DeviceError, NotAvailableError, PyFlameError

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class DeviceProperties:
    """What a GPU says of itself."""

    name: str  # "AMD Instinct MI300X"
    arch: str  # what kernels are compiled for: "gfx942", "sm_90"
    arch_full: str  # with the features it runs with: "gfx942:sramecc+:xnack-"
    total_memory: int
    compute_units: int
    wave_size: int
    lds_per_block: int  # bytes that one block may use
    max_threads: int  # of a block
    clock_khz: int
    pci_bus_id: str
    integrated: bool = False  # shares its memory with the CPU
    l2_bytes: int = 0
    memory_clock_khz: int = 0
    memory_bus_bits: int = 0
    memory_transfers: int = 2  # on each line of the bus, per clock that is told; 0: unknown

    @property
    def multi_processor_count(self) -> int:
        """PyTorch's name of the compute units."""
        return self.compute_units

    @property
    def warp_size(self) -> int:
        """PyTorch's name of the wave size."""
        return self.wave_size

    @property
    def gcnArchName(self) -> str:
        """HIP's name of the architecture with its features."""
        return self.arch_full

    @property
    def peak_bandwidth(self) -> float:
        """Bytes per second that the memory's clock and width allow; 0 where they are not told."""
        return self.memory_transfers * self.memory_clock_khz * 1e3 * self.memory_bus_bits / 8


class KernelArguments:
    """The arguments of kernels: one C array of 8-byte numbers, and an array of where each lies, as drivers want it.

    One object may hold those of many launches; each begins where `start` says. An argument may be changed between
    launches: `kernel_args.array[0] = address`.
    """

    __slots__ = ("_places", "address", "array")

    def __init__(self, values: Sequence[int] | np.ndarray[Any, Any]) -> None:
        self.array = np.ascontiguousarray(values, np.int64)
        first = self.array.ctypes.data
        self._places = np.arange(first, first + 8 * len(self.array), 8, dtype=np.int64)
        self.address = int(self._places.ctypes.data)

    def __len__(self) -> int:
        return len(self.array)


class GraphTrouble(Protocol):
    """A fault of a driver's graphs (`runtime/rocm/troubles.py`)."""

    @property
    def symptom(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def launches(self) -> int: ...
    @property
    def off(self) -> bool: ...


class NativeCalls(NamedTuple):
    """Functions of a driver that C may call: their addresses.

    `launch` takes what cuLaunchKernel and hipModuleLaunchKernel take (a kernel as `int` gives it), `copy(to, from,
    bytes, stream)` sends host memory and `fetch` gets it back, `wait(stream)` waits, `use(context)` makes the device
    current. All give a status: 0 where all is well.
    """

    launch: int
    copy: int
    fetch: int
    wait: int
    use: int
    context: int


class Driver(Protocol):
    """A vendor's driver. Every method raises typed errors that say what happened and what to do."""

    kind: str  # of device: "rocm", "cuda", "sim:gfx942"

    # --- devices ------------------------------------------------------------------------------------------------------
    def count(self) -> int:
        """How many devices there are; 0 where the driver works and finds none."""

    def properties(self, index: int) -> DeviceProperties: ...
    def target(self, index: int) -> Target: ...
    def version(self) -> str: ...
    def graph_troubles(self, index: int) -> Sequence[GraphTrouble]:
        """What is known to go wrong with captured graphs here."""

    def set_device(self, index: int) -> None: ...
    def synchronize(self) -> None: ...
    def can_access_peer(self, index: int, peer: int) -> bool: ...
    def enable_peer(self, index: int, peer: int) -> None: ...

    # --- memory -------------------------------------------------------------------------------------------------------
    def mem_info(self) -> tuple[int, int]:
        """Bytes free and in total."""

    def alloc(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None:
        """Waits for the device."""

    def host_alloc(self, nbytes: int) -> int: ...
    def host_free(self, address: int) -> None: ...
    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None: ...
    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None: ...
    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None: ...
    def copy_peer(self, dst: int, dst_device: int, src: int, src_device: int, nbytes: int, stream: int) -> None: ...
    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> None: ...

    # --- streams and events -------------------------------------------------------------------------------------------
    def stream_create(self, priority: int = 0) -> int:
        """A stream that does not wait for the default one. `priority`: below 0 is more urgent; clamped."""

    def stream_destroy(self, stream: int) -> None: ...
    def stream_synchronize(self, stream: int) -> None: ...
    def stream_query(self, stream: int) -> bool:
        """Whether all that it was given is done."""

    def stream_wait_event(self, stream: int, event: int) -> None: ...
    def event_create(self, timing: bool) -> int: ...
    def event_destroy(self, event: int) -> None: ...
    def event_record(self, event: int, stream: int) -> None: ...
    def event_synchronize(self, event: int) -> None: ...
    def event_query(self, event: int) -> bool:
        """Whether what was recorded before it is done."""

    def event_elapsed(self, start: int, end: int) -> float:
        """Seconds between two recorded events that are done."""

    # --- kernels ------------------------------------------------------------------------------------------------------
    def load_module(self, code: bytes) -> int: ...
    def unload_module(self, module: int) -> None: ...
    def get_function(self, module: int, name: str) -> Any: ...
    def function_attributes(self, function: Any) -> dict[str, int]:
        """registers, lds_bytes (static), local_bytes (spills and stack, per thread), max_threads."""

    def launch(
        self,
        function: Any,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        stream: int,
        kernel_args: KernelArguments,
        start: int = 0,
        early: bool = False,
    ) -> None:
        """`start`: the first of this launch's arguments. `early`: the kernel waits itself for the one before it in the
        stream, and may begin while that runs, where the driver can let it."""

    def native_calls(self, index: int) -> NativeCalls | None:
        """How C launches on a device; None where only Python can."""

    # --- graphs -------------------------------------------------------------------------------------------------------
    def capture_begin(self, stream: int) -> None: ...
    def capture_end(self, stream: int) -> int: ...
    def graph_instantiate(self, graph: int) -> int: ...
    def graph_launch(self, executable: int, stream: int) -> None: ...
    def graph_destroy(self, graph: int, executable: int = 0) -> None: ...

    # --- profilers ----------------------------------------------------------------------------------------------------
    def range_push(self, name: str) -> None:
        """Begin a range that the vendor's profilers show. Does nothing without their library."""

    def range_pop(self) -> None: ...


@dataclass(frozen=True)
class Cause:
    """What a status code means: the error to raise, what happened, and the way out."""

    code: int
    name: str
    error: type[PyFlameError]
    happened: str
    remedy: str


def address_of(function: Any) -> int:
    """Of a function that ctypes has found."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def table(*causes: Cause) -> Mapping[int, Cause]:
    """Causes by code."""
    return {cause.code: cause for cause in causes}


def failure(
    kind: str,
    call: str,
    status: int,
    causes: Mapping[int, Cause],
    other: type[DeviceError],
    name: str = "",
    detail: str = "",
) -> PyFlameError:
    """The error for a call that ended with this status. `name` is used where the table has none.

    `detail`: what the vendor's module tells of this very failure, in place of what can be said of the status.
    """
    cause = causes.get(int(status))
    if cause is None:
        shown = f"{name or 'status'} ({int(status)})"
        way_out = detail or "see the vendor's list of status codes"
        return other(f"[{kind}] expected {call} to succeed but got {shown}; {way_out}")
    return cause.error(describe(kind, call, cause, detail))


def describe(kind: str, call: str, cause: Cause, detail: str = "") -> str:
    """A call that failed, and why, and the way out."""
    happened = f"[{kind}] expected {call} to succeed but got {cause.name} ({cause.code}): {cause.happened}"
    return f"{happened}. {detail}" if detail else f"{happened}; {cause.remedy}"


class Bindings:
    """A vendor's module of functions that give (status, values...), loaded when first called.

    >>> call = Bindings("rocm", load, causes, DeviceError, NotAvailableError)    # doctest: +SKIP
    >>> call("hipGetDeviceCount")                                                # doctest: +SKIP
    2
    """

    def __init__(
        self,
        kind: str,
        load: Callable[[], Any],
        causes: Mapping[int, Cause],
        other: type[DeviceError],
        absent: type[NotAvailableError],
    ) -> None:
        self.kind = kind
        self._load = load
        self._causes = causes
        self._other = other
        self._absent = absent
        self._functions: dict[str, Callable[..., tuple[Any, ...]]] = {}

    @cached_property
    def module(self) -> Any:
        """The vendor's module."""
        return self._load()

    def raw(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Status and values of a call, whatever the status."""
        # Launches come by here thousands of times a second: one lookup, one call.
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = getattr(self.module, name)
        try:
            result: tuple[Any, ...] = function(*args)
        except RuntimeError as error:  # the bindings' own, for a library or a function that is not there
            raise self._absent(
                f"[{self.kind}] expected to call {name} but got: {error}; install the vendor's driver and runtime, "
                "and see that their folder is on LD_LIBRARY_PATH"
            ) from error
        return result

    def __call__(self, name: str, *args: Any) -> Any:
        """What a call gives: nothing, a value or a tuple of them."""
        result = self.raw(name, *args)
        if result[0]:
            raise self.failure(name, result[0])
        if len(result) == 1:
            return None
        return result[1] if len(result) == 2 else result[1:]

    def succeeds(self, name: str, *args: Any, otherwise: int) -> bool:
        """Whether a call that gives nothing succeeds; False for the one other status that is no failure."""
        (status,) = self.raw(name, *args)
        if status and int(status) != otherwise:
            raise self.failure(name, status)
        return not status

    def failure(self, name: str, status: Any) -> PyFlameError:
        """The error for a status, with what the module tells of the last failure, where it can (a simulator can)."""
        explain = getattr(self.module, "explain", None)
        detail = explain() if explain is not None else ""
        return failure(self.kind, name, status, self._causes, self._other, getattr(status, "name", ""), detail)


def clamp_priority(priority: int, least: int, greatest: int) -> int:
    """A stream's priority inside what the device has. The greatest is the lowest number."""
    return max(greatest, min(least, priority))


def dimensions(size: int | Iterable[int]) -> Grid:
    """A grid or block of up to three dimensions, filled up with ones."""
    given = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise ArgumentError(f"[launch] expected one to three dimensions of at least 1 but got {given}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
