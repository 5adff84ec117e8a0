"""Modes: what hardware does that a simulator need not do. All are off unless PYFLAME_SIM_MODES names them.

docs/simulator.md says of each what hardware does and where that is documented.
"""

from __future__ import annotations

from pyflame.core import knobs
from pyflame.core.errors import ArgumentError, suggest

MODES = {
    "interleave": "several blocks run at once, and races in global memory between all waves of a launch are faults",
    "stale": "scalar caches, and the L2 of each die, keep what they have read until an acquire",
    "replay": "kernels of a replayed graph begin without an acquire",
    "handles": "work of a vendor's library that shares a handle with other work and is in no order with it is a fault",
    "abort": "a fault of a kernel ends the process",
}
INTERLEAVE, STALE, STORES_MARKED, WRITES_BACK = 1, 2, 4, 8  # bits of the interpreter (isa/sim.h)
DIES = {"gfx942": 8, "gfx950": 8}  # compute dies of an MI300X and of an MI355X, each with an L2 of its own

Modes = frozenset[str]


def wanted_modes(text: str | None = None, asked_by: str = knobs.SIM_MODES.name) -> Modes:
    """The modes that a text names (that of PYFLAME_SIM_MODES).

    >>> sorted(wanted_modes("stale,interleave")), sorted(wanted_modes(""))
    (['interleave', 'stale'], [])
    """
    text = knobs.SIM_MODES.text() if text is None else text
    names = list(MODES) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in MODES:
            raise ArgumentError(
                f"[{asked_by}] expected all or some of {', '.join(MODES)} but got {name!r}{suggest(name, MODES)}"
            )
    return frozenset(names)
