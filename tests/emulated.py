"""A GPU that is this machine's CPU: kernels are compiled for the host and run thread by thread (null/emulate_gpu.h).

It offers what a vendor's driver offers, so the whole path above it is the real one: planning, generated text, compile
service, memory pool, launches, copies, events and graphs. Memory that was never written holds a pattern.
"""

from __future__ import annotations

import ctypes
import math
import platform
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.device import Target
from pyflame.core.errors import CompileError, OutOfMemoryError
from pyflame.core.targets import TARGETS
from pyflame.runtime.cache import digest
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import DeviceProperties, Grid, KernelArguments, NativeCalls, address_of
from pyflame.runtime.sources import explain_failure, include_dir

FLAGS = (
    "-O0", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-fsigned-char", "-w",
    "-fsanitize=alignment", "-Wl,--as-needed",  # emulate_gpu.h is what the sanitizer calls: its library is not needed
)  # fmt: skip
PARTED = "threads parted at a barrier or shuffle, or an access lay misaligned (stderr tells)"  # a status that is not 0
_RUNNING = threading.Lock()  # a library runs one launch at a time, and two devices may share one
FENCE = 256
FILL = 0xFF  # NaN as any float: nothing may take fresh memory for zeros


_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_ssize_t,
    *[ctypes.c_uint] * 7,
    ctypes.c_ssize_t,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_void_p,
)  # kernel, grid, block, dynamic LDS, stream, where its arguments lie
_COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ssize_t, ctypes.c_ssize_t, ctypes.c_size_t, ctypes.c_ssize_t)
_USE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ssize_t)


class EmulatedFunction(tuple[Any, Any]):
    """What runs a kernel, and what tells it of the grid."""

    def __int__(self) -> int:
        return id(self)


class EmulatedDriver:
    """The driver of one emulated GPU per entry of `targets`, with `memory` bytes each."""

    kind = "rocm"

    def __init__(self, targets: tuple[str, ...] = ("gfx1100",), memory: int = 1 << 30) -> None:
        self.targets = [TARGETS[t] for t in targets]
        self.memory = memory
        self.index = 0
        self.live: dict[int, tuple[np.ndarray[Any, Any], int, int]] = {}  # address -> bytes, start, end
        self.events: dict[int, float] = {}
        self.modules: list[Any] = []
        self.graphs: list[list[tuple[Any, ...]]] = []
        self.capturing: list[tuple[Any, ...]] | None = None
        self.launches = self.native = 0
        self.functions: dict[int, EmulatedFunction] = {}
        self._callbacks: list[Any] = []
        self.early: list[bool] = []  # of each launch: whether it may begin before those before it have ended
        self.reverse = False  # threads and blocks run in the opposite order

    # --- devices

    def count(self) -> int:
        return len(self.targets)

    def properties(self, index: int) -> DeviceProperties:
        t = self.targets[index]
        return DeviceProperties(
            f"emulated {t.name}", t.name, t.name, self.memory, t.workers, t.wave_size, t.lds_bytes, 1024, 1000, "0:0.0"
        )

    def target(self, index: int) -> Target:
        return self.targets[index]

    def version(self) -> str:
        return "emulated"

    def graph_troubles(self, index: int) -> tuple[Any, ...]:
        return ()

    def set_device(self, index: int) -> None:
        self.index = index

    def synchronize(self) -> None:
        """Everything is done when it is asked for."""

    def can_access_peer(self, index: int, peer: int) -> bool:
        return True

    def enable_peer(self, index: int, peer: int) -> None:
        """All memory is the host's."""

    # --- memory

    def mem_info(self) -> tuple[int, int]:
        return self.memory - sum(end - start for _, start, end in self.live.values()), self.memory

    def alloc(self, nbytes: int) -> int:
        if nbytes > self.mem_info()[0]:
            raise OutOfMemoryError("[emulated] out of memory")
        raw = np.full(nbytes + 3 * FENCE, FILL, np.uint8)
        start = FENCE + -(raw.ctypes.data + FENCE) % FENCE
        self.live[raw.ctypes.data + start] = (raw, start, start + nbytes)
        return raw.ctypes.data + start

    def free(self, address: int) -> None:
        raw, start, end = self.live.pop(address)
        assert (raw[:start] == FILL).all() and (raw[end:] == FILL).all(), "written outside of a buffer"

    host_alloc, host_free = alloc, free

    def _copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._do(ctypes.memmove, dst, src, nbytes)

    copy_h2d = copy_d2h = copy_d2d = _copy

    def copy_peer(self, dst: int, dst_device: int, src: int, src_device: int, nbytes: int, stream: int) -> None:
        self._do(ctypes.memmove, dst, src, nbytes)

    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._do(ctypes.memset, address, byte, nbytes)

    def _do(self, fn: Any, *args: Any) -> None:
        if self.capturing is not None:
            self.capturing.append((fn, *args))
        else:
            fn(*args)

    # --- streams and events

    def stream_create(self, priority: int = 0) -> int:
        return 1

    def stream_destroy(self, stream: int) -> None: ...
    def stream_synchronize(self, stream: int) -> None: ...
    def stream_query(self, stream: int) -> bool:
        return True

    def stream_wait_event(self, stream: int, event: int) -> None: ...

    def event_create(self, timing: bool) -> int:
        self.events[len(self.events) + 1] = 0.0
        return len(self.events)

    def event_destroy(self, event: int) -> None: ...

    def event_record(self, event: int, stream: int) -> None:
        self.events[event] = time.perf_counter()

    def event_synchronize(self, event: int) -> None: ...

    def event_query(self, event: int) -> bool:
        return True

    def event_elapsed(self, start: int, end: int) -> float:
        return self.events[end] - self.events[start]

    # --- kernels

    def load_module(self, code: bytes) -> int:
        with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
            file.write(code)
        self.modules.append(ctypes.CDLL(file.name))
        Path(file.name).unlink()
        return len(self.modules) - 1

    def unload_module(self, module: int) -> None: ...

    def get_function(self, module: int, name: str) -> Any:
        library = self.modules[module]
        function = EmulatedFunction((getattr(library, f"run_{name}"), library.emu_shape))
        self.functions[int(function)] = function
        return function

    def function_attributes(self, function: Any) -> dict[str, int]:
        return {"registers": 0, "lds_bytes": 0, "local_bytes": 0, "max_threads": 1024}

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
        self.early.append(early)
        copy = kernel_args.array[start:].copy()  # parameters are taken at the launch
        self._do(lambda: self._run(function, grid, block, copy.ctypes.data))

    def _run(self, function: Any, grid: Sequence[int], block: Sequence[int], arguments: int) -> None:
        run_kernel, set_shape = function
        with _RUNNING:
            self.launches += 1
            set_shape((ctypes.c_int * 3)(*grid), (ctypes.c_int * 3)(*block))
            status = run_kernel(
                ctypes.c_void_p(arguments), ctypes.c_longlong(math.prod(grid)), math.prod(block), int(self.reverse)
            )
        assert status == 0, f"{PARTED}: {status}"

    def native_calls(self, index: int) -> NativeCalls:
        """As C calls a vendor's driver. An exception goes to the next call that Python makes."""

        def launch(function: int, *shape: Any) -> int:
            self.native += 1
            self._run(self.functions[function], shape[:3], shape[3:6], shape[8][0])
            return 0

        def use(context: int) -> int:
            self.index = context
            return 0

        def copy(to: int, source: int, nbytes: int, stream: int) -> int:
            ctypes.memmove(to, source, nbytes)
            return 0

        def wait(stream: int) -> int:
            return 0

        callbacks = _LAUNCH(launch), _COPY(copy), _COPY(copy), _USE(wait), _USE(use)
        self._callbacks.append(callbacks)
        return NativeCalls(*map(address_of, callbacks), index)

    # --- graphs

    def capture_begin(self, stream: int) -> None:
        self.capturing = []

    def capture_end(self, stream: int) -> int:
        assert self.capturing is not None
        self.graphs.append(self.capturing)
        self.capturing = None
        return len(self.graphs)

    def graph_instantiate(self, graph: int) -> int:
        return graph

    def graph_launch(self, executable: int, stream: int) -> None:
        for fn, *args in self.graphs[executable - 1]:
            fn(*args)

    def graph_destroy(self, graph: int, executable: int = 0) -> None: ...
    def range_push(self, name: str) -> None: ...
    def range_pop(self) -> None: ...


