"""The ROCm backend's memory: a manager of a GPU's memory by address, and a pool warmed up ahead."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np

from pyflame.core.checks import natural
from pyflame.core.device import DeviceId
from pyflame.core.errors import AMDConfigurationError, ArgumentError, suggest
from pyflame.core.locks import lock, rlock
from pyflame.engine.devices import current_of
from pyflame.engine.memory import MemoryStats, PinnedBlock, PinnedMemoryPool, Stream, gpu_of

MIB = 1 << 20

# Bytes per item of a batch (activations) and of all parameters with their gradients and Adam's state, in float32:
# about those of a small CNN, a ResNet-50 or GPT-2, and a model of 350 million parameters.
_MODELS = {"small": (1 * MIB, 16 * MIB), "medium": (8 * MIB, 400 * MIB), "large": (32 * MIB, 5600 * MIB)}


def warmup(device: DeviceId, batch_size: int, model_size: str) -> int:
    """Have a GPU's pool hold what a model of that size needs, within half of what is free; gives the bytes it holds."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError(f"[warmup_memory_pool] expected a batch_size of at least 1 but got {batch_size!r}")
    if model_size not in _MODELS:
        raise ArgumentError(
            f"[warmup_memory_pool] expected a model_size of {', '.join(_MODELS)} but got {model_size!r}"
            f"{suggest(str(model_size), _MODELS)}"
        )
    gpu = gpu_of("warmup_memory_pool", device)
    activations, parameters = _MODELS[model_size]
    wanted = min(activations * batch_size + parameters, gpu.memory_info()[0] // 2)
    gpu.pool.merge()
    # Small and middling blocks have segments of their own; large ones are cut from whatever is large enough.
    blocks = [gpu.allocate(size) for size in (*[MIB] * 8, *[8 * MIB] * 4) if size * 16 <= wanted]
    blocks.append(gpu.allocate(wanted))
    del blocks
    return int(gpu.pool.stats.reserved)


class ROCmMemoryManager:
    """Memory of one GPU by address, for code that manages its own. Tensors need none of this.

    Blocks come from the device's pool, the one that tensors use, and stay until they are deallocated or the manager is
    closed. Streams are those of `pf.rocm.Stream`; without one, work is in order with that of tensors. Host memory is
    an array, bytes, or the address of pinned memory. Thread safe.

    >>> manager = get_memory_manager()                          # doctest: +SKIP
    >>> there = manager.allocate(4096)                          # doctest: +SKIP
    >>> manager.copy_host_to_device(there, np.arange(1024, dtype=np.float32), 4096)  # doctest: +SKIP
    >>> manager.deallocate(there)                               # doctest: +SKIP
    """

    @dataclass(frozen=True)
    class Config:
        """enable_pooling: False gives memory back to the driver at each deallocation. pool_size_mb: what the pool
        holds from the start. max_pool_size_mb: unused memory beyond this goes back at the next deallocation.
        use_pinned_host: whether `allocate_pinned` is allowed."""

        enable_pooling: bool = True
        pool_size_mb: int = 256
        max_pool_size_mb: int = 4096
        use_pinned_host: bool = True

    def __init__(self, config: Config | None = None, device: DeviceId | None = None) -> None:
        self.config = config or self.Config()
        if not 0 <= self.config.pool_size_mb <= self.config.max_pool_size_mb:
            raise AMDConfigurationError(
                "[ROCmMemoryManager] expected 0 <= pool_size_mb <= max_pool_size_mb but got "
                f"{self.config.pool_size_mb} and {self.config.max_pool_size_mb}"
            )
        self.device = gpu_of("ROCmMemoryManager", device or current_of("rocm"))
        self._lock = lock()
        self._blocks: dict[int, Any] = {}
        self._starts: list[int] = []
        self._pinned: dict[int, PinnedBlock] = {}
        with _lock:
            _living.add(self)
        if self.config.enable_pooling and self.config.pool_size_mb:
            self.device.allocate(self.config.pool_size_mb * MIB)  # given up at once: the pool keeps it

    # --- device memory ------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """The address of new memory. Its content is undefined."""
        return self.allocate_async(nbytes, None)

    def allocate_async(self, nbytes: int, stream: Any) -> int:
        """The same for work on a stream."""
        block = self.device.allocate(natural("allocate", "a size", nbytes), _stream(stream))
        with self._lock:
            self._blocks[block.address] = block
            insort(self._starts, block.address)
        return int(block.address)

    def deallocate(self, address: int) -> None:
        """Give memory up, behind the work that tensors were given so far."""
        self.deallocate_async(address, None)

    def deallocate_async(self, address: int, stream: Any) -> None:
        """Give memory up, behind what a stream was given so far."""
        address = natural("deallocate", "an address", address)
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is not None:
                self._starts.remove(address)
        if block is None:
            raise ArgumentError(
                f"[deallocate] expected an address that allocate gave but got {address:#x}; it may be freed already"
            )
        block.used_on((_stream(stream) or self.device.stream).handle)
        del block
        limit = self.config.max_pool_size_mb * MIB
        if not self.config.enable_pooling or self.device.pool.stats.cached > limit:
            self.device.use()
            self.device.pool.empty_cache()

    def _inside(self, op: str, address: int, nbytes: int) -> int:
        """Refuse a range that leaves a block of this manager. Other addresses are the caller's business."""
        address, nbytes = natural(op, "an address", address), natural(op, "a size", nbytes)
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[at]] if at >= 0 else None
        if block is not None and address < block.address + block.nbytes < address + nbytes:
            raise ArgumentError(
                f"[{op}] expected at most {block.address + block.nbytes - address:,} bytes from {address:#x} on, the "
                f"end of its block, but got {nbytes:,}"
            )
        return nbytes

    # --- copies and fills ---------------------------------------------------------------------------------------------

    def copy_host_to_device(self, dst: int, src: Any, nbytes: int) -> None:
        """Send host memory, and wait until it is there."""
        self.copy_host_to_device_async(dst, src, nbytes, None)
        self.device.stream.synchronize()

    def copy_host_to_device_async(self, dst: int, src: Any, nbytes: int, stream: Any) -> None:
        """Send host memory. Pinned memory must not change before the stream gets there; other memory may, at once."""
        self._inside("copy_host_to_device", dst, nbytes)
        host, held = _host("copy_host_to_device", src, nbytes, writable=False)
        self.device.send(dst, host, nbytes, _stream(stream))
        del held

    def copy_device_to_host(self, dst: Any, src: int, nbytes: int) -> None:
        """Fetch memory, and wait until it is there."""
        self._inside("copy_device_to_host", src, nbytes)
        host, held = _host("copy_device_to_host", dst, nbytes, writable=True)
        self.device.download(host, src, nbytes)
        del held

    def copy_device_to_host_async(self, dst: Any, src: int, nbytes: int, stream: Any) -> None:
        """Fetch into pinned memory when the stream gets there. Other memory cannot be written without waiting: for
        that, this waits."""
        self._inside("copy_device_to_host", src, nbytes)
        host, held = _host("copy_device_to_host", dst, nbytes, writable=True)
        self.device.fetch(host, src, nbytes, _stream(stream))
        del held

    def copy_device_to_device(self, dst: int, src: int, nbytes: int) -> None:
        """Copy inside the device, and wait for it."""
        self.copy_device_to_device_async(dst, src, nbytes, None)
        self.device.stream.synchronize()

    def copy_device_to_device_async(self, dst: int, src: int, nbytes: int, stream: Any) -> None:
        self._inside("copy_device_to_device", src, self._inside("copy_device_to_device", dst, nbytes))
        self.device.copy(dst, src, nbytes, _stream(stream))

    def memset(self, address: int, value: int, nbytes: int) -> None:
        """Set every byte, and wait for it."""
        self.memset_async(address, value, nbytes, None)
        self.device.stream.synchronize()

    def memset_async(self, address: int, value: int, nbytes: int, stream: Any) -> None:
        if natural("memset", "a byte", value) > 255:
            raise ArgumentError(f"[memset] expected a byte, 0 to 255, but got {value}")
        self.device.fill(address, value, self._inside("memset", address, nbytes), _stream(stream))

    # --- pinned host memory -------------------------------------------------------------------------------------------

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of pinned host memory."""
        if not self.config.use_pinned_host:
            raise AMDConfigurationError(
                "[allocate_pinned] expected a manager with use_pinned_host=True but got False; make another"
            )
        block = self.device.pinned.acquire(nbytes)
        with self._lock:
            self._pinned[block.address] = block
        return int(block.address)

    def deallocate_pinned(self, address: int) -> None:
        """Give pinned memory up. Nobody gets it before the copies that use it are done."""
        address = natural("deallocate_pinned", "an address", address)
        with self._lock:
            block = self._pinned.pop(address, None)
        if block is None:
            raise ArgumentError(f"[deallocate_pinned] expected what allocate_pinned gave but got {address:#x}")
        self.device.pinned.release(block)

    # --- telling ------------------------------------------------------------------------------------------------------

    def get_stats(self) -> MemoryStats:
        """The state and the counters of the device's pool."""
        stats: MemoryStats = self.device.pool.stats
        return stats

    def reset_stats(self) -> None:
        """Measure peaks and count from here on."""
        self.device.pool.reset_stats()

    def clear_pool(self) -> None:
        """Give unused memory back to the driver."""
        self.device.empty_cache()

    def get_memory_info(self) -> tuple[int, int]:
        """Bytes free and in total, as the driver sees them."""
        free, total = self.device.memory_info()
        return free, total

    def close(self) -> None:
        """Give up everything that was allocated here and is still held."""
        with self._lock:
            self._blocks.clear()
            self._starts.clear()
            self._pinned.clear()

    def __enter__(self) -> ROCmMemoryManager:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_managers: dict[DeviceId, ROCmMemoryManager] = {}
