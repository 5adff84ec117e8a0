"""A kind of GPU: its driver, opened once, and its devices."""

from __future__ import annotations

import os
from collections.abc import Callable

from pyflame.core.device import DeviceId, Target
from pyflame.core.errors import DeviceError, NotAvailableError, OutOfMemoryError
from pyflame.core.locks import lock
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import Driver


class Vendor:
    """What is needed to open a vendor's devices. Nothing is loaded before the first question.

    `node`: the file that the kernel module makes for such GPUs. `no_such`: the error of a number that none has.

    >>> from pyflame.runtime.cuda.device import CUDA
    >>> CUDA.count()  # doctest: +SKIP
    1
    """

    def __init__(
        self,
        make_driver: Callable[[], Driver],
        find_compiler: Callable[[Target], KernelCompiler],
        memory_error: type[OutOfMemoryError],
        nothing: Callable[[], NotAvailableError],
        node: str = "",
        no_such: Callable[[str], DeviceError] = DeviceError,
    ) -> None:
        self._node = node
        self._make_driver = make_driver
        self._find_compiler = find_compiler
        self._memory_error = memory_error
        self._nothing = nothing
        self._no_such = no_such
        self._driver: Driver | None = None
        self._devices: dict[int, GpuDevice] = {}
        self._lock = lock()

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = self._make_driver()
        return self._driver

    def count(self) -> int:
        """How many devices can be opened; 0 where the vendor's driver or bindings are missing."""
        try:
            return self.driver.count()
        except NotAvailableError:
            return 0

    def sign(self) -> str:
        """The file that shows that the machine has such a GPU, usable or not; empty where there is none."""
        return self._node if self._node and os.path.exists(self._node) else ""

    def best(self) -> int:
        """The number of the device to take where nobody named one: not one that shares the CPU's memory, then the
        one with the most memory, then the first."""
        found = [self.driver.properties(i) for i in range(self.driver.count())]
        return max(range(len(found)), key=lambda i: (not found[i].integrated, found[i].total_memory, -i))

    def why_absent(self) -> str:
        """Why there is no device; empty where there is one."""
        try:
            return "" if self.driver.count() else str(self._nothing())
        except NotAvailableError as error:
            return str(error)

    def forget(self, index: int) -> None:
        """Open a device anew when it is next asked for."""
        with self._lock:
            self._devices.pop(index, None)

    def open(self, index: int = 0) -> GpuDevice:
        """A device, opened once."""
        with self._lock:
            found = self._devices.get(index)
            if found is None:
                count = self.driver.count()
                if count == 0:
                    raise self._nothing()
                if not 0 <= index < count:
                    kind = self.driver.kind
                    raise self._no_such(
                        f"[device] expected one of {', '.join(str(DeviceId.of(kind, i)) for i in range(count))} but "
                        f"got {DeviceId.of(kind, index)}"
                    )
                target = self.driver.target(index)
                found = GpuDevice(self.driver, lambda: self._find_compiler(target), index, self._memory_error)
                self._devices[index] = found
            return found
