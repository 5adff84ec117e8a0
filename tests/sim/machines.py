"""A machine whose kernels are Python functions over simulated memory: for tests of the host's side alone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from pyflame.core.errors import FileFormatError
from pyflame.runtime.sim.hip.arguments import Handle
from pyflame.runtime.sim.hip.module import Hip
from pyflame.runtime.sim.hip.state import Grid
from pyflame.runtime.sim.memory import Memory

Body = Callable[[Memory, list[int]], None]


@dataclass(frozen=True)
class FakeParam:
    offset: int
    nbytes: int
    kind: str = "by_value"


@dataclass
class FakeKernel:
    name: str
    body: Body
    params: tuple[FakeParam, ...]
    static_lds: int = 0
    max_threads: int = 1024
    metadata: Any = field(default_factory=lambda: SimpleNamespace(vgprs=24, scratch_bytes=16))


def _add(memory: Memory, words: list[int]) -> None:
    """out[:n] = a[:n] + b[:n], int32."""
    out, a, b, n = words
    left, right = (memory.view(p, 4 * n).view(np.int32) for p in (a, b))
    memory.view(out, 4 * n, write=True).view(np.int32)[:] = left + right


def _increment(memory: Memory, words: list[int]) -> None:
    """x[:n] += 1, int32."""
    memory.view(words[0], 4 * words[1], write=True).view(np.int32)[:] += 1


def _fault(memory: Memory, words: list[int]) -> None:
    memory.view(words[0], words[1])


BODIES: dict[str, tuple[Body, int]] = {"add": (_add, 4), "increment": (_increment, 2), "fault": (_fault, 2)}


class FakeMachine:
    """Loads "code objects" that name kernels of BODIES."""

    def __init__(self, target: str, memory: Memory) -> None:
        self.memory = memory
        self.launched: list[tuple[str, Grid, Grid, int, bytes]] = []

    def load(self, code: bytes) -> Any:
        names = code[64:].decode().split(",")
        if names == ["damaged"]:
            raise FileFormatError("[sim] expected a code object but got garbage")
        kernels = {
            n: FakeKernel(n, BODIES[n][0], tuple(FakeParam(8 * i, 8) for i in range(BODIES[n][1]))) for n in names
        }
        return SimpleNamespace(kernels=kernels, globals={"counter": (self.memory.allocate(4), 4)})

    def unload(self, module: Any) -> None:
        self.memory.free(module.globals["counter"][0])

    def launch(
        self, kernel: FakeKernel, grid: Grid, block: Grid, dynamic_lds: int, kernarg: bytes, acquire: bool = True
    ) -> None:
        self.launched.append((kernel.name, grid, block, dynamic_lds, kernarg))
        kernel.body(self.memory, list(struct.unpack(f"<{len(kernarg) // 8}q", kernarg)))


def image(*names: str) -> bytes:
    """A code object of these kernels: an ELF header that tells the size, and the names."""
    payload = ",".join(names).encode()
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[0x28:0x30] = (64 + len(payload)).to_bytes(8, "little")
    return bytes(header) + payload


def fake_hip(count: int = 1, nbytes: int = 1 << 24, seed: int = 0, target: str = "gfx942") -> Hip:
    return Hip(target, count, nbytes, seed, FakeMachine)


class Host:
    """Calls of a HIP that must succeed: `host.hipMalloc(8)` gives the value alone."""

    def __init__(self, hip: Hip) -> None:
        self.hip = hip

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            status, *values = getattr(self.hip, name)(*args)
            assert status == 0, f"{name}: {status!r}: {self.hip.explain()}"
            return values[0] if len(values) == 1 else tuple(values) if values else None

        return call

    def array(self, values: Any) -> Handle:
        """Device memory with these int32 values."""
        data = np.asarray(values, np.int32)
        made: Handle = self.hipMalloc(data.nbytes)
        self.hipMemcpyHtoD(made, data, data.nbytes)
        return made

    def pinned(self, count: int) -> tuple[Handle, np.ndarray[Any, Any]]:
        """Pinned memory of that many int32 values, all 0, and a view of it."""
        address = self.hipHostMalloc(4 * count, 0)
        view = np.ctypeslib.as_array((ctypes.c_int32 * count).from_address(address))
        view[:] = 0
        return address, view

    def read(self, address: int, count: int) -> list[int]:
        """Int32 values of device memory as they are now: nothing is waited for."""
        owner = self.hip.owner(address)
        assert owner is not None
        return [int(v) for v in owner.memory.view(address, 4 * count).view(np.int32)]

    def kernel(self, name: str) -> Handle:
        self._code = ctypes.create_string_buffer(image(*BODIES))
        function: Handle = self.hipModuleGetFunction(self.hipModuleLoadData(ctypes.addressof(self._code)), name)
        return function

    def launch(self, function: Handle, stream: Any, *words: int) -> None:
        self.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, None, [ctypes.c_int64(w) for w in words])
