"""Where a launch shall stop before its end, and what the registers of a wave hold there."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyflame.runtime.sim.decode.inst import EXEC, VCC, Launch

SGPRS = 128


@dataclass
class Stop:
    """Stop before one of some instructions, in a wave of a block.

    >>> stop = Stop(numbers=[12])
    >>> machine.launch(kernel, grid, block, 0, arguments, stop)  # doctest: +SKIP
    >>> stop.reached, stop.scalars[0], stop.vectors[3]  # doctest: +SKIP
    """

    numbers: Collection[int]  # of the instructions, in the code object
    wave: int = 0
    block: tuple[int, int, int] = (0, 0, 0)
    hit: int = 1  # the first time, or a later one
    reached: int | None = None  # the instruction that comes next; None: the launch ended without it
    scalars: Any = field(default=None, repr=False)  # 128 words
    vectors: Any = field(default=None, repr=False)  # registers x lanes, words; row 256 is a0
    scc: int = 0

    @property
    def exec(self) -> int:
        """A bit per lane that is on."""
        return self._mask(EXEC)

    @property
    def vcc(self) -> int:
        return self._mask(VCC)

    def _mask(self, register: int) -> int:
        both = int(self.scalars[register]) | int(self.scalars[register + 1]) << 32
        return both & ((1 << int(self.vectors.shape[1])) - 1)

    def prepare(self, launch: Launch, count: int, lanes: int) -> tuple[Any, Any]:
        """Tell a launch of `count` instructions; gives the memory that it will use."""
        stops, state = np.zeros(count, np.uint8), np.zeros(SGPRS + launch.vgprs * lanes, np.uint32)
        stops[list(self.numbers)] = 1
        launch.stops, launch.stop_state = stops.ctypes.data, state.ctypes.data
        launch.stop_wave, launch.stop_after = self.wave, self.hit - 1
        launch.stop_group = (ctypes.c_uint32 * 3)(*self.block)
        return stops, state

    def fill(self, launch: Launch, room: tuple[Any, Any], lanes: int) -> None:
        """Take what a launch that stopped has left."""
        _, state = room
        self.reached = int(launch.fault.inst)
        self.scalars, self.vectors = state[:SGPRS], state[SGPRS:].reshape(-1, lanes)
        self.scc = int(launch.stop_scc)
