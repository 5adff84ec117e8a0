"""Which implementations compete for each kernel op on a target."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from pyflame.core.device import CPU, Target
from pyflame.engine.devices import get_device
from pyflame.ir import OPS, Node
from pyflame.ir.implementation import Implementation, Table
from pyflame.ir.opdef import KERNEL
from pyflame.kernels import KernelSpec, specs
from pyflame.kernels.blas import blas_spec
from pyflame.runtime.base import Device, GpuDevice


def table_for(target: Target, device: Device | None = None) -> Table:
    """The implementations on a target.

    `device`: a GPU that is to run it, whose libraries may make a kernel of ours the slower way. Without one, as for a
    plan made ahead of time, there are none.
    """
    table = implementations(target)
    gpu = None if device is None else device.gpu
    if gpu is None:
        return table
    return table | {op: tuple(_unless_overtaken(op, way, gpu) for way in table[op]) for op in _overtaken(target)}


def _overtaken(target: Target) -> list[str]:
    return [op for (op, _), spec in specs().items() if spec.overtaken_by and target.language in spec.languages]


def _unless_overtaken(op: str, way: Implementation, device: GpuDevice) -> Implementation:
    """A candidate that is none where a library of the device does the op that its decomposition is made of."""
    by, unless = specs()[op, way.name].overtaken_by, specs()[op, way.name].unless
    if not by:
        return way

    def prior(node: Node) -> float:
        from pyflame.engine.libraries.decide import libraries_of  # asked only where there is such a node

        return 0.0 if libraries_of(device).usable(by) and not unless(node) else way.prior(node)

    return replace(way, prior=prior)


@lru_cache(maxsize=64)
def implementations(target: Target) -> Table:
    """op name -> candidates, for every op that has one on this target."""
    _add_libraries(target)
    table: Table = {"uninitialized": (Implementation("allocation", "nothing to compute"),)}
    for (op, _), spec in specs().items():
        if target.language in spec.languages:
            table[op] = (*table.get(op, ()), _implementation(spec, target))
    for name, declared in OPS.items():
        if declared.kind == KERNEL and name not in table:
            table[name] = (Implementation("none", f"no kernel for {target.name} yet", strided=True),)
    return table


def _add_libraries(target: Target) -> None:
    """Libraries of this machine compete where its own CPU is the target."""
    if target.language == "c" and target == get_device(CPU).target and ("matmul", "openblas") not in specs():
        from pyflame.libs.cpu.openblas import find_openblas  # not at the start: it looks through files

        found = find_openblas()
        if found is not None:
            blas_spec(found.name, found.functions)


def _implementation(spec: KernelSpec, target: Target) -> Implementation:
    def prior(node: Node, target: Target) -> float:
        return spec.prior(node, target)

    return Implementation(spec.name, spec.why, spec.epilogue is not None, spec.strided, partial(prior, target=target))
