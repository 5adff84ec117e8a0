"""One kind of GPU: its devices, streams and memory, by the names of `torch.cuda`. torch_cuda.py makes `pf.cuda` of it.

A device is a number, a name or None: the current device where that is of the kind, else its first.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pyflame.core.cached import cached_property
from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import DeviceError, DeviceNameError
from pyflame.core.state import state
from pyflame.engine import services
from pyflame.engine.devices import current_of
from pyflame.engine.memory import gpu_of
from pyflame.tensor import devices, memory, streams

if TYPE_CHECKING:
    from pyflame.engine.memory import MemoryStats, PinnedMemoryPool


class _OfAnyMaker(type):
    """Streams are streams whoever made them: `isinstance(pf.cuda.current_stream(), pf.cuda.Stream)`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__base__ or cls)


class GpuKind:
    """All GPUs of a kind.

    >>> pf.rocm.is_available() == (pf.rocm.device_count() > 0)
    True
    """

    def __init__(self, kind: str, title: str, error: type[DeviceError] = DeviceError) -> None:
        self._kind = kind
        self._title = title
        self._error = error

    def __repr__(self) -> str:
        return f"pf.{self._kind}"

    @property
    def kind(self) -> str:
        """'rocm' or 'cuda'."""
        return self._kind

    # --- which devices there are --------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether there is a device that can be used."""
        return self.device_count() > 0

    def device_count(self) -> int:
        """How many devices can be used; 0 where the driver, its bindings or a GPU are missing."""
        return services.count(self.kind)

    def why_absent(self) -> str:
        """Why there is no device; empty where there is one."""
        return services.why_absent(self.kind)

    def current_device(self) -> int:
        """Number of the current device; -1 where the current one is of another kind."""
        return state.device.index if state.device.kind == self.kind else -1

    def id_of(self, op: str, device: object = None) -> DeviceId:
        """The device that is meant; an error that says what is missing where it cannot be used."""
        count = self.device_count()
        if not count:
            raise services.absent(
                self.kind, f"[{op}] expected {self._title} but none is available: {self.why_absent()}"
            )
        if device is None:
            return current_of(self.kind)
        named = device if isinstance(device, int) and not isinstance(device, bool) else None
        if named is None:
            found = parse_device(device)
            if found.kind != self.kind:
                raise DeviceNameError(f"[{op}] expected a {self.kind} device but got {device!r}")
            named = found.index
        if not 0 <= named < count:
            raise self._error(f"[{op}] expected the number of {self._title}, 0 to {count - 1}, but got {device!r}")
        return DeviceId(self.kind, named)

    def set_device(self, device: object) -> None:
        """Make one of them the current device."""
        devices.set_device(self.id_of("set_device", device))

    def device(self, device: object = None) -> devices.device:
        """One of them as the current device within a `with` block."""
        return devices.device(self.id_of("device", device))

    def synchronize(self, device: object = None) -> None:
        """Wait until one has finished what it was given."""
        devices.synchronize(self.id_of("synchronize", device))

    def get_device_name(self, device: object = None) -> str:
        """As 'AMD Instinct MI300X'."""
        return str(self.get_device_properties(device).name)

    def get_device_properties(self, device: object = None) -> Any:
        """name, arch ("gfx942"), arch_full ("gfx942:sramecc+:xnack-"), total_memory, compute_units, wave_size and so
        on, as attributes."""
        return self._gpu("get_device_properties", device).properties

    def get_arch_name(self, device: object = None, features: bool = False) -> str:
        """What kernels are compiled for: "gfx942"; with its features "gfx942:sramecc+:xnack-"."""
        properties = self.get_device_properties(device)
        return str(properties.arch_full if features else properties.arch)

    def device_info(self, device: object = None) -> dict[str, Any]:
        """The same and more, as a dict of plain values."""
        return services.device_info(self.id_of("device_info", device))

    def can_device_access_peer(self, device: object, peer: object) -> bool:
        """Whether one can copy straight from another's memory. `.to("cuda:1")` then does; else the host helps."""
        here, there = (self._gpu("can_device_access_peer", d) for d in (device, peer))
        return here is not there and bool(here.reaches(there))

    def _gpu(self, op: str, device: object) -> Any:
        return gpu_of(op, self.id_of(op, device))

    # --- streams ------------------------------------------------------------------------------------------------------

    @cached_property
    def Stream(self) -> type[streams.Stream]:
        """The class of streams: called, it makes one of a GPU of this kind."""
        gpus = self

        class Stream(streams.Stream, metaclass=_OfAnyMaker):
            def __init__(self, device: object = None, priority: int = 0) -> None:
                super().__init__(gpus.id_of("Stream", device), priority)

        return Stream

    @cached_property
    def Event(self) -> type[streams.Event]:
        """The class of events: called, it makes one of a GPU of this kind."""
        gpus = self

        class Event(streams.Event, metaclass=_OfAnyMaker):
            def __init__(self, enable_timing: bool = False, device: object = None) -> None:
                super().__init__(gpus.id_of("Event", device), enable_timing)

        return Event

    def current_stream(self, device: object = None) -> streams.Stream:
        """The stream that this thread's work goes to."""
        return streams.current_stream(self.id_of("current_stream", device))

    def default_stream(self, device: object = None) -> streams.Stream:
        """The stream that work goes to where none was chosen."""
        return streams.default_stream(self.id_of("default_stream", device))

    def stream(self, stream: streams.Stream | None) -> Any:
        """For `with pf.cuda.stream(s):`, which is `with s:`; None changes nothing."""
        return nullcontext() if stream is None else stream

    StreamContext = stream

    # --- memory -------------------------------------------------------------------------------------------------------

    def _nothing(self, device: object) -> bool:
        """Whether a question about the memory of no device in particular finds no GPU: it is 0 then, as in PyTorch."""
        return device is None and not self.device_count()

    def pinned_pool(self, device: object = None) -> PinnedMemoryPool:
        """The pool of page-locked host memory: acquire, release, warmup, clear, stats."""
        pool: PinnedMemoryPool = self._gpu("pinned_pool", device).pinned
        return pool

    def memory_stats(self, device: object = None) -> MemoryStats:
        """The state and the counters of a device's memory pool."""
        return memory.memory_stats(self.id_of("memory_stats", device))

    def memory_allocated(self, device: object = None) -> int:
        """Bytes that tensors and running plans hold."""
        return 0 if self._nothing(device) else memory.memory_allocated(self.id_of("memory_allocated", device))

    def max_memory_allocated(self, device: object = None) -> int:
        """The most bytes ever in use, or since `reset_peak_memory_stats`."""
        return 0 if self._nothing(device) else memory.max_memory_allocated(self.id_of("max_memory_allocated", device))

    def memory_reserved(self, device: object = None) -> int:
        """Bytes that the pool holds from the driver."""
        return 0 if self._nothing(device) else memory.memory_reserved(self.id_of("memory_reserved", device))

    def max_memory_reserved(self, device: object = None) -> int:
        """The most bytes ever held, or since `reset_peak_memory_stats`."""
        return 0 if self._nothing(device) else memory.max_memory_reserved(self.id_of("max_memory_reserved", device))

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """Measure peaks from here on."""
        memory.reset_peak_memory_stats(self.id_of("reset_peak_memory_stats", device))

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        """Bytes free and in total, as the driver sees them."""
        return memory.memory_info(self.id_of("mem_get_info", device))

    def memory_summary(self, device: object = None) -> str:
        """A table of what a device's memory is used for."""
        return memory.memory_summary(self.id_of("memory_summary", device))

    def set_per_process_memory_fraction(self, fraction: float, device: object = None) -> None:
        """Let the pool hold at most this share of a device's memory."""
        memory.set_memory_fraction(fraction, self.id_of("set_per_process_memory_fraction", device))

    def empty_cache(self) -> None:
        """Give unused memory of every device in use back to the driver. Nothing to do where there is none."""
        for found in services.opened_ids():
            if found.kind == self.kind:
                memory.empty_cache(found)
