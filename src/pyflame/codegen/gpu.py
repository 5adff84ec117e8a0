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
The sum of exp(x - max) is made in one pass with the maximum where x would have to be read twice.
Few long rows are cut into chunks: a launch leaves partial results in scratch, the next one combines them.

Every kernel argument takes 8 bytes, so those of a launch are one array for both vendors:
    buffers by number, scratch, uniforms, error record, then the phase's `args`.
Extents and strides are arguments. The text depends on the structure, on which accesses may be vectors, on the class of
the row's length and on whether 32-bit positions suffice; geometry and text depend on shape and target alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyflame.codegen.expr import identity, register
from pyflame.codegen.gpu_shape import COLUMN_BLOCK, FLAT_BLOCK, MAX_BLOCK, RowShape, lds_room
from pyflame.codegen.gpu_text import GpuText
from pyflame.codegen.reuse import reuse
from pyflame.core.device import Target
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Kernel

MAX_STEPS = 8  # of a row that is unrolled
KEPT_WORDS = 1 << 14  # registers of 4 bytes in which a block keeps a row: a quarter of what a compute unit has
MAX_KEPT_WORDS = 64  # the same of a thread
MAX_UNROLLED = 2048  # instructions
SLOT = 8  # bytes of a partial result in scratch


def generate(kernel: Kernel, target: Target, aligned: bool = True) -> GpuSource:
    """The text of a fused kernel without an anchor. `aligned` False: for buffers that miss the alignment asked for."""
    assert kernel.anchor is None, "an anchor's kernel is written by hand"
    assert kernel.depth <= 2, "rows inside rows are not fused for GPUs"
    return reuse(_generate, kernel, target, aligned)


