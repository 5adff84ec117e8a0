"""Kernels that users write: source to code for a GPU or a target, and launches of it.

They go through the same compilers and the same disk cache as the kernels of plans. The source may say what HIP and CUDA
kernels say (`pf_hip.h` brings the names where a compiler does not), so one text serves both vendors.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.device import DeviceId, Target
from pyflame.core.errors import ArgumentError, ArgumentTypeError, CompileError, DeviceError, suggest
from pyflame.core.locks import lock
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import KernelResources, read_resources
from pyflame.engine.devices import get_device
from pyflame.engine.user.prototype import Parameter, find_prototype, with_plain_name
from pyflame.runtime.cache import DiskCache, digest, stats
from pyflame.runtime.cuda.compiler import Nvrtc
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import KernelArguments, dimensions
from pyflame.runtime.rocm.compiler import find_compiler
from pyflame.runtime.rocm.metadata import KernelMetadata, is_code_object, read_metadata

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")
_BLOCK = 256  # threads for which the occupancy of a kernel is told, if it takes as many


@dataclass(frozen=True, eq=False)
class UserKernel:
    """A kernel of a user's source, built for a target."""

    name: str
    target: Target
    parameters: tuple[Parameter, ...]
    code: bytes
    cached: bool  # it was there already, in memory or on disk
    seconds: float  # that building it took
    metadata: KernelMetadata | None  # of AMD's code objects

    @property
    def resources(self) -> KernelResources | None:
        """What an AMD GPU needs for it: registers, LDS, spills, occupancy. None for other code."""
        if self.metadata is None:
            return None
        threads = min(self.metadata.max_threads, _BLOCK)
        return read_resources(self.code, {self.name: threads}, self.target)[self.name]


class LoadedKernel:
    """A kernel on a device, ready to be launched. It does not hold the device, which holds it (see _loaded)."""

    def __init__(self, kernel: UserKernel, device: GpuDevice) -> None:
        self.kernel = kernel
        (self.function,) = device.load(kernel.code, [kernel.name])
        self.attributes: dict[str, int] = device.attributes(self.function)

    def launch(
        self, device: GpuDevice, kernel_args: Sequence[int], grid: Any, block: Any, shared: int, storages: Iterable[Any]
    ) -> None:
        """Give it to the device. `kernel_args`: addresses and numbers; `storages`: the memory that it works on."""
        name, limit = self.kernel.name, self.attributes["max_threads"]
        blocks, threads = extent(name, "grid", grid), extent(name, "block", block)
        count = threads[0] * threads[1] * threads[2]
        if count > limit:
            raise ArgumentError(
                f"[{name}] expected at most {limit} threads per block but got {count} (block={threads}); make the "
                "block smaller, or the kernel's __launch_bounds__ larger"
            )
        shared, room = shared_bytes(name, shared), device.properties.lds_per_block
        lds = self.attributes["lds_bytes"] + shared
        if lds > room:
            raise ArgumentError(
                f"[{name}] expected at most {room} bytes of shared memory per block on {device.id} but got {lds}: "
                f"{lds - shared} of the kernel's own and shared={shared}"
            )
        if device.forked:
            device.note_uses(storages)
        device.launch_all([(self.function, blocks, threads, shared, 0)], KernelArguments(kernel_args))


def extent(name: str, what: str, size: Any) -> tuple[int, int, int]:
    """The three numbers of a grid or a block."""
    try:
        return dimensions([int(n) for n in size] if isinstance(size, Iterable) else int(size))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"[{name}] expected {what} to be one to three numbers of at least 1 but got {size!r}"
        ) from error


def shared_bytes(name: str, shared: Any) -> int:
    """Dynamic shared memory of a launch."""
    if not isinstance(shared, (int, np.integer)) or shared < 0:
        raise ArgumentError(f"[{name}] expected shared to be a number of bytes but got {shared!r}")
    return int(shared)


# --- building ---------------------------------------------------------------------------------------------------------

