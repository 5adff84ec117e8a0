"""Plan -> launches with code objects: everything that a GPU of the target needs to run it, built without one.

The launch convention is the one of codegen/gpu.py: 8-byte words, which are the addresses of a kernel's buffers, its
scratch, the uniforms and the error record, then its arguments. An address that a kernel does not need is 0.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyflame.core.device import Target
from pyflame.core.dtype import DType, int64
from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.shape import Shape
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import KernelResources, Report, read_resources
from pyflame.engine.gpu import ALIGNMENT, ERROR_BYTES
from pyflame.engine.texts import gpu_source
from pyflame.ir.kernel import GpuSource, Plan
from pyflame.runtime.cache import digest
from pyflame.runtime.rocm.clang import ClangHip

BATCH = 16  # kernels of a file: most of a small file's time goes into the headers


@dataclass(frozen=True)
class BufferArg:
    """An argument that is the address of a byte of a buffer."""

    buffer: int
    offset: int  # bytes


@dataclass(frozen=True)
class ScalarArg:
    """An argument that is a number."""

    value: int
    dtype: DType


@dataclass(frozen=True)
class AotBuffer:
    """Memory that a plan needs, aligned to ALIGNMENT bytes. `role`: one of ROLES.

    All but inputs, outputs and scratch come with their bytes. `position`: among the function's inputs, or among the
    plan's outputs. `name`: what the program calls it.
    """

    nbytes: int
    role: str
    position: int = -1
    dtype: DType | None = None  # None: bytes of several kinds
    shape: Shape = ()
    data: bytes | None = field(default=None, repr=False)
    name: str = ""


ROLES = ("input", "state", "constant", "output", "uniforms", "errors", "scratch")  # in this order


@dataclass(frozen=True)
class AotLaunch:
    """One kernel launch: the function `name` of the code object, its blocks, their threads and its arguments."""

    name: str
    code_object: bytes = field(repr=False)
    grid: tuple[int, int, int]  # blocks
    block: tuple[int, int, int]  # threads
    dynamic_lds: int
    args: tuple[BufferArg | ScalarArg, ...]
    ops: tuple[str, ...]  # what was fused into it
    implementation: str  # "generated", or the name of a hand-written kernel


@dataclass(frozen=True)
class Uniform:
    """A word of the uniforms: a constant, the float at a position of the inputs, or a number of a random stream."""

    role: str  # "constant", "input", "seed" or "offset"
    position: int  # input: of the float; seed and offset: of the stream; constant: -1
    is_float: bool  # float64, else int64
    name: str = ""  # of the input


@dataclass(frozen=True)
class Lowered:
    """The machine side of an ahead-of-time plan."""

    launches: tuple[AotLaunch, ...]
    buffers: tuple[AotBuffer, ...]
    uniform_buffer: int  # -1: none
    error_buffer: int  # -1: nothing is checked
    report: Report


def find_target(name: object) -> Target:
    """The target of this name; features behind it (`gfx942:sramecc+`) say nothing to a kernel's text."""
    known = [t for t, target in TARGETS.items() if target.language == "hip"]
    short = name.partition(":")[0] if isinstance(name, str) else name
    if short not in known:
        raise ArgumentError(
            f"[aot] expected one of {', '.join(known)} as target but got {name!r}{suggest(str(short), known)}"
        )
    return TARGETS[str(short)]


def packed(uniforms: Sequence[Uniform], values: Sequence[float]) -> bytes:
    """The bytes of the uniforms with these values."""
    return struct.pack("<" + "".join("d" if u.is_float else "q" for u in uniforms), *values)


