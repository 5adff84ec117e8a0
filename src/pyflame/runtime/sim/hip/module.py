"""A HIP runtime whose devices are simulated: an object with the functions of AMD's `rocm.bindings.hip`.

Calls have the names, parameters and results of the official bindings: a tuple of a status and the values. Where a
call fails, `explain()` tells more than HIP's status does: HipDriver puts it into the error it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.runtime.rocm.metadata import CODE_OBJECT_VERSION
from pyflame.runtime.sim.checks import RACES, UNINITIALISED
from pyflame.runtime.sim.hip import types as hip_types
from pyflame.runtime.sim.hip.copies import CopyCalls
from pyflame.runtime.sim.hip.devices import DeviceCalls
from pyflame.runtime.sim.hip.graphs import GraphCalls
from pyflame.runtime.sim.hip.modules import ModuleCalls
from pyflame.runtime.sim.hip.state import Machine
from pyflame.runtime.sim.hip.streams import StreamCalls
from pyflame.runtime.sim.machine import Machine as Simulator
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.modes import Modes

MOST_DEVICES = 8
_OLD_HIP = 50731921  # 5.7, which loads no code objects of version 5


class Hip(DeviceCalls, CopyCalls, StreamCalls, ModuleCalls, GraphCalls):
    """`count` devices of a target with `nbytes` of memory each.

    `make_machine`: executes kernels in place of the interpreter; `first`: where addresses begin, in windows.

    >>> hip = Hip("gfx942", count=2)
    >>> hip.hipGetDeviceCount()
    (<hipError_t.hipSuccess: 0>, 2)
    >>> hip.hipFree(4096)
    (<hipError_t.hipErrorInvalidValue: 1>,)
    >>> hip.explain()
    'hipFree expects the address of managed memory that was not freed but got 0x1000, where nothing is allocated'
    """

    def __init__(
        self,
        target: str,
        count: int = 1,
        nbytes: int = 4 << 30,
        seed: int = 0,
        make_machine: Callable[[str, Memory], Machine] | None = None,
        checks: int = UNINITIALISED | RACES,
        first: int = 0,
        modes: Modes = frozenset(),
        code_objects: int = CODE_OBJECT_VERSION,
    ) -> None:
        if not 1 <= count <= MOST_DEVICES:
            raise ArgumentError(f"[sim] expected 1 to {MOST_DEVICES} simulated devices but got {count}")

        version = hip_types.HIP_VERSION if code_objects >= CODE_OBJECT_VERSION else _OLD_HIP

        def machine(target: str, memory: Memory) -> Machine:
            return Simulator(target, memory, checks=checks, seed=seed, modes=modes, code_objects=code_objects)

        super().__init__(target, count, nbytes, seed, make_machine or machine, first, modes, version)

    def has_symbol(self, name: str | bytes | bytearray) -> bool:
        """Whether a function is simulated."""
        return hasattr(self, name if isinstance(name, str) else bytes(name).decode())

    def __getattr__(self, name: str) -> Any:
        found = getattr(hip_types, name, None) if name.lower().startswith("hip") else None
        if found is None:
            raise AttributeError(f"[sim] expected a function that is simulated but got {name}; it needs a real GPU")
        return found
