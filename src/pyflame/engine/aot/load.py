"""Ahead-of-time plans on a device: as plans whose kernels are compiled, they are run as any other plan on a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from itertools import count

import numpy as np

from pyflame.core.device import Target
from pyflame.core.errors import NotAvailableError
from pyflame.core.locks import rlock
from pyflame.core.state import state
from pyflame.engine.aot.build import AotLaunch, BufferArg, Lowered, ScalarArg, Uniform
from pyflame.engine.devices import GPUS
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.memory import gpu_of
from pyflame.engine.value import Value
from pyflame.ir.kernel import ERRORS, NUMBER, UNIFORMS, BufferDecl, CompiledKernel, Kernel, Launch, OutputView, Plan
from pyflame.runtime.base import GpuDevice

_KEPT = ("state", "constant")  # buffers whose values stay on the device
_READ = ("input", *_KEPT)


class Loaded:
    """A plan on a device: its runner, and the values of its constants and state.

    `lock` is to be held from a run to the reading of what it left.
    """

    def __init__(
        self, lowered: Lowered, uniforms: Sequence[Uniform], checks: Sequence[tuple[str, str]], device: GpuDevice
    ) -> None:
        self.device = device
        self.lock = rlock()
        self._lowered = lowered
        codes = {launch.code_object for launch in lowered.launches}
        self._unload = weakref.finalize(self, _unload, device, codes)
        self._runner = GpuRunner(as_plan(lowered, uniforms, checks), device)
        self._kept = {n: self._sent(b.data or b"") for n, b in enumerate(lowered.buffers) if b.role in _KEPT}

    def _sent(self, content: bytes) -> Value:
        storage = self.device.allocate(max(len(content), 1))
        if content:
            self.device.upload(storage.address, content)
        return Value(storage)

    def run(self, given: Mapping[int, bytes], uniforms: Sequence[float]) -> list[Value]:
        """Start the plan; `given`: the bytes of its inputs, by buffer. Gives its outputs by position."""
        known = {**self._kept, **{n: self._sent(content) for n, content in given.items()}}
        inputs = [known[n] for n, b in enumerate(self._lowered.buffers) if b.role in _READ]
        return self._runner.run(inputs, uniforms)

    def read(self, values: Sequence[tuple[Value, int]]) -> list[bytes]:
        """The bytes of some values, whose sizes are given, when all that was launched is done and checked."""
        out = []
        for value, nbytes in values:
            array = np.empty(nbytes, np.uint8)
            if nbytes:
                self.device.download(array.ctypes.data, value.address, nbytes)
            out.append(array.tobytes())
        if not any(out):
            self.device.synchronize()
        return out

    def keep(self, new: Mapping[int, Value]) -> None:
        """Buffers of the state have new values."""
        self._kept |= new

    def close(self) -> None:
        """Give the code back; memory follows when nobody holds this any more."""
        self._unload()


def _unload(device: GpuDevice, codes: Collection[bytes]) -> None:
    for code in codes:
        device.unload(code)


def as_plan(lowered: Lowered, uniforms: Sequence[Uniform], checks: Sequence[tuple[str, str]]) -> Plan:
    """The plan that was lowered. What its kernels do inside is known to their code alone."""
    decls: list[BufferDecl] = []
    number = {lowered.uniform_buffer: UNIFORMS, lowered.error_buffer: ERRORS}
    positions = count()
    views: dict[int, OutputView] = {}
    for n, b in enumerate(lowered.buffers):
        if n in number:
            continue
        number[n] = len(decls)
        role = "input" if b.role in _READ else b.role
        decls.append(BufferDecl(b.nbytes, role, next(positions) if role == "input" else -1, 0, b.dtype, b.shape))
        if role == "output":
            views[b.position] = OutputView(number[n], 0, None)
    return Plan(
        tuple(decls),
        tuple([_launch(x) for x in lowered.launches]),
        tuple([_kernel(x, number) for x in lowered.launches]),
        tuple([views[position] for position in sorted(views)]),
        tuple([("slot", n, uniform.is_float) for n, uniform in enumerate(uniforms)]),
        arena_bytes=sum(d.nbytes for d in decls if d.role == "scratch"),
        checks=tuple(checks),
    )


def _launch(x: AotLaunch) -> Launch:
    kernel = Kernel((), (), (), x.ops)
    return Launch(x.name, kernel, (), (), x.ops, 0, 0, x.implementation, "compiled ahead of time")


def _kernel(x: AotLaunch, number: Mapping[int, int]) -> CompiledKernel:
    kernel_args = tuple([_kernel_arg(arg, number) for arg in x.args])
    return CompiledKernel(x.name, x.code_object, x.grid, x.block, x.dynamic_lds, kernel_args)


def _kernel_arg(arg: BufferArg | ScalarArg, number: Mapping[int, int]) -> tuple[int, int]:
    return (NUMBER, arg.value) if isinstance(arg, ScalarArg) else (number[arg.buffer], arg.offset)


def find_device(target: Target) -> GpuDevice:
    """A device of a target: the current one if it is such, else the first AMD GPU."""
    if state.device.kind in ("rocm", "sim"):
        device = gpu_of("aot", state.device)
        if device.target.name == target.name:
            return device
    vendor = GPUS["rocm"]
    names = [vendor.driver.target(index).name for index in range(vendor.count())]
    if target.name not in names:
        why = f"there are {', '.join(names)}" if names else vendor.why_absent()
        raise NotAvailableError(
            f"[aot] expected a {target.name} device to run the plan on but none is available: {why}. Save the plan "
            "and run it where there is one"
        )
    return vendor.open(names.index(target.name))