def host_compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def compile_for_host(text: str, wave: int, folder: Path, options: Sequence[str] = ()) -> Path:
    """Kernels as a host library with an entry point for each EMU_EXPORT; a refused text raises CompileError."""
    compiler = host_compiler()
    assert compiler is not None, "the emulation needs a C++ compiler"
    file, library = folder / "kernels.cpp", folder / "kernels.so"
    file.write_text(f'#include "emulate_gpu.h"\n{text}\n')
    folders = [f"-I{include_dir()}", f"-I{include_dir().parent}", f"-I{Path(__file__).parent / 'null'}"]
    fma = ["-mfma"] if platform.machine() == "x86_64" else []
    command = [compiler, *FLAGS, *fma, f"-DPF_WAVE={wave}", *folders, *options, str(file), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"[compile] the host compiler refused a kernel:\n{explain_failure(done.stderr, text)}")
    return library


def kept_for_host(text: str, wave: int, folder: Path) -> Path:
    """As compile_for_host, from the disk cache if it was compiled before."""
    compiler = EmulatedCompiler()
    name = digest(compiler.key(text, TARGETS["gfx942"]), str(wave)) + compiler.extension
    found = compiler.cache.find(name)
    return found or compiler.cache.write(name, compile_for_host(text, wave, folder).read_bytes())


class EmulatedCompiler(KernelCompiler):
    """Kernel text to a host library."""

    extension = ".emulated.so"
    uncontracted = "-ffp-contract=off"

    def __init__(self) -> None:
        header = (Path(__file__).parent / "null" / "emulate_gpu.h").read_text()
        super().__init__("emulated", " ".join(FLAGS) + header)

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        ours = r"PF_GLOBAL(?:_ALONE)?\(\s*\w+\s*\)(?: PF_CLUSTER\(\d+\))?"
        cuda = r"__global__ void(?: __launch_bounds__\(\d+\))?"
        names = re.findall(rf"(?:{ours}|{cuda})\s*(\w+)\s*\(", source)
        # C++ has nothing like an array of LDS whose size the launch brings
        source = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", r"\1 *\2 = (\1 *)emu_dynamic;", source)
        exports = "\n".join(f"EMU_EXPORT({name})" for name in names)
        with tempfile.TemporaryDirectory() as folder:
            text = f"{source}\n{exports}"
            return compile_for_host(text, target.wave_size, Path(folder), options).read_bytes()


def emulated_device(index: int = 0, target: str = "gfx1100", memory: int = 1 << 30) -> GpuDevice:
    """A device of the emulation; its number says which `rocm:N` it stands for."""
    driver = EmulatedDriver((target,) * (index + 1), memory)
    return GpuDevice(driver, EmulatedCompiler, index)
