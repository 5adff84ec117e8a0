"""What can be simulated, and what a launch checks: bits of the interpreter (isa/sim.h)."""

from __future__ import annotations

SIMULATED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
UNINITIALISED, RACES, COUNT = 1, 2, 4  # the last one counts what each instruction did