_loaded: weakref.WeakKeyDictionary[GpuDevice, dict[str, LoadedKernel]] = weakref.WeakKeyDictionary()
_built: dict[str, UserKernel] = {}
_lock = lock()


def forget() -> None:
    """Forget kernels that were built and loaded. Who holds one may go on with it."""
    with _lock:
        _loaded.clear()
        _built.clear()


@dataclass(frozen=True)
class CacheChoice:
    """Where compiled kernels are kept: in a folder, or None: PyFlame's; `enabled` False: nowhere."""

    folder: Path | None = None
    enabled: bool = True

    def compiler(self, usual: Callable[[], KernelCompiler], target: Target) -> KernelCompiler:
        """The compiler whose code is kept there; `usual` gives the one with PyFlame's folder."""
        if self.folder is None or target.language != "hip":
            return usual()
        return find_compiler(target, DiskCache(self.folder))


def clear_kernel_cache(choice: CacheChoice) -> int:
    """Forget kernels of users in memory, and a folder of their own on disk; gives the bytes freed."""
    forget()
    return 0 if choice.folder is None else DiskCache(choice.folder).clear()


def compile_for_device(
    source: str, name: str, device: DeviceId, options: Sequence[str], cache: CacheChoice | None = None
) -> tuple[UserKernel, LoadedKernel, GpuDevice]:
    """A kernel, what was loaded of it onto a GPU, and that GPU."""
    cache = cache or CacheChoice()
    opened = get_device(device)
    if not isinstance(opened, GpuDevice):
        raise DeviceError(
            f"[compile_kernel] expected a GPU but got {device}, which runs no HIP or CUDA kernels; name one with "
            "device='rocm:0' or device='cuda:0', or only build for a target with target='gfx942'"
        )
    with _lock:
        compiler = cache.compiler(lambda: opened.kernels.compiler, opened.target)
        kernel, key = _build(source, name, opened.target, compiler, options, cache)
        known = _loaded.setdefault(opened, {})
        if key not in known:
            known[key] = LoadedKernel(kernel, opened)
        return kernel, known[key], opened


def compile_for_target(
    source: str, name: str, target: str, options: Sequence[str], cache: CacheChoice | None = None
) -> UserKernel:
    """A kernel's code for a GPU that need not be here."""
    cache, found = cache or CacheChoice(), find_gpu_target(target)
    compiler = cache.compiler(lambda: Nvrtc() if found.language == "cuda" else find_compiler(found), found)
    with _lock:
        return _build(source, name, found, compiler, options, cache)[0]


def find_gpu_target(name: object) -> Target:
    """The GPU of this name; features behind it (`gfx942:sramecc+`) say nothing to a kernel's text."""
    known = [t.name for t in TARGETS.values() if t.is_gpu]
    short = name.partition(":")[0] if isinstance(name, str) else name
    if short not in known:
        raise ArgumentError(
            f"[compile_kernel] expected one of {', '.join(known)} as target but got {name!r}{suggest(str(name), known)}"
        )
    return TARGETS[str(short)]


def _build(
    source: str, name: str, target: Target, compiler: KernelCompiler, options: Sequence[str], cache: CacheChoice
) -> tuple[UserKernel, str]:
    if not isinstance(source, str) or not isinstance(name, str) or not _IDENTIFIER.match(name):
        raise ArgumentTypeError(
            f"[compile_kernel] expected a source and the name of a kernel in it but got {type(source).__name__} and "
            f"{name!r}"
        )
    parameters = find_prototype(source, name)
    text = f'#include "pf_hip.h"\n#line 1 "kernel.hip"\n{with_plain_name(source, name)}'
    headers = _headers(options)
    key = digest(name, compiler.key(text, target, (*options, headers)), str(cache.folder))
    known = _built.get(key) if cache.enabled else None
    if known is not None:
        stats.memory_hits += 1
        return known, key
    compiles, started = stats.compiles, time.perf_counter()
    if cache.enabled:
        code = compiler.build(text, target, options, headers)
    else:
        code = compiler.compile(text, target, options)
    seconds, cached = time.perf_counter() - started, cache.enabled and stats.compiles == compiles
    metadata = _metadata(name, parameters, code) if is_code_object(code) else None
    kernel = UserKernel(name, target, parameters, code, cached, seconds, metadata)
    _built[key] = replace(kernel, cached=True)
    return kernel, key


