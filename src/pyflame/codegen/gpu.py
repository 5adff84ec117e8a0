"""Kernel -> HIP/CUDA C++ and its launch geometry. One text serves both vendors; pf_gpu.h hides what differs.

Five shapes of text, all made of groups of threads that share a row:
- flat: no reduction. A thread takes 1, 2, 4 or 8 neighbouring elements, 16 bytes where memory allows it.
- turned: no reduction, but some loads run along memory in another loop than the rest, as in a transposition. A block
  takes a square tile, reads it along their loop into LDS, then goes through it along the kernel's.
- lanes: short rows. A row has a power of two of lanes inside one wave; partial results meet by shuffles.
- block: long rows. A row has a block; partial results meet by shuffles, then through LDS.
- tile: reductions across memory. Neighbouring threads take neighbouring rows, and a row has several threads, one block
  row apart, whose partial results meet in LDS.

A kernel that needs a reduction's result before it can go on makes one pass over the row after another. What several
passes need stays in registers where a thread's share of the row is small, else it is read or computed again.
Few long rows are cut into chunks: the first launch leaves partial results in scratch, the second combines them.

Every parameter is one 8-byte word, so a launch is one array of words for both vendors:
    buffers by number, scratch, uniforms, error record, then the phase's `args`.
Extents and strides are arguments. The text depends on the structure, on which accesses may be vectors, on the class of
the row's length and on whether 32-bit positions suffice; geometry and text depend on shape and target alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyflame.codegen.expr import combine, identity, register
from pyflame.codegen.gpu_shape import FLAT_BLOCK, RowShape
from pyflame.codegen.gpu_text import GpuText
from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Kernel

MAX_STEPS = 8  # of a row that is unrolled
MAX_KEPT_WORDS = 64  # registers of 4 bytes in which a thread keeps its share of a row
MAX_UNROLLED = 2048  # instructions
COSTLY = 4  # flops above which a value is kept rather than computed again
SLOT = 8  # bytes of a partial result in scratch


def generate(kernel: Kernel, target: Target, aligned: bool = True) -> GpuSource:
    """The text of a fused kernel without an anchor. `aligned` False: for buffers that miss the alignment asked for."""
    assert kernel.anchor is None, "an anchor's kernel is written by hand"
    assert kernel.depth <= 2, "rows inside rows are not fused for GPUs"
    emitter = _Emitter(kernel, target, aligned)
    if kernel.depth == 1:
        return emitter.turned() if emitter.staged else emitter.flat()
    return emitter.rows()


class _Emitter(GpuText):
    """The five shapes."""

    # --- flat -------------------------------------------------------------------------------------------------------

    def flat(self) -> GpuSource:
        block = max(FLAT_BLOCK, self.target.wave_size)
        self.put(f"const {self.index} t = ({self.index})pf_block() * {block} + pf_thread();")
        self.put(f"if (t >= {self.position(self.items)}) return;")
        self.decode("t", self.order[0])
        self.body([], range(len(self.kernel.stores)), "", "", set())
        self.end("_0", -(-self.items // block), block)
        return self.source()

    def turned(self) -> GpuSource:
        side, block = self.tile_side(), max(FLAT_BLOCK, self.target.wave_size)
        outer = [n for n in self.order[0] if n not in (self.cross, self.lane)]
        tiles = {n: -(-self.extents[n] // side) for n in (self.cross, self.lane)}
        self.put("const int tid = pf_thread();")
        at = "pf_block()"
        for n in (self.lane, self.cross):
            self.put(f"const {self.index} t{n} = {self.divided(at, tiles[n], ('tiles', n))};")
            self.put(f"const {self.index} f{n} = ({at} - t{n} * {self.position(tiles[n], ('tiles', n))}) * {side};")
            at = f"t{n}"
        self.decode(at, outer)
        for v, nbytes in self.staged.items():
            access = self.instrs[v].access
            assert access is not None
            self.lds += nbytes
            self.put(f"PF_SHARED {storage(access.dtype)} l{v}[{side * (side + 1)}];")
        self.tile_loop(side, block, self.cross, self.lane)
        for v in self.staged:
            access = self.instrs[v].access
            assert access is not None
            self.put(f"l{v}[y * {side + 1} + x] = {self.element(access, '')};")
        self.close()
        self.close()
        self.put("pf_barrier();")
        self.tile_loop(side, block, self.lane, self.cross)
        self.body([], range(len(self.kernel.stores)), "", "", set())
        self.close()
        self.close()
        self.end("_0", prod(tiles.values()) * prod(self.extents[n] for n in outer), block)
        return self.source()

    def tile_loop(self, side: int, block: int, along: int, down: int) -> None:
        """Open a loop over a thread's elements of the tile, neighbouring threads along one loop of the kernel."""
        self.put("PF_UNROLL")
        self.open(f"for (int y = tid / {side}; y < {side}; y += {block // side})")
        self.put(f"const int x = tid % {side};")
        self.put(f"const {self.index} i{along} = f{along} + x, i{down} = f{down} + y;")
        limits = [f"i{n} < {self.position(self.extents[n], ('extent', n))}" for n in (along, down)]
        self.open(f"if ({' && '.join(limits)})")

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self) -> GpuSource:
        count = prod(self.extents[n] for n in self.order[0])
        shape = self.shape(count)
        feeding = {s for s, i in zip(self.stage, self.instrs, strict=True) if i.kind == "reduce"}
        passes = sorted(feeding | {self.pass_of(n) for n, scope in enumerate(self.store_scope) if scope == 1})
        chunks = shape.chunks(self.items, self.target.workers) if passes == [1] else 1
        if chunks > 1:
            return self.chunked(shape, count, chunks)
        self.enter(shape, count, "pf_block()")
        steps = -(-self.items // shape.members)
        self.choose_kept(passes, steps)
        size = steps * self.width
        for v in sorted(self.kept):
            self.put(f"{register(self.instrs[v].dtype)} r{v}[{size}];")
        unrolled = bool(self.kept) or (steps <= MAX_STEPS and steps * self.width * len(self.instrs) <= MAX_UNROLLED)
        self.row_values(0)
        made: set[int] = set()
        for number in passes:
            reductions, stores = self.fed_by(number)
            self.accumulators(reductions)
            if unrolled:
                self.put("PF_UNROLL")
                self.open(f"for (int s = 0; s < {steps}; s++)")
                self.put(f"const {self.index} g = s * {shape.members} + member;")
                if steps * shape.members != self.items:
                    self.open(f"if (g < {self.position(self.items, ('items',))})")
            else:
                limit = self.position(self.items, ("items",))
                self.open(f"for ({self.index} g = member; g < {limit}; g += {shape.members})")
            self.decode("g", self.order[1])
            ready = made & self.kept
            self.body(reductions, stores, shape.guard, f"s * {self.width}", ready)
            made |= set(self.cone(self.targets(reductions, stores), ready))
            while self.indent > 1:
                self.close()
            self.meet(reductions, shape)
            self.row_values(number)
        self.row_stores(shape)
        self.end("_0", shape.blocks, shape.block)
        return self.source()

    def shape(self, count: int) -> RowShape:
        """How `count` rows are laid over threads."""
        wave = self.target.wave_size
        if not self.tile:
            return RowShape.along(self.items, count, wave)
        partial = sum(i.dtype.compute.itemsize for i in self.instrs if i.kind == "reduce")
        return RowShape.across(self.items, count, wave, self.target.workers, self.target.lds_bytes // 2 // partial)

    def pass_of(self, store: int) -> int:
        """The pass over the row that makes a store inside of it."""
        return self.stage[self.kernel.stores[store][0]] + 1

    def fed_by(self, number: int) -> tuple[list[int], list[int]]:
        """Reductions and stores of a pass."""
        reductions = [v for v, i in enumerate(self.instrs) if i.kind == "reduce" and self.stage[v] == number]
        stores = [n for n, s in enumerate(self.store_scope) if s == 1 and self.pass_of(n) == number]
        return reductions, stores

    def choose_kept(self, passes: Sequence[int], steps: int) -> None:
        """Loads and costly values that a later pass needs again, if they all fit."""
        first: dict[int, int] = {}
        kept: set[int] = set()
        for number in passes:
            reductions, stores = self.fed_by(number)
            targets = self.targets(reductions, stores)
            costly = {v for v in first if self.costly(v)}
            values = self.cone(targets, costly)
            reached = {a for v in values for a in self.instrs[v].args} | set(targets)
            kept |= costly & reached
            kept |= {v for v in values if v in first and self.instrs[v].kind in ("load", "gather")}
            for v in self.cone(targets):
                first.setdefault(v, number)
        words = sum(max(4, self.instrs[v].dtype.compute.itemsize) // 4 for v in kept) * steps * self.width
        self.kept = kept if words <= MAX_KEPT_WORDS and steps <= MAX_STEPS else set()

    def costly(self, v: int) -> bool:
        op = self.instrs[v].op
        return self.instrs[v].kind == "op" and op is not None and op.cost > COSTLY

    def enter(self, shape: RowShape, count: int, block: str) -> None:
        """Which row a thread works on and as which of its members."""
        self.put("const int tid = pf_thread();")
        row, member = shape.place()
        self.put(f"const int member = {member};")
        if shape.guard:
            limit = self.position(count, ("rows",))
            self.put(f"const {self.index} own = ({self.index}){block} * {shape.rows} + {row};")
            # A thread without a row works on the last one, so that all meet at barriers, but stores nothing.
            self.put(f"const int live = own < {limit};")
            self.put(f"const {self.index} row = live ? own : {limit} - 1;")
        else:
            self.put(f"const {self.index} row = ({self.index}){block};")
        self.decode("row", self.order[0])

    def row_values(self, stage: int) -> None:
        """Values of a row that are known after `stage` passes."""
        for v, instr in enumerate(self.instrs):
            if instr.scope == 0 and instr.kind != "reduce" and self.stage[v] == stage:
                self.statement(v)

    def row_stores(self, shape: RowShape) -> None:
        stores = [n for n, scope in enumerate(self.store_scope) if scope == 0]
        if stores:
            self.open(shape.first)
            for n in stores:
                self.store(n)
            self.close()

    def accumulators(self, reductions: Sequence[int]) -> None:
        for v in reductions:
            kind, start = register(self.instrs[v].dtype), identity(self.instrs[v])
            if self.width > 1:
                self.put(f"{kind} c{v}[{self.width}];")
                self.put("PF_UNROLL")
                self.put(f"for (int k = 0; k < {self.width}; k++) c{v}[k] = {start};")
            else:
                self.put(f"{kind} c{v} = {start};")

    def meet(self, reductions: Sequence[int], shape: RowShape, width: int | None = None) -> None:
        """Combine what the members of a row have; each of them gets the result."""
        width = self.width if width is None else width
        for v in reductions:
            instr = self.instrs[v]
            self.put(f"{register(instr.dtype)} v{v} = c{v}{'[0]' if width > 1 else ''};")
            if width > 1:
                self.put("PF_UNROLL")
                self.put(f"for (int k = 1; k < {width}; k++) v{v} = {combine(instr, f'v{v}', f'c{v}[k]')};")
            self.butterfly(v, min(shape.members, self.target.wave_size) if shape.kind != "tile" else 1)
        if shape.kind == "lanes" or shape.members == 1 or not reductions:
            return
        slots = shape.block if shape.kind == "tile" else shape.block // self.target.wave_size
        for v in reductions:
            kind = register(self.instrs[v].dtype)
            self.lds += slots * self.instrs[v].dtype.compute.itemsize
            self.put(f"PF_SHARED {kind} l{v}[{slots}];")
            if shape.kind == "tile":
                self.put(f"l{v}[tid] = v{v};")
            else:
                self.put(f"if (tid % PF_WAVE == 0) l{v}[tid / PF_WAVE] = v{v};")
        self.put("pf_barrier();")
        for v in reductions:
            if shape.kind == "tile":
                self.put(f"v{v} = l{v}[tid % {shape.rows}];")
                step = combine(self.instrs[v], f"v{v}", f"l{v}[tid % {shape.rows} + y * {shape.rows}]")
                self.put(f"for (int y = 1; y < {shape.members}; y++) v{v} = {step};")
            else:
                self.put(f"v{v} = l{v}[tid % {slots}];")
                self.butterfly(v, slots)

    def butterfly(self, v: int, lanes: int) -> None:
        """Combine over neighbouring lanes, a power of two of them."""
        if lanes > 1:
            step = combine(self.instrs[v], f"v{v}", f"pf_shuffle_xor(v{v}, w)")
            self.put("PF_UNROLL")
            self.put(f"for (int w = 1; w < {lanes}; w *= 2) v{v} = {step};")

    # --- few long rows ----------------------------------------------------------------------------------------------

    def chunked(self, shape: RowShape, count: int, chunks: int) -> GpuSource:
        per = -(-self.items // chunks)
        chunks = -(-self.items // per)
        reductions, stores = self.fed_by(1)
        self.put(f"const {self.index} piece = {self.divided('pf_block()', chunks, ('chunks',))};")
        self.put(f"const {self.index} chunk = pf_block() - piece * {self.position(chunks, ('chunks',))};")
        self.enter(shape, count, "piece")
        self.row_values(0)
        self.accumulators(reductions)
        limit, length = self.position(self.items), self.position(per)
        self.put(f"const {self.index} from = chunk * {length}, next = from + {length};")
        self.put(f"const {self.index} to = next < {limit} ? next : {limit};")
        self.open(f"for ({self.index} g = from + member; g < to; g += {shape.members})")
        self.decode("g", self.order[1])
        self.body(reductions, stores, shape.guard, "", set())
        self.close()
        self.meet(reductions, shape)
        self.open(shape.first)
        for slot, v in enumerate(reductions):
            self.put(f"pf_put(scratch, {self.partial(slot, 'chunk', chunks, count)}, v{v});")
        self.close()
        self.end("_0", shape.blocks * chunks, shape.block)
        self.finish(shape.finish(count, chunks, self.target.wave_size), count, chunks, reductions)
        return self.source(len(reductions) * chunks * count * SLOT)

    def partial(self, slot: int, chunk: str, chunks: int, count: int) -> str:
        """Number of a partial result in scratch: neighbouring rows beside each other."""
        return f"({slot} * {self.arg(chunks, ('chunks',))} + {chunk}) * {self.arg(count, ('rows',))} + row"

    def finish(self, shape: RowShape, count: int, chunks: int, reductions: Sequence[int]) -> None:
        """The second launch: partial results to row values."""
        self.enter(shape, count, "pf_block()")
        self.row_values(0)
        for v in reductions:
            self.put(f"{register(self.instrs[v].dtype)} c{v} = {identity(self.instrs[v])};")
        limit = self.position(chunks, ("chunks",))
        self.open(f"for ({self.index} chunk = member; chunk < {limit}; chunk += {shape.members})")
        for slot, v in enumerate(reductions):
            kind = register(self.instrs[v].dtype)
            got = f"pf_get<{kind}>(scratch, {self.partial(slot, 'chunk', chunks, count)})"
            self.put(f"c{v} = {combine(self.instrs[v], f'c{v}', got)};")
        self.close()
        self.meet(reductions, shape, width=1)
        self.row_values(1)
        self.row_stores(shape)
        self.end("_1", shape.blocks, shape.block)
