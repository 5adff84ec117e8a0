"""Which implementation runs each kernel op on a target."""

from __future__ import annotations

from functools import lru_cache

from pyflame.core.device import Target
from pyflame.ir import OPS
from pyflame.ir.implementation import Implementation
from pyflame.ir.opdef import KERNEL
from pyflame.kernels import SPECS


@lru_cache(maxsize=64)
def implementations(target: Target) -> dict[str, Implementation]:
    """op name -> implementation, for every op that has one on this target."""
    table = {"uninitialized": Implementation("allocation", "nothing to compute")}
    for name, spec in SPECS.items():
        if target.language in spec.languages:
            table[name] = Implementation(spec.name, spec.why, spec.epilogue is not None, spec.strided)
    missing = [n for n, op in OPS.items() if op.kind == KERNEL and n not in table]
    for name in missing:
        table[name] = Implementation("none", f"no kernel for {target.name} yet", False, True)
    return table
