"""KernelSpec: how a hand-written kernel runs an op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyflame.core.device import Target
from pyflame.ir.kernel import GpuSource, Launch, Source
from pyflame.ir.node import Node


@dataclass(frozen=True)
class Epilogue:
    """Generated text of the elementwise ops that follow a kernel, and the arguments it reads.

    GPUs: it takes `width` neighbours at once `along` i or j, and then asks for an alignment of the launch's buffers.
    """

    text: str
    args: tuple[int, ...]
    width: int = 1
    along: str = ""
    alignment: tuple[int, ...] = ()


@dataclass(frozen=True)
class EpilogueSlot:
    """That a kernel takes an epilogue.

    How many loops of its result are `batch` and `i`, the C type of its sums, and the argument that holds the epilogue's
    address; the epilogue's own arguments follow.
    """

    layout: Callable[[Launch], tuple[int, int]]
    accumulator: Callable[[Launch], str]
    address_arg: int


def loops_of(launch: Launch, axes: int) -> int:
    """How many loops the first axes of an anchor's result are; an axis that its epilogue sees reshaped is several."""
    anchor, (extents,) = launch.kernel.anchor, launch.kernel.loops
    assert anchor is not None
    count = 0
    for size in anchor.meta.shape[:axes]:
        run, count = extents[count], count + 1
        while run < size:
            run, count = run * extents[count], count + 1
    return count


@dataclass(frozen=True)
class KernelSpec:
    """One hand-written kernel. Its buffers are the sources in order, then what it stores."""

    op: str
    name: str
    source: Callable[[Launch, Target, Epilogue | None], Source | GpuSource]
    languages: tuple[str, ...] = ("c",)
    why: str = "hand-written kernel"
    epilogue: EpilogueSlot | None = None
    strided: bool = False
    # GPUs: the text for buffers that miss the alignment which `source` asks for; None where it asks for none
    unaligned: Callable[[Launch, Target, Epilogue | None], GpuSource] | None = None
    prior: Callable[[Node, Target], float] = lambda node, target: 1.0  # see ir/implementation.py
    # Names of the ways to do a launch that are worth timing, best guess first; `Launch.variant` says which is taken
    variants: Callable[[Launch, Target], tuple[str, ...]] = lambda launch, target: ()
    # An op of the decomposition: where a vendor's library does that one, the decomposition is faster than this kernel
    overtaken_by: str = ""
    unless: Callable[[Node], bool] = lambda node: False  # the nodes that this kernel keeps nevertheless


SPECS: dict[tuple[str, str], KernelSpec] = {}


def kernel(spec: KernelSpec) -> KernelSpec:
    """Add a kernel to the candidates for its op."""
    known = SPECS.get((spec.op, spec.name))
    # A file whose import was interrupted is imported again: kernels are imported late, at the first plan.
    if known is not None and known.source.__module__ != spec.source.__module__:
        raise ValueError(f"{spec.op} has a kernel named {spec.name!r} already")
    SPECS[spec.op, spec.name] = spec
    return spec
