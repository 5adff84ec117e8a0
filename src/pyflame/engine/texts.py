"""The texts of launches: a plan's kernels as source, generated or written by hand, for the CPU and for GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any

from pyflame.codegen import c as codegen_c
from pyflame.core.device import Target
from pyflame.core.errors import DeviceError
from pyflame.ir.kernel import GpuSource, Launch, LibraryCall, Source
from pyflame.kernels import Epilogue, KernelSpec, specs


def c_source(launch: Launch, target: Target) -> Source:
    """The text of one launch on the CPU."""
    if launch.kernel.anchor is None:
        return codegen_c.generate(launch.kernel)
    spec = specs()[launch.kernel.anchor.op.name, launch.implementation]
    after = None
    if spec.epilogue is not None:
        slot = spec.epilogue
        text, args = codegen_c.epilogue(
            launch.kernel, slot.layout(launch), slot.accumulator(launch), slot.address_arg + 1, len(launch.operands)
        )
        after = Epilogue(text, args)
    source = spec.source(launch, target, after)
    assert isinstance(source, Source)
    return source


def kernel_texts(sources: Sequence[Source]) -> list[tuple[str, tuple[str, ...]]]:
    """What to compile for the CPU: the texts of all launches, then their epilogues."""
    texts = [(s.text, tuple(p.suffix for p in s.phases)) for s in sources]
    return texts + [(s.epilogue, ("_epilogue",)) for s in sources if s.epilogue]


def gpu_source(launch: Launch, target: Target, aligned: bool = True) -> GpuSource:
    """The text of one launch on a GPU. Where memory may lie misaligned it is made with `aligned=False`."""
    from pyflame.codegen import gpu, gpu_beside, gpu_epilogue  # a CPU needs none

    if launch.parts:
        return gpu_beside.side_by_side([gpu_source(part, target, aligned) for part in launch.parts])
    anchor = launch.kernel.anchor
    if anchor is None:
        return gpu.generate(launch.kernel, target, aligned)
    spec = specs().get((anchor.op.name, launch.implementation)) or _own(anchor.op.name, target)
    if spec is None:
        raise DeviceError(f"[{anchor.op.name}] expected a kernel for {target.name} but there is none yet; use the CPU")
    after = None
    if spec.epilogue is not None:
        slot = spec.epilogue
        layout, value = slot.layout(launch), slot.accumulator(launch)
        made = gpu_epilogue.epilogue(launch.kernel, target, layout, value, len(launch.buffers), aligned)
        after = Epilogue(made.text, made.args, made.width, made.along, made.alignment)
    write = spec.source if aligned or spec.unaligned is None else spec.unaligned
    source: Any = write(launch, target, after)
    assert isinstance(source, GpuSource)
    return source


def gpu_sources(
    launches: Sequence[Launch], target: Target, calls: Mapping[int, LibraryCall] | None = None, aligned: bool = True
) -> list[GpuSource | LibraryCall]:
    """How each launch is done: by a library's call, by number, else by the text of a kernel of ours."""
    given = calls or {}
    return [given.get(n) or shared(gpu_source(x, target, aligned)) for n, x in enumerate(launches)]


def gpu_texts(sources: Sequence[Any]) -> list[tuple[str, tuple[str, ...]]]:
    """What to compile for a GPU: the texts among these, and the suffixes of their functions."""
    return [(s.text, tuple(p.suffix for p in s.phases)) for s in sources if isinstance(s, GpuSource)]


def shared(source: Any) -> Any:
    """A source whose text is one string with all equal ones: many plans hold the same kernels."""
    return replace(source, text=intern(source.text))


def _own(op: str, target: Target) -> KernelSpec | None:
    """Our own kernel of an op that a library was chosen for."""
    return next((s for (name, _), s in specs().items() if name == op and target.language in s.languages), None)
