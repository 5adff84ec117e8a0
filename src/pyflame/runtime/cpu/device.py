"""The CPU device: compiled C kernels, a pool of threads and a pool of memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyflame.core import knobs
from pyflame.core.cached import cached_property
from pyflame.core.device import CPU, Target
from pyflame.core.locks import rlock
from pyflame.runtime.base import Device
from pyflame.runtime.cpu.cgroup import free_bytes
from pyflame.runtime.cpu.compiler import CompilerC, cpu_flags, find_compiler
from pyflame.runtime.pool import Block, HostPool

_UNKNOWN: Any = object()
PAUSE = 0.05  # seconds that a run goes on without a look for signals
_DONE, _TOO_MANY_BUFFERS, _PAUSED = range(3)  # what the runner says


class CPUDevice:
    """This machine's CPU."""

    id = CPU
    gpu = None
    CALL = "qq16x24xq"  # how a call begins (pf_call in runner.c): table, workers, where it is, a bad index, slots
    ERROR = slice(32, 56)  # the bytes of the bad index

    def __init__(self) -> None:
        self.workers = knobs.THREADS.integer() or len(os.sched_getaffinity(0))
        self.pool = HostPool()
        self.lock = rlock()
        self._opening = rlock()
        self._compiler: Any = _UNKNOWN
        self._runner: Any = None

    @cached_property
    def target(self) -> Target:
        """What plans are made for: the instruction sets that both the CPU and the compiler know."""
        isa = self.compiler.isa if self.compiler else cpu_flags()
        return Target("cpu", "c", isa, self.workers, matrix_core="amx" if "amx_bf16" in isa else "")

    @property
    def compiler(self) -> CompilerC | None:
        """The C compiler; None makes the engine run NumPy references, and says so once."""
        if self._compiler is _UNKNOWN:
            with self._opening:
                if self._compiler is _UNKNOWN:
                    self._compiler = _find_compiler()
        found: CompilerC | None = self._compiler
        return found

    @property
    def interprets(self) -> bool:
        return self.compiler is None

    @property
    def runner(self) -> Any:
        """The C function that runs a table of launches."""
        if self._runner is None:
            assert self.compiler is not None
            ((address,),) = self.compiler.functions([(runner_text(), ("_run",))])
            kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
            self._runner = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
        return self._runner

    def allocate(self, nbytes: int) -> Block:
        return self.pool.allocate(nbytes)

    def memory_info(self) -> tuple[int, int]:
        """Bytes that this process can still get without swapping or leaving its control group, and in total."""
        page = os.sysconf("SC_PAGE_SIZE")
        free, total = page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
        with contextlib.suppress(OSError):  # Linux alone has it: what caches of files hold can be had as well
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    free = 1024 * int(line.split()[1])
        grouped = free_bytes()
        return free if grouped is None else min(free, grouped), total

    def empty_cache(self) -> int:
        """Give unused memory back to the system; gives the bytes."""
        return self.pool.empty_cache()

    def functions(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[list[int]]:
        assert self.compiler is not None
        return self.compiler.functions(texts)

    def run(self, call: bytes, count: int, stop: int, last: Callable[[Iterable[int]], object]) -> None:
        """Run a table of launches; the GIL is released meanwhile. An exception may come before row `stop` only.

        `call`: all that it takes, as `pf_call` in runner.c. C writes to these bytes, so nobody else may have them: an
        array that may be written to would cost as much as the rest of the call. `last` gets an iterator that runs all
        rows from `stop` on: what it gives is true where `last` shall stop, too.
        """
        runner = self._runner or self.runner
        status = _PAUSED if stop else _DONE
        while status == _PAUSED:  # Python looks for signals each time
            status = runner(call, stop, PAUSE)
        if status == _TOO_MANY_BUFFERS:
            raise RuntimeError("[cpu] expected at most 512 buffers in one launch")
        if status == _DONE:
            last(() if stop == count else starmap(runner, [(call, count, 0.0)]))

    def info(self) -> dict[str, Any]:
        return {
            "type": "cpu",
            "name": _cpu_name(),
            "cores": self.workers,
            "isa": list(self.target.isa),
            "total_memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "compiler": self.compiler.version.splitlines()[0] if self.compiler and self.compiler.version else None,
        }

    def synchronize(self) -> None:
        """Nothing to wait for: CPU launches have finished when they return."""


def runner_text() -> str:
    """The source of the runner, as that of a kernel."""
    return Path(__file__).with_name("runner.c").read_text().replace("pf_run", "PF_KEY_run")


def _find_compiler() -> CompilerC | None:
    path = find_compiler()
    if path is None:
        warnings.warn(
            "PyFlame found no C compiler (cc, gcc or clang), so every op runs as its NumPy reference, much slower. "
            "Install one (apt-get install gcc) or point PYFLAME_CC at it.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return CompilerC(path)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if TYPE_CHECKING:  # it is what the engine asks for

    def _fits(device: CPUDevice) -> Device:
        return device
