"""Plan -> launches with code objects: everything that a GPU of the target needs to run it, built without one.

The layout is the GPU runner's (`engine/layout.py`), with buffers of the file in place of addresses.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyflame.core.device import Target
from pyflame.core.dtype import DType, float64, int64
from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.shape import Shape
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import KernelResources, Report, read_resources
from pyflame.engine.binding import Slots
from pyflame.engine.gpu import ALIGNMENT
from pyflame.engine.layout import ERROR_BYTES, lay_out
from pyflame.ir.declare import as_signed
from pyflame.ir.kernel import GpuSource, Launch, Plan
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
    # of all launches up to the next that counts some: what the plan has counted, and what vector units compute in
    nbytes: int = 0
    flops: int = 0
    dtype: str = "f32"


@dataclass(frozen=True)
class Uniform:
    """A number of the uniforms: a constant, the float at a position of the inputs, or a number of a random stream."""

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
    return struct.pack("<" + "".join("d" if u.is_float else "q" for u in uniforms), *map(as_signed, values))


def lower(
    plan: Plan, target: Target, inputs: Sequence[AotBuffer], outputs: Mapping[int, AotBuffer], uniforms: bytes
) -> tuple[Lowered, dict[int, int]]:
    """Build a plan; gives with it the buffers of the plan's inputs, by position.

    `inputs`: those inputs, constants among them; `outputs`: by number of the plan's buffer; `uniforms`: as of now.
    """
    assert not plan.overwritten_inputs and not plan.donations, "an ahead-of-time plan leaves its inputs alone"
    sources = [source for source in plan.sources if isinstance(source, GpuSource)]
    slots = Slots(plan, [source.scratch_bytes for source in sources])
    memory = _Memory(plan, slots, inputs, outputs, uniforms)
    names = {s.text: _symbol(launch.name, s.text) for launch, s in zip(plan.launches, sources, strict=True)}
    code = build(names, target)
    launches = []
    for work in lay_out(plan, slots):
        launch, text, phase = plan.launches[work.launch], sources[work.launch].text, work.phase
        assert phase is not None, "a text has phases"
        launches.append(
            AotLaunch(
                names[text] + phase.suffix,
                code[text],
                (phase.grid, 1, 1),
                (phase.block, 1, 1),
                phase.dynamic_lds,
                tuple([memory.arg(*arg) for arg in work.kernel_args]),
                launch.ops,
                launch.implementation,
                *(_work(launch) if phase is sources[work.launch].phases[0] else ()),
            )
        )
    report = resources(launches, target)
    lowered = Lowered(tuple(launches), tuple(memory.buffers), memory.uniforms, memory.errors, report)
    return lowered, {p: memory.place[slot + 1][0] for slot, p in enumerate(slots.positions)}


def _work(launch: Launch) -> tuple[int, int, str]:
    """Bytes, flops, and in what vector units compute."""
    dtypes = [i.dtype for i in launch.kernel.instrs] + [view.dtype for view in launch.operands]
    return launch.nbytes, launch.flops, "f64" if float64 in dtypes else "f32"


class _Memory:
    """The buffers of an ahead-of-time plan, and where the slots of its layout lie in them."""

    def __init__(
        self,
        plan: Plan,
        slots: Slots,
        inputs: Sequence[AotBuffer],
        outputs: Mapping[int, AotBuffer],
        uniforms: bytes,
    ) -> None:
        decls = plan.buffers
        found = {n: inputs[decls[n].position] if decls[n].role == "input" else outputs[n] for n in slots.slot_of}
        order = sorted(found, key=lambda n: (ROLES.index(found[n].role), found[n].position))
        self.buffers = [found[n] for n in order]
        # by the slot of a kernel argument: buffer and byte offset
        self.place = {1 + slots.slot_of[n]: (at, 0) for at, n in enumerate(order)}
        self.uniforms = self.errors = -1
        arena, scratch, at_uniforms, at_errors = range(slots.arena + 1, slots.arena + 5)
        if uniforms:
            self.uniforms = self._add(at_uniforms, AotBuffer(len(uniforms), "uniforms", data=uniforms))
        if plan.checks:
            record = AotBuffer(ERROR_BYTES, "errors", -1, int64, (3,), bytes(ERROR_BYTES))
            self.errors = self._add(at_errors, record)
        behind = -(-slots.arena_bytes // ALIGNMENT) * ALIGNMENT
        if behind + slots.scratch_bytes:
            number = self._add(arena, AotBuffer(behind + slots.scratch_bytes, "scratch"))
            self.place[scratch] = number, behind

    def _add(self, slot: int, buffer: AotBuffer) -> int:
        self.buffers.append(buffer)
        self.place[slot] = len(self.buffers) - 1, 0
        return len(self.buffers) - 1

    def arg(self, slot: int, number: int) -> BufferArg | ScalarArg:
        """A kernel argument of the layout as one of the file."""
        if not slot:
            return ScalarArg(number, int64)
        buffer, start = self.place[slot]
        return BufferArg(buffer, start + number)


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
        codes = list(pool.map(lambda file: compiler.build(file, target, (compiler.uncontracted,)), files))
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
