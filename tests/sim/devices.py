"""Simulated GPUs of a test's own: with exact bounds, little memory, another seed or another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyflame.core.errors import ROCmMemoryError
from pyflame.core.targets import TARGETS
from pyflame.engine import devices
from pyflame.engine.evaluate import clear_plans
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.rocm.compiler import find_compiler
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.runtime.sim.checks import SIMULATED
from pyflame.runtime.sim.hip.module import MOST_DEVICES, Hip
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.modes import Modes, wanted_modes

# For tests of kernels: all that are about kernels. A fault must not end the process of other tests.
KERNEL_MODES = wanted_modes("interleave,stale,replay,handles")
FIRST = 4  # the numbers below are those of the devices that everybody has


@contextmanager
def own_gpus(
    target: str,
    count: int = 1,
    *,
    nbytes: int = 1 << 30,
    seed: int = 0,
    pool: str = "exact",
    make_machine: Callable[[str, Memory], Any] | None = None,
    make_compiler: Callable[[], KernelCompiler] | None = None,
    modes: Modes | None = None,
) -> Iterator[list[GpuDevice]]:
    """New devices `sim:<target>:4` and on, for the time of a block."""
    first = MOST_DEVICES * SIMULATED.index(target)
    hip = Hip(target, FIRST + count, nbytes, seed, make_machine, first=first, modes=modes or wanted_modes())
    driver = HipDriver(hip, f"sim:{target}")
    compiler = make_compiler or (lambda: find_compiler(TARGETS[target]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYFLAME_MEMORY_POOL", pool)
        made = [GpuDevice(driver, compiler, FIRST + n, ROCmMemoryError) for n in range(count)]
    for gpu in made:
        devices._open[gpu.id] = gpu
    clear_plans()
    try:
        yield made
    finally:
        clear_plans()
        for gpu in made:
            del devices._open[gpu.id]
