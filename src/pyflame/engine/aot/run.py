"""Runs ahead-of-time plans over a driver: memory, copies and launches in order, and nothing else."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pyflame.core.device import Target
from pyflame.core.errors import NotAvailableError
from pyflame.core.locks import rlock
from pyflame.core.state import state
from pyflame.engine.aot.build import BufferArg, Lowered, ScalarArg
from pyflame.engine.devices import GPUS
from pyflame.engine.memory import gpu_of
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import Driver, Words


class Loaded:
    """A plan in a device's memory: its code, its constants, and room for everything else.

    `lock` is to be held from a run to the reading of what it left. `remember` is told of each kernel that is launched.
    """

    def __init__(
        self, plan: Lowered, driver: Driver, index: int, stream: int, remember: Callable[[str], None] | None = None
    ) -> None:
        self.plan = plan
        self.driver = driver
        self.index = index
        self.stream = stream
        self._remember = remember or (lambda name: None)
        self.lock = rlock()
        self._addresses: list[int] = []
        self._modules: dict[bytes, int] = {}
        driver.set_device(index)
        self._release = weakref.finalize(self, _release, driver, index, self._addresses, self._modules)
        for buffer in plan.buffers:
            self._addresses.append(driver.alloc(max(buffer.nbytes, 1)))
        self.upload({n: b.data for n, b in enumerate(plan.buffers) if b.data is not None})
        self._calls: list[tuple[Any, Words]] = []
        for launch in plan.launches:
            if launch.code_object not in self._modules:
                self._modules[launch.code_object] = driver.load_module(launch.code_object)
            function = driver.get_function(self._modules[launch.code_object], launch.name)
            self._calls.append((function, Words([self._word(a) for a in launch.args])))

    def _word(self, arg: BufferArg | ScalarArg) -> int:
        return self._addresses[arg.buffer] + arg.offset if isinstance(arg, BufferArg) else arg.value

    def upload(self, contents: Mapping[int, bytes]) -> None:
        """Fill buffers. Returns when they are filled."""
        held = []
        for number, content in contents.items():
            if content:
                held.append(np.frombuffer(content, np.uint8))
                self.driver.copy_h2d(self._addresses[number], held[-1].ctypes.data, len(content), self.stream)
        if held:
            self.driver.stream_synchronize(self.stream)

    def download(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """The bytes of buffers, when all that was launched is done."""
        out = {n: np.empty(self.plan.buffers[n].nbytes, np.uint8) for n in numbers}
        for n, array in out.items():
            if array.nbytes:
                self.driver.copy_d2h(array.ctypes.data, self._addresses[n], array.nbytes, self.stream)
        self.driver.stream_synchronize(self.stream)
        return {n: array.tobytes() for n, array in out.items()}

    def run(self, given: Mapping[int, bytes]) -> None:
        """Launch everything; `given`: what has changed of inputs and constants."""
        record = self.plan.error_buffer
        zeros = {} if record < 0 else {record: bytes(self.plan.buffers[record].nbytes)}
        self.driver.set_device(self.index)
        self.upload({**given, **zeros})
        for launch, (function, words) in zip(self.plan.launches, self._calls, strict=True):
            self._remember(launch.name)
            self.driver.launch(function, launch.grid, launch.block, launch.dynamic_lds, self.stream, words)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy buffers of the device: (to, from)."""
        for to, source in pairs:
            nbytes = self.plan.buffers[to].nbytes
            if nbytes:
                self.driver.copy_d2d(self._addresses[to], self._addresses[source], nbytes, self.stream)

    def close(self) -> None:
        """Give memory and code back."""
        self._release()


def _release(driver: Driver, index: int, addresses: list[int], modules: dict[bytes, int]) -> None:
    driver.set_device(index)
    with contextlib.ExitStack() as stack:  # one that fails does not keep the others
        for module in modules.values():
            stack.callback(driver.unload_module, module)
        for address in addresses:
            stack.callback(driver.free, address)


def find_device(target: Target) -> tuple[Driver, int, int, Callable[[str], None]]:
    """What `Loaded` wants of a device of a target: the current one if it is such, else the first AMD GPU."""
    device: GpuDevice | None = None
    if state.device.kind in ("rocm", "sim"):
        device = gpu_of("aot", state.device)
    if device is None or device.target.name != target.name:
        vendor = GPUS["rocm"]
        names = [vendor.driver.target(index).name for index in range(vendor.count())]
        if target.name not in names:
            why = f"there are {', '.join(names)}" if names else vendor.why_absent()
            raise NotAvailableError(
                f"[aot] expected a {target.name} device to run the plan on but none is available: {why}. Save the plan "
                "and run it where there is one"
            )
        device = vendor.open(names.index(target.name))
    device.use()
    return device.guard, device.index, device.stream.handle, device.remember
