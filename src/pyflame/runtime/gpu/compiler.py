"""Source to code objects, for every vendor's compiler; and the functions of a device's loaded kernels."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyflame.core.device import Target
from pyflame.core.errors import CompileError
from pyflame.core.locks import lock
from pyflame.runtime.cache import DiskCache, digest, stats
from pyflame.runtime.gpu.driver import Driver
from pyflame.runtime.kernels import KernelTable
from pyflame.runtime.sources import include_dir

PREFIX = '#include "pf_gpu.h"\n'


class KernelCompiler(ABC):
    """A compiler of kernels written against pf_gpu.h, which need not be included, and the code it has made, on disk."""

    extension: ClassVar[str]  # of its code objects on disk
    # Our kernels say where they want an FMA (pf_mul_add): a number has the same bits wherever it is computed again.
    uncontracted: ClassVar[str]  # the option for it

    def __init__(self, version: str, flags: str, cache: DiskCache | None = None) -> None:
        self.version = version
        self.cache = cache or DiskCache()
        folder = include_dir()
        texts = [p.read_bytes() for p in sorted([*folder.glob("*.h"), *folder.parent.glob("*.hip")])]
        self._salt = digest(version, flags, b"".join(texts))
        self._counting = lock()

    @abstractmethod
    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        """The code object of a source, made now. A refused one raises CompileError with the lines at fault.

        `options`: more of them for the compiler, as on its command line.
        """

    def key(self, source: str, target: Target, options: Sequence[str] = ()) -> str:
        """The name of this source's code object: everything that it depends on."""
        return digest(self._salt, target.name, str(target.wave_size), source, *options)

    def build(self, source: str, target: Target, options: Sequence[str] = (), salt: str = "") -> bytes:
        """The code object of a source, from disk if it was made before.

        `salt`: names whatever else it depends on, such as headers in folders that the options name.
        """
        name = self.key(source, target, (*options, salt) if salt else options) + self.extension
        known = self.cache.read(name)
        if known is not None:
            with self._counting:
                stats.disk_hits += 1
            return known
        started = time.perf_counter()
        code = self.compile(source, target, options)
        with self._counting:
            stats.misses += 1
            stats.compiles += 1
            stats.compile_seconds += time.perf_counter() - started
        self.cache.write(name, code)
        return code


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel that is loaded on a device."""

    name: str
    handle: Any
    awaits: bool = False

    def named(self, name: str, awaits: bool = False) -> Function:
        return replace(self, name=name, awaits=awaits)


class GpuKernels(KernelTable[Function]):
    """The kernels of one device."""

    batch = 40
    head = ""  # compilers put pf_gpu.h before what they get
    damaged = (CompileError,)

    def __init__(self, driver: Driver, index: int, target: Target, compiler: KernelCompiler) -> None:
        super().__init__(compiler.cache, compiler.key("", target, (compiler.uncontracted,)))
        self.extension = compiler.extension
        self._driver = driver
        self._index = index
        self._target = target
        self.compiler = compiler

    def build(self, source: str) -> bytes:
        return self.compiler.compile(source, self._target, (self.compiler.uncontracted,))

    def open(self, library: str) -> int | None:
        code = self.cache.read(library)
        if code is None:
            return None
        self._driver.set_device(self._index)
        return self._driver.load_module(code)

    def _find(self, library: int, name: str) -> Function:
        return Function(name, self._driver.get_function(library, name))