_living: WeakSet[ROCmMemoryManager] = WeakSet()  # all of them, also those that users make
_lock = rlock()


def manager_of(device: DeviceId) -> ROCmMemoryManager:
    """The manager of a GPU, made once. It reserves nothing ahead: it may be asked for because memory ran out."""
    opened = gpu_of("get_memory_manager", device)
    with _lock:
        found = _managers.get(device)
        if found is None or found.device is not opened:
            config = ROCmMemoryManager.Config(pool_size_mb=0)
            found = _managers[device] = ROCmMemoryManager(config, device)
        return found


def check_range(op: str, device: Any, address: int, nbytes: int) -> int:
    """Refuse a range that leaves a block of any manager of an opened device; gives its address."""
    with _lock:
        managers = [manager for manager in _living if manager.device is device]
    for manager in managers:
        manager._inside(op, address, nbytes)
    return natural(op, "an address", address)


def _stream(stream: Any) -> Stream | None:
    """A stream of the runtime, from a user's or from one itself."""
    found = getattr(stream, "stream", stream)
    if found is None or isinstance(found, Stream):
        return found
    raise ArgumentError(f"[stream] expected a Stream of pf.rocm or pf.cuda, or None, but got {stream!r}")


def _host(op: str, memory: Any, nbytes: int, writable: bool) -> tuple[int, Any]:
    """Address of host memory, and what keeps it alive: of an address itself, an array, or anything with a buffer."""
    if isinstance(memory, (int, np.integer)) and not isinstance(memory, bool):
        return int(memory), None
    block = getattr(memory, "address", None)
    if isinstance(block, int):
        array: Any = memory
        address, size, fits = block, memory.nbytes, True
    else:
        array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
        address, size = array.ctypes.data, array.nbytes
        fits = array.flags.c_contiguous and (array.flags.writeable or not writable)
    if not fits or size < nbytes:
        kind = "writable, contiguous" if writable else "contiguous"
        raise ArgumentError(f"[{op}] expected {kind} memory of {nbytes:,} bytes but got {size:,}")
    return address, array


__all__ = ["MemoryStats", "PinnedMemoryPool", "ROCmMemoryManager", "check_range", "manager_of", "warmup"]