def lower(
    plan: Plan, target: Target, inputs: Sequence[AotBuffer], outputs: Mapping[int, AotBuffer], uniforms: bytes
) -> tuple[Lowered, dict[int, int]]:
    """Build a plan; gives with it the buffers of the plan's inputs, by position.

    `inputs`: those inputs, constants among them; `outputs`: by number of the plan's buffer; `uniforms`: as of now.
    """
    assert not plan.consumed and not plan.heirs, "an ahead-of-time plan leaves its inputs alone"
    sources = [_source(plan, number, target) for number in range(len(plan.launches))]
    found = {
        n: inputs[b.position] if b.role == "input" else outputs[n]
        for n, b in enumerate(plan.buffers)
        if b.role != "scratch"
    }
    order = sorted(found, key=lambda n: (ROLES.index(found[n].role), found[n].position))
    buffers = [found[n] for n in order]
    place = {n: (i, 0) for i, n in enumerate(order)}  # plan buffer -> buffer, byte offset
    uniform_buffer = error_buffer = scratch = -1
    if uniforms:
        uniform_buffer = len(buffers)
        buffers.append(AotBuffer(len(uniforms), "uniforms", data=uniforms))
    if plan.checks:
        error_buffer = len(buffers)
        buffers.append(AotBuffer(ERROR_BYTES, "errors", -1, int64, (3,), bytes(ERROR_BYTES)))
    arena = -(-plan.arena_bytes // ALIGNMENT) * ALIGNMENT
    own = max((s.scratch_bytes for s in sources), default=0)
    if arena + own:
        scratch = len(buffers)
        buffers.append(AotBuffer(arena + own, "scratch"))
        place |= {n: (scratch, b.offset) for n, b in enumerate(plan.buffers) if b.role == "scratch"}
    names = {s.text: _symbol(launch.name, s.text) for launch, s in zip(plan.launches, sources, strict=True)}
    code = build(names, target)
    launches = []
    for launch, source in zip(plan.launches, sources, strict=True):
        args: list[BufferArg | ScalarArg] = []
        for number, offset in launch.buffers[: source.buffers]:
            buffer, start = place[number]
            args.append(BufferArg(buffer, start + offset))
        args.append(BufferArg(scratch, arena) if source.scratch_bytes else _NOTHING)
        args.append(BufferArg(uniform_buffer, 0) if uniform_buffer >= 0 else _NOTHING)
        args.append(BufferArg(error_buffer, 0) if error_buffer >= 0 else _NOTHING)
        for phase in source.phases:
            launches.append(
                AotLaunch(
                    names[source.text] + phase.suffix,
                    code[source.text],
                    (phase.grid, 1, 1),
                    (phase.block, 1, 1),
                    0,  # LDS is declared in the text
                    (*args, *(ScalarArg(value, int64) for value in phase.args)),
                    launch.ops,
                    launch.implementation,
                )
            )
    lowered = Lowered(tuple(launches), tuple(buffers), uniform_buffer, error_buffer, resources(launches, target))
    return lowered, {b.position: place[n][0] for n, b in enumerate(plan.buffers) if b.role == "input"}


_NOTHING = ScalarArg(0, int64)


def _source(plan: Plan, number: int, target: Target) -> GpuSource:
    """The text of a launch; buffers start at multiples of ALIGNMENT, so what is askew is known now."""
    launch = plan.launches[number]
    source = gpu_source(launch, target)
    starts = [offset + plan.buffers[b].offset for b, offset in launch.buffers]
    if any(start % a for start, a in zip(starts, source.alignment, strict=False)):
        source = gpu_source(launch, target, aligned=False)
    return source


def _symbol(name: str, text: str) -> str:
    """A function name that tells what a kernel does and that no other text has."""
    return f"pf_{re.sub(r'[^A-Za-z0-9]+', '_', name)}_{digest(text)[:12]}"


def build(names: Mapping[str, str], target: Target) -> dict[str, bytes]:
    """Text -> the code object that holds it. A text with macros of its own is a file of its own."""
    compiler = ClangHip()
    together = [text for text in names if "#define" not in text]
    batches = [together[i : i + BATCH] for i in range(0, len(together), BATCH)]
    batches += [[text] for text in names if "#define" in text]
    files = ["\n".join(text.replace("PF_KEY", names[text]) for text in batch) for batch in batches]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        codes = list(pool.map(lambda file: compiler.build(file, target), files))
    return {text: code for batch, code in zip(batches, codes, strict=True) for text in batch}


def resources(launches: Sequence[AotLaunch], target: Target) -> Report:
    """What each kernel takes, in the order of first launch."""
    threads: dict[bytes, dict[str, int]] = {}
    for launch in launches:
        threads.setdefault(launch.code_object, {})[launch.name] = launch.block[0]
    found: dict[str, KernelResources] = {}
    for code, kernels in threads.items():
        found |= read_resources(code, kernels, target)
    return Report(target.name, tuple(found[name] for name in dict.fromkeys(launch.name for launch in launches)))