def _generate(kernel: Kernel, target: Target, aligned: bool) -> GpuSource:
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
        side, block = self.side, max(FLAT_BLOCK, self.target.wave_size)
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
            self.put(f"PF_SHARED {storage(access.dtype)} l{v}[{nbytes // access.dtype.itemsize}];")
        self.tile_loop(block, self.cross, self.lane, self.cross_width)
        for v in self.staged:
            self.stage_in(v)
        self.close()
        self.close()
        self.put("pf_barrier();")
        self.tile_loop(block, self.lane, self.cross, self.width)
        self.body([], range(len(self.kernel.stores)), "", "", set())
        self.close()
        self.close()
        self.end("_0", prod(tiles.values()) * prod(self.extents[n] for n in outer), block)
        return self.source()

    def tile_loop(self, block: int, along: int, down: int, width: int) -> None:
        """Open a loop over a thread's elements of the tile, neighbouring threads along one loop of the kernel."""
        row = self.side // width  # threads
        self.put("PF_UNROLL")
        self.open(f"for (int y = tid / {row}; y < {self.side}; y += {block // row})")
        self.put(f"const int x = tid % {row}{f' * {width}' if width > 1 else ''};")
        self.put(f"const {self.index} i{along} = f{along} + x, i{down} = f{down} + y;")
        limits = [f"i{n} < {self.position(self.extents[n], ('extent', n))}" for n in (along, down)]
        self.open(f"if ({' && '.join(limits)})")

    def stage_in(self, v: int) -> None:
        """Put what a thread reads of a load into the tile."""
        access, width = self.instrs[v].access, self.cross_width
        assert access is not None
        to = f"l{v}[y * {self.pitch(access.dtype)} + x"
        if width == 1:
            self.put(f"{to}] = {self.element(access, '')};")
            return
        kind = f"pf_vector<{storage(access.dtype)}, {width}>"
        self.put(f"const {kind} q{v} = *(const {kind} *)(b{access.buffer} + {self.offset(access)});")
        self.put("PF_UNROLL")
        self.put(f"for (int k = 0; k < {width}; k++) {to} + k] = q{v}.at[k];")

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self) -> GpuSource:
        count = prod(self.extents[n] for n in self.order[0]) // self.rows_along
        shape = self.shape(count)
        passes = self.passes()
        steps = self.steps(shape)
        if len(passes) > 1:
            self.choose_kept(passes, steps, shape.block)
        if not self.kept:
            shape = shape.streaming()
            steps = self.steps(shape)
            self.online = self.exponential_sums()
            self.stage = self.stages()
            passes = self.passes()
            chunks = shape.chunks(self.items, self.target.workers)
            if chunks > 1 and (len(passes) == 1 or steps > MAX_STEPS):
                return self.chunked(shape, count, passes, chunks)
        self.enter(shape, count, "pf_block()")
        self.kept_arrays(steps)
        self.row_values(0)
        made: set[int] = set()
        for number in passes:
            made |= self.row_pass(number, shape, steps, made)
        if self.rows_along == 1:
            self.row_stores(shape.first)
        self.end("_0", shape.blocks, shape.block)
        return self.source()

    def steps(self, shape: RowShape) -> int:
        """Vectors of a row for each thread. Where some have fewer, rows of other lengths shall find the same text."""
        steps = -(-self.items // shape.members)
        return steps if steps <= 2 or steps * shape.members == self.items else power(steps)

    def kept_arrays(self, steps: int) -> None:
        """The registers in which a thread keeps its share of a row."""
        for v in sorted(self.kept):
            instr = self.instrs[v]
            if v in self.raw:
                assert instr.access is not None
                self.put(f"pf_vector<{storage(instr.access.dtype)}, {self.width}> r{v}[{steps}];")
            else:
                self.put(f"{register(instr.dtype)} r{v}[{steps * self.width}];")

    def row_pass(self, number: int, shape: RowShape, steps: int, made: set[int]) -> set[int]:
        """A pass over the row; gives the values it computes. `made`: those of the passes before."""
        reductions, stores = self.fed_by(number)
        self.accumulators(reductions)
        self.open_row(shape, steps)
        self.decode("g", self.order[1])
        ready = made & self.kept
        self.body(reductions, stores, shape.guard, "s", ready)
        while self.indent > 1:
            self.close()
        if self.rows_along > 1:
            self.open_columns(reductions, shape)
            self.row_values(number, "k")
            self.row_stores("if (live)", "k")
            self.close()
        else:
            self.meet(reductions, shape)
            self.row_values(number)
        return set(self.cone(self.targets(reductions, stores), ready))

    def open_row(self, shape: RowShape, steps: int) -> None:
        """Open the loop over a thread's vectors of the row, unrolled where they are few."""
        if self.kept or (steps <= MAX_STEPS and steps * self.width * len(self.instrs) <= MAX_UNROLLED):
            self.put("PF_UNROLL")
            self.open(f"for (int s = 0; s < {steps}; s++)")
            self.put(f"const {self.index} g = s * {shape.members} + member;")
            if steps * shape.members != self.items:
                self.open(f"if (g < {self.position(self.items, ('items',))})")
        else:
            limit = self.position(self.items, ("items",))
            self.open(f"for ({self.index} g = member; g < {limit}; g += {shape.members})")

    def shape(self, count: int) -> RowShape:
        """How `count` rows are laid over threads."""
        wave = self.target.wave_size
        if not self.tile:
            return RowShape.along(self.items, count, wave)
        partial = sum(i.dtype.compute.itemsize for i in self.instrs if i.kind == "reduce") * self.rows_along
        most = min(lds_room(self.target) // partial, COLUMN_BLOCK if self.rows_along > 1 else MAX_BLOCK)
        return RowShape.across(self.items, count, wave, self.target.workers, most)

    def passes(self) -> list[int]:
        """The passes over the row that there must be."""
        feeding = {s for s, i in zip(self.stage, self.instrs, strict=True) if i.kind == "reduce"}
        return sorted(feeding | {self.pass_of(n) for n, scope in enumerate(self.store_scope) if scope == 1})

    def pass_of(self, store: int) -> int:
        """The pass over the row that makes a store inside of it."""
        return self.stage[self.kernel.stores[store][0]] + 1

    def fed_by(self, number: int) -> tuple[list[int], list[int]]:
        """Reductions and stores of a pass."""
        reductions = [v for v, i in enumerate(self.instrs) if i.kind == "reduce" and self.stage[v] == number]
        stores = [n for n, s in enumerate(self.store_scope) if s == 1 and self.pass_of(n) == number]
        return reductions, stores

    def choose_kept(self, passes: Sequence[int], steps: int, block: int) -> None:
        """What later passes need of earlier ones, if it fits: values as late as they are known, else what was read."""
        if steps > MAX_STEPS:
            return
        for raw in (False, True):
            kept = self.needed_later(passes, raw)
            small = {v for v in kept if self.packed(v)}
            words = {v: self.width * self.itemsize(v, v in small) / 4 for v in kept}
            most = max(sum(words[v] for v, (made, last) in kept.items() if made <= n < last) for n in passes)
            if kept and most * steps <= min(MAX_KEPT_WORDS, KEPT_WORDS // block):
                self.kept, self.raw = set(kept), small
                return

    def needed_later(self, passes: Sequence[int], only_loads: bool) -> dict[int, tuple[int, int]]:
        """Values that a pass needs and an earlier one has, with the first pass and the last one that use them."""
        first: dict[int, int] = {}
        out: dict[int, tuple[int, int]] = {}
        for number in passes:
            reductions, stores = self.fed_by(number)
            targets = self.targets(reductions, stores)
            known = {v for v in first if self.is_read(v) or not (only_loads or self.is_widened(v))}
            used = {a for v in self.cone(targets, known) for a in self.instrs[v].args} | set(targets)
            out |= {v: (first[v], number) for v in known & used}
            for v in self.cone(targets):
                first.setdefault(v, number)
        return out

    def is_read(self, v: int) -> bool:
        return self.instrs[v].kind in ("load", "gather")

    def is_widened(self, v: int) -> bool:
        """Whether a value is another one in a wider type: then that one is kept."""
        instr = self.instrs[v]
        return self.op_name(v) == "cast" and self.is_read(instr.args[0]) and instr.dtype.name == "float32"

    def packed(self, v: int) -> bool:
        """Whether a value takes less room as it was read."""
        instr = self.instrs[v]
        vector = instr.kind == "load" and instr.access is not None and self.is_vector(instr.access, self.width)
        return vector and instr.dtype.itemsize < 4 and instr.dtype.itemsize * self.width >= 4

    def itemsize(self, v: int, packed: bool) -> int:
        """Bytes of a register that an element of a kept value takes."""
        return self.instrs[v].dtype.itemsize if packed else max(4, self.instrs[v].dtype.compute.itemsize)

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

    def row_values(self, stage: int, k: str = "") -> None:
        """Values of a row that are known after `stage` passes; `k`: of that one of a vector of rows."""
        self.by_element = bool(k)
        for v, instr in enumerate(self.instrs):
            mine = self.stage[v] == stage if not self.is_beside(v) else bool(k)
            if instr.scope == 0 and instr.kind != "reduce" and mine:
                self.statement(v, k)
        self.by_element = False

    def row_stores(self, guard: str, k: str = "") -> None:
        stores = [n for n, scope in enumerate(self.store_scope) if scope == 0]
        if stores:
            self.open(guard)
            for n in stores:
                self.store(n, k)
            self.close()

    def open_columns(self, reductions: Sequence[int], shape: RowShape) -> None:
        """Open a loop over the rows of a block's vectors, one after the other in threads that are free for it.

        Inside, results of the row are known.
        """
        for v in reductions:
            self.lds += shape.block * self.width * self.instrs[v].dtype.compute.itemsize
            self.put(f"PF_SHARED {register(self.instrs[v].dtype)} l{v}[{shape.block * self.width}];")
            self.put("PF_UNROLL")
            self.put(f"for (int k = 0; k < {self.width}; k++) l{v}[k * {shape.block} + tid] = c{v}[k];")
        self.put("pf_barrier();")
        self.open(f"for (int k = member; k < {self.width}; k += {shape.members})")
        for v in reductions:
            at = f"l{v}[k * {shape.block} + tid % {shape.rows}"
            self.put(f"{register(self.instrs[v].dtype)} v{v} = {at}];")
            step = self.joined((v,), [f"v{v}"], [f"{at} + y * {shape.rows}]"])
            self.put(f"for (int y = 1; y < {shape.members}; y++) {step}")

    def accumulators(self, reductions: Sequence[int]) -> None:
        for v in reductions:
            kind, start = register(self.instrs[v].dtype), self.start(v)
            if self.width > 1:
                self.put(f"{kind} c{v}[{self.width}];")
                self.put("PF_UNROLL")
                self.put(f"for (int k = 0; k < {self.width}; k++) c{v}[k] = {start};")
            else:
                self.put(f"{kind} c{v} = {start};")

    def start(self, v: int) -> str:
        """What a reduction begins with. Beside a sum of exp(x - m), m begins with a number: differences with it are."""
        return "-3.402823466e+38f" if v in self.online.values() else identity(self.instrs[v])

    def meet(self, reductions: Sequence[int], shape: RowShape, width: int = 0, partial: bool = False) -> None:
        """Combine what the members of a row have; each of them gets the result. `partial`: of a part of the row."""
        width = width or self.width
        teams = self.teams(reductions)
        for team in teams:
            for v in team:
                self.put(f"{register(self.instrs[v].dtype)} v{v} = c{v}{'[0]' if width > 1 else ''};")
            if width > 1:
                self.put("PF_UNROLL")
                step = self.joined(team, [f"v{v}" for v in team], [f"c{v}[k]" for v in team])
                self.put(f"for (int k = 1; k < {width}; k++) {step}")
            self.butterfly(team, min(shape.members, self.target.wave_size) if shape.kind != "tile" else 1)
        if shape.kind != "lanes" and shape.members > 1 and reductions:
            self.meet_in_lds(reductions, shape)
        for team in teams:
            if len(team) == 2 and not partial:
                self.put(f"pf_online_end(v{team[0]}, v{team[1]});")

    def meet_in_lds(self, reductions: Sequence[int], shape: RowShape) -> None:
        """Combine what the waves of a row have, or its threads where they are in different waves."""
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
        for team in self.teams(reductions):
            names = [f"v{v}" for v in team]
            for v in team:
                self.put(f"v{v} = l{v}[tid % {shape.rows if shape.kind == 'tile' else slots}];")
            if shape.kind == "tile":
                step = self.joined(team, names, [f"l{v}[tid % {shape.rows} + y * {shape.rows}]" for v in team])
                self.put(f"for (int y = 1; y < {shape.members}; y++) {step}")
            else:
                self.butterfly(team, slots)

    def butterfly(self, team: tuple[int, ...], lanes: int) -> None:
        """Combine over neighbouring lanes, a power of two of them."""
        if lanes > 1:
            step = self.joined(team, [f"v{v}" for v in team], [f"pf_shuffle_xor(v{v}, w)" for v in team])
            self.put("PF_UNROLL")
            self.put(f"for (int w = 1; w < {lanes}; w *= 2) {step}")

    # --- few long rows ----------------------------------------------------------------------------------------------

    def chunked(self, shape: RowShape, count: int, passes: Sequence[int], chunks: int) -> GpuSource:
        """A launch for each pass, and one for what is stored of a row."""
        per = -(-self.items // chunks)
        chunks = -(-self.items // per)
        rows = count * self.rows_along
        done: list[int] = []  # reductions whose partial results are in scratch
        for number in passes:
            reductions, stores = self.fed_by(number)
            self.put(f"const {self.index} piece = {self.divided('pf_block()', chunks, ('chunks',))};")
            self.put(f"const {self.index} chunk = pf_block() - piece * {self.position(chunks, ('chunks',))};")
            self.enter(shape, count, "piece")
            self.recall(shape, count, chunks, done, number - 1)
            self.accumulators(reductions)
            self.open_chunk(shape, per)
            self.decode("g", self.order[1])
            self.body(reductions, stores, shape.guard, "", set())
            self.close()
            if reductions:
                self.put_partial(reductions, shape, len(done), chunks, rows)
                done += reductions
            self.end(f"_{len(self.phases)}", shape.blocks * chunks, shape.block)
        if 0 in self.store_scope:
            self.width, self.lane = (1, -1) if self.rows_along > 1 else (self.width, self.lane)
            last = shape.finish(rows, chunks, self.target.wave_size)
            self.enter(last, rows, "pf_block()")
            self.recall(last, rows, chunks, done, passes[-1])
            self.row_stores(last.first)
            self.end(f"_{len(self.phases)}", last.blocks, last.block)
        return self.source(len(done) * chunks * rows * SLOT)

    def open_chunk(self, shape: RowShape, per: int) -> None:
        """Open the loop over a thread's share of a chunk of `per` vectors."""
        limit, length = self.position(self.items), self.position(per)
        self.put(f"const {self.index} from = chunk * {length}, next = from + {length};")
        self.put(f"const {self.index} to = next < {limit} ? next : {limit};")
        self.open(f"for ({self.index} g = from + member; g < to; g += {shape.members})")

    def put_partial(self, reductions: Sequence[int], shape: RowShape, first: int, chunks: int, rows: int) -> None:
        """Leave a chunk's results in scratch, in slots from `first` on."""
        row = "row"
        if self.rows_along > 1:
            self.open_columns(reductions, shape)
            self.open("if (live)")
            row = f"row * {self.width} + k"
        else:
            self.meet(reductions, shape, partial=True)
            self.open(shape.first)
        for slot, v in enumerate(reductions, first):
            self.put(f"pf_put(scratch, {self.partial(slot, 'chunk', row, chunks, rows)}, v{v});")
        while self.indent > 1:
            self.close()

    def partial(self, slot: int, chunk: str, row: str, chunks: int, rows: int) -> str:
        """Number of a partial result in scratch: neighbouring rows beside each other."""
        return f"({slot} * {self.arg(chunks, ('chunks',))} + {chunk}) * {self.arg(rows, ('all rows',))} + {row}"

    def recall(self, shape: RowShape, count: int, chunks: int, done: Sequence[int], stage: int) -> None:
        """Results of the passes so far from the partial ones in scratch, and the row's values up to `stage`."""
        self.row_values(0)
        for number in range(1, stage + 1):
            reductions = [v for v in done if self.stage[v] == number]
            for v in reductions:
                self.put(f"{register(self.instrs[v].dtype)} c{v} = {self.start(v)};")
            if reductions:
                limit = self.position(chunks, ("chunks",))
                self.open(f"for ({self.index} other = member; other < {limit}; other += {shape.members})")
                for team in self.teams(reductions):
                    places = {v: self.partial(done.index(v), "other", "row", chunks, count) for v in team}
                    given = [f"pf_get<{register(self.instrs[v].dtype)}>(scratch, {at})" for v, at in places.items()]
                    self.put(self.joined(team, [f"c{v}" for v in team], given))
                self.close()
                self.meet(reductions, shape, width=1)
            self.row_values(number)
