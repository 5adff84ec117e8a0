"""Kernel: a fused loop nest as a value, between schedule and codegen; and Plan, the list of launches.

The schedule fills a `Draft`; planning (`engine/planning.py`) chooses how each launch is done and makes a frozen `Plan`
of it, which runners execute.

Loops come in scopes. Scope 0 runs over independent rows, scope 1 inside a row, scope 2 inside that. A reduction of
scope d runs over all loops of scope d+1. Accesses are strided: one stride per loop, all scopes in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from pyflame.core.dtype import DType
from pyflame.core.shape import Shape
from pyflame.ir.node import Meta
from pyflame.ir.opdef import OpDef


class Access(NamedTuple):
    """Where a value lies: kernel buffer number, element strides per loop, element offset."""

    buffer: int
    strides: tuple[int, ...]
    offset: int
    dtype: DType


class Instr(NamedTuple):
    """One value. `kind`: load, uniform, index, op, reduce, gather, acc (the anchor's result) or line.

    A line is no value but where the first store goes: its access is an index's, which names a line of what is stored to
    for every key, and `dynamic` are (lines, step from one to the next) and (keys, 1).

    A tuple, as an Access is: a plan has as many as its graph has nodes, and a frozen dataclass takes thrice as long.
    """

    kind: str
    dtype: DType
    scope: int
    loops: frozenset[int]  # loops the value changes with
    op: OpDef | None = None
    attrs: tuple[Any, ...] = ()
    args: tuple[int, ...] = ()
    access: Access | None = None  # load, gather (fixed part), index (strides and offset of the position)
    uniform: int = -1
    dynamic: tuple[tuple[int, int], ...] = ()  # gather: (size, stride) of each computed axis
    check: int = -1  # gather: number of the bounds check in the plan


@dataclass(frozen=True)
class Anchor:
    """The kernel op a launch is built around: no Node, so that a cached plan keeps no buffer alive."""

    op: OpDef
    attrs: tuple[Any, ...]
    srcs: tuple[Meta, ...]
    meta: Meta
    check: int = -1  # number of its bounds check in the plan


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fused kernel, complete but for its text."""

    loops: tuple[tuple[int, ...], ...]  # extents per scope
    instrs: tuple[Instr, ...]
    stores: tuple[tuple[int, Access], ...]
    ops: tuple[str, ...]
    anchor: Anchor | None = None
    flops: int = 0

    @property
    def depth(self) -> int:
        return len(self.loops)

    @property
    def checked(self) -> bool:
        """Whether it may find an index out of range."""
        return (self.anchor is not None and self.anchor.check >= 0) or any(i.check >= 0 for i in self.instrs)

    @property
    def line(self) -> Instr | None:
        """What says where its first store goes, if an index does: its last instruction."""
        return self.instrs[-1] if self.instrs and self.instrs[-1].kind == "line" else None

    def loop_scope(self) -> list[int]:
        """Scope of each loop, loops numbered across scopes."""
        return [d for d, extents in enumerate(self.loops) for _ in extents]


@dataclass(frozen=True)
class Phase:
    """One function of a kernel: its name suffix, its parallel iterations and how many a thread should take at least."""

    suffix: str
    iterations: int
    grain: int


@dataclass(frozen=True)
class Source:
    """A kernel's text, in which its name stands as PF_NAME, and what to call it with."""

    text: str
    phases: tuple[Phase, ...]
    args: tuple[int, ...]
    worker_bytes: int = 0  # scratch per worker
    scratch_bytes: int = 0  # scratch per launch
    scratch_position: int = -1  # kernel buffer number of the scratch; -1: behind all others
    epilogue: str = ""  # text of PF_KEY_epilogue, compiled apart so that a kernel serves any epilogue
    epilogue_arg: int = -1  # the argument that holds its address


@dataclass(frozen=True)
class GpuPhase:
    """One launch of a GPU kernel: its name suffix, its blocks, threads per block, arguments and LDS."""

    suffix: str
    grid: int
    block: int
    args: tuple[int, ...]
    lds_bytes: int = 0  # declared in the text: nothing to ask for at the launch
    dynamic_lds: int = 0  # asked for at the launch


@dataclass(frozen=True)
class GpuSource:
    """A kernel's text for GPUs, in which its name stands as PF_KEY, and what to launch it with, phase after phase.

    Kernel arguments, of 8 bytes each: `buffers` addresses, scratch, uniforms, error record, then the phase's args.
    """

    text: str
    phases: tuple[GpuPhase, ...]
    buffers: int
    alignment: tuple[int, ...]  # bytes, by buffer: where an address falls short, take the text made with aligned=False
    scratch_bytes: int = 0


class LibraryCall(NamedTuple):
    """A library's way to do a launch. `rank`: of the ways that it proposes; `extra`: what it does beside the product.

    `start(addresses, workspace, stream)` gives the work to a stream; `buffers` are the kernel buffer numbers of the
    addresses, which have the alignment promised.
    """

    library: str
    version: str
    buffers: tuple[int, ...]
    alignment: tuple[int, ...]
    workspace: int
    start: Callable[[Sequence[int], int, int], None]
    rank: int = 0
    extra: str = ""

    @property
    def name(self) -> str:
        """As in "cuBLASLt with relu, proposal 2"."""
        extra = f" with {self.extra}" if self.extra else ""
        return self.library + extra + (f", proposal {self.rank + 1}" if self.rank else "")


# Instead of a plan buffer: a plain number, the uniforms, the error record.
NUMBER, UNIFORMS, ERRORS = -1, -2, -3


class CompiledKernel(NamedTuple):
    """A kernel that was compiled ahead of time: a function of a code object, and what to launch it with.

    `kernel_args`: (plan buffer, byte offset) of addresses, (NUMBER, value), (UNIFORMS, 0) or (ERRORS, 0).
    """

    name: str
    code: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    kernel_args: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class BufferDecl:
    """A buffer of a plan. role: input, output or scratch."""

    nbytes: int
    role: str
    position: int = -1  # among inputs or outputs
    offset: int = 0  # in the arena, for scratch
    dtype: DType | None = None
    shape: Shape = ()


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """One entry of a plan: a fused kernel or an anchored one, its buffers and what it costs."""

    name: str
    kernel: Kernel
    buffers: tuple[tuple[int, int], ...]  # (plan buffer, byte offset), by kernel buffer number
    operands: tuple[OperandView, ...]  # sources of the anchor
    ops: tuple[str, ...]
    nbytes: int
    flops: int
    implementation: str
    why: str
    output: Shape = ()
    overwrites_input: bool = False  # whether it overwrites an input of the plan
    # (kernel buffer number, start): of the buffer only what lies behind a start that the caller brings, in elements
    starts: tuple[tuple[int, int], ...] = ()
    variant: int = 0  # which of the implementation's variants, best guess first
    unwritten: frozenset[int] = frozenset()  # kernel buffers of an anchor that are inputs which the plan never writes
    # Launches that it does side by side. Its buffers are theirs, and its kernel tells what they compute and store.
    parts: tuple[Launch, ...] = ()

    def reads_where_it_writes(self, source: int, target: int) -> bool:
        """Whether each element of one plan buffer is read only where the same element of the other is written next."""
        if self.parts:
            using = [p for p in self.parts if any(buffer in (source, target) for buffer, _ in p.buffers)]
            return len(using) == 1 and using[0].reads_where_it_writes(source, target)
        kernel = self.kernel
        if any(self.buffers[o.buffer][0] == source for o in self.operands):
            return False
        written = [a.strides for _, a in kernel.stores if self.buffers[a.buffer] == (target, 0)]
        if len(written) != 1:
            return False
        reads = [
            i for i in kernel.instrs if i.access and i.access.buffer >= 0 and self.buffers[i.access.buffer][0] == source
        ]
        return all(
            i.kind == "load"
            and i.scope == 0  # inside a row it might be read again after it is written
            and i.access
            and i.access.strides == written[0]
            and self.buffers[i.access.buffer][1] == 0
            for i in reads
        )


@dataclass(frozen=True)
class OperandView:
    """A whole buffer seen through element strides."""

    buffer: int  # kernel buffer number
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class OutputView:
    """An output of a plan: a view of one of its buffers."""

    buffer: int
    offset: int  # elements
    strides: tuple[int, ...] | None  # None: contiguous


Uniform = tuple[str, Any, bool]
Check = tuple[str, str]
Way = Source | GpuSource | LibraryCall | CompiledKernel  # to do a launch


@dataclass(frozen=True, eq=False)
class Plan:
    """What to launch, in order, on which buffers, and how: finished. Holds no memory."""

    buffers: tuple[BufferDecl, ...]
    launches: tuple[Launch, ...]
    sources: tuple[Way, ...]  # how each launch is done; none on a device without kernels
    outputs: tuple[OutputView, ...]
    uniforms: tuple[Uniform, ...] = ()
    arena_bytes: int = 0
    intermediate_bytes: int = 0
    checks: tuple[Check, ...] = ()
    check_lines: tuple[int, ...] = ()  # position of a check's line among those of the graph the plan was made from
    donations: Mapping[int, int] = field(default_factory=dict)
    overwritten_inputs: tuple[int, ...] = ()
    starts: int = 0  # how many starts of buffers the caller brings, behind the graph's constants
    notes: tuple[str, ...] = ()  # what `explain` says of the plan as a whole
    measured: bool = False  # whether something in it was decided by trials

    def by(self, sources: Iterable[Way]) -> Plan:
        """The same, done in other ways: a whole one also of one that is made when somebody asks (engine/resize.py)."""
        same = {part.name: getattr(self, part.name) for part in fields(Plan)}
        return Plan(**{**same, "sources": tuple(sources)})

    @property
    def updated(self) -> frozenset[int]:
        """Positions of inputs whose memory it may write to, if the caller lets it."""
        return frozenset([*self.donations, *self.overwritten_inputs])


@dataclass(eq=False)
class Draft:
    """A plan in the making: its launches may still be divided, joined, and given to a library."""

    buffers: list[BufferDecl]
    launches: list[Launch]
    outputs: list[OutputView]
    # ("slot", n, is float): the n-th constant of the graph; ("value", v, is float): a constant of the plan
    uniforms: list[Uniform]
    arena_bytes: int = 0
    intermediate_bytes: int = 0
    checks: list[Check] = field(default_factory=list)  # (op name, user line) of each bounds check
    donations: dict[int, int] = field(default_factory=dict)  # input position -> the output buffer that may lie there
    overwritten_inputs: list[int] = field(default_factory=list)  # positions of inputs that the plan overwrites
    notes: list[str] = field(default_factory=list)
    measured: bool = False

    def copy(self) -> Draft:
        """One that may be changed without the other."""
        return replace(self, buffers=list(self.buffers), launches=list(self.launches), uniforms=list(self.uniforms))

    def finish(
        self,
        sources: Iterable[Way] = (),
        starts: int = 0,
        check_lines: Iterable[int] = (),
    ) -> Plan:
        """The plan, with how each launch is done."""
        return Plan(
            tuple(self.buffers),
            tuple(self.launches),
            tuple(sources),
            tuple(self.outputs),
            tuple(self.uniforms),
            self.arena_bytes,
            self.intermediate_bytes,
            tuple(self.checks),
            tuple(check_lines),
            dict(self.donations),
            tuple(self.overwritten_inputs),
            starts,
            tuple(self.notes),
            self.measured,
        )
