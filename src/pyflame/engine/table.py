"""Which implementations compete for each kernel op on a target."""

from __future__ import annotations

from functools import lru_cache, partial

from pyflame.core.device import CPU, Target
from pyflame.engine.devices import get_device
from pyflame.ir import OPS, Node
from pyflame.ir.implementation import Implementation, Table
from pyflame.ir.opdef import KERNEL
from pyflame.kernels import SPECS, KernelSpec
from pyflame.kernels.blas import blas_spec
from pyflame.libs.cpu.openblas import find_openblas


@lru_cache(maxsize=64)
def implementations(target: Target) -> Table:
    """op name -> candidates, for every op that has one on this target."""
    _add_libraries(target)
    table: Table = {"uninitialized": (Implementation("allocation", "nothing to compute"),)}
    for (op, _), spec in SPECS.items():
        if target.language in spec.languages:
            table[op] = (*table.get(op, ()), _implementation(spec, target))
    for name, declared in OPS.items():
        if declared.kind == KERNEL and name not in table:
            table[name] = (Implementation("none", f"no kernel for {target.name} yet", strided=True),)
    return table


def _add_libraries(target: Target) -> None:
    """Libraries of this machine compete where its own CPU is the target."""
    if target.language == "c" and target == get_device(CPU).target and ("matmul", "openblas") not in SPECS:
        found = find_openblas()
        if found is not None:
            blas_spec(found.name, found.functions)


def _implementation(spec: KernelSpec, target: Target) -> Implementation:
    def prior(node: Node, target: Target) -> float:
        return spec.prior(node, target)

    return Implementation(spec.name, spec.why, spec.epilogue is not None, spec.strided, partial(prior, target=target))