def _headers(options: Sequence[str]) -> str:
    """A name for the headers in folders that the options name, as they are now."""
    found = []
    for option in options:
        if option.startswith("-I"):
            for folder, _, files in os.walk(option[2:]):
                for file in sorted(files):
                    path = Path(folder) / file
                    status = path.stat()
                    found.append(f"{path} {status.st_mtime_ns} {status.st_size}")
    return digest(*sorted(found)) if found else ""


def _metadata(name: str, parameters: Sequence[Parameter], code: bytes) -> KernelMetadata:
    """What a code object says of the kernel, compared with what was read from the source."""
    kernels = read_metadata(code)
    if name not in kernels:
        raise CompileError(
            f"[{name}] expected a kernel of this name in the code but it has {', '.join(kernels) or 'none'}; declare "
            f'it `extern "C" __global__ void {name}(...)`, outside of any #if that is not taken'
        )
    told = kernels[name]
    if len(told.parameters) != len(parameters):
        raise CompileError(
            f"[{name}] expected {len(parameters)} parameters, as its prototype seems to say, but the code has "
            f"{len(told.parameters)}; write the prototype without macros"
        )
    for number, (written, built) in enumerate(zip(parameters, told.parameters, strict=True)):
        known = 8 if written.pointer else None if written.number is None else written.number.itemsize
        if built.nbytes > 8 or (known is not None and known != built.nbytes):
            raise CompileError(
                f"[{name}] expected parameter {number} ({written.text}) to be a pointer or a number of up to 8 bytes "
                f"but it has {built.nbytes}; pass structures through a tensor"
            )
    return told


# --- arguments --------------------------------------------------------------------------------------------------------


def number_word(kernel: UserKernel, position: int, value: Any) -> int:
    """A number as the 8-byte argument that a launch takes. NumPy's scalars must be of the parameter's own type."""
    parameter = kernel.parameters[position]
    wanted = parameter.number
    if isinstance(value, np.generic):
        if wanted is None:
            wanted = value.dtype
            size = None if kernel.metadata is None else kernel.metadata.parameters[position].nbytes
            if wanted.kind == "O" or wanted.itemsize > 8 or (size is not None and wanted.itemsize != size):
                raise misfit(kernel, position, f"a NumPy {wanted.name} of {wanted.itemsize} bytes")
        elif value.dtype != wanted:
            raise misfit(
                kernel, position, f"a NumPy {value.dtype.name}", f"give a Python number, or np.{wanted.name}(...)"
            )
    elif wanted is None:
        raise misfit(kernel, position, _shown(value), "give a NumPy scalar of its size, such as np.int32(3)")
    elif isinstance(value, bool):
        value = int(value) if wanted.kind != "b" else value
    elif wanted.kind == "b" or not (isinstance(value, int) or (isinstance(value, float) and wanted.kind not in "iu")):
        raise misfit(kernel, position, _shown(value))
    if wanted.kind in "iu" and not np.iinfo(wanted).min <= value <= np.iinfo(wanted).max:
        raise misfit(kernel, position, f"{value}, which it cannot hold")
    return int.from_bytes(np.array(value, wanted).tobytes().ljust(8, b"\0"), "little", signed=True)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:80]


def misfit(kernel: UserKernel, position: int, got: str, remedy: str = "") -> ArgumentTypeError:
    """The error for an argument that its parameter cannot take."""
    parameter = kernel.parameters[position]
    return ArgumentTypeError(
        f"[{kernel.name}] expected argument {position} to be {parameter} ({parameter.text}) but got {got}"
        + (f"; {remedy}" if remedy else "")
    )
