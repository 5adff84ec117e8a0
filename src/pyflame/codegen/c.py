"""Kernel -> C for one CPU core; the runner spreads the parallel index over threads.

Three shapes of text:
- flat: no reduction. Rows of the outer loops, cut into blocks; the innermost loop is left to the vectoriser.
- row: reductions run along memory. Each keeps LANES partial results, so the compiler need not reassociate.
- tile: reductions run across memory. The innermost loop takes TILE neighbouring rows at once.

A reduction with too few rows for the threads is cut into chunks (phase 0 leaves partial results in scratch, phase 1
combines them); the number of chunks depends on the shape alone, so results do not depend on the number of threads.
Extents and strides are arguments: the text depends on the structure only.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from pyflame.codegen.c_values import Values
from pyflame.codegen.expr import combine, identity, register, stored
from pyflame.codegen.loops import join_columns, prepare
from pyflame.codegen.reuse import reuse
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Access, Kernel, Phase, Source

BLOCK = 16384  # elements of the innermost loop that one iteration of a flat kernel takes
TILE_WIDTH, TILE_HEIGHT = 256, 16  # of a flat kernel whose accesses run in different directions
GRAIN = 32768  # elements worth waking a thread for
MAX_CHUNKS = 64
MAX_CACHED_ROW = 65536
COSTLY = 4


def generate(kernel: Kernel) -> Source:
    """The C text of a fused kernel without an anchor."""
    return reuse(_generate, kernel)


def epilogue(
    kernel: Kernel, layout: tuple[int, int], accumulator: str, first_arg: int, scratch: int
) -> tuple[str, tuple[int, ...]]:
    """`PF_KEY_epilogue(batch, i, j, n, acc)` of an anchored kernel, and its arguments, which start at arg[first_arg].

    layout: how many loops `batch` and `i` stand for; `j` stands for the rest. Buffers from `scratch` on move up by one.
    """
    return reuse(_epilogue, kernel, layout, accumulator, first_arg, scratch)


def _generate(kernel: Kernel) -> Source:
    return _Emitter(prepare(kernel)).run()


def _epilogue(
    kernel: Kernel, layout: tuple[int, int], accumulator: str, first_arg: int, scratch: int
) -> tuple[str, tuple[int, ...]]:
    return _Emitter(join_columns(kernel, sum(layout)), first_arg, scratch).epilogue(layout, accumulator)


class _Emitter(Values):
    def __init__(self, kernel: Kernel, first_arg: int = 0, scratch: int | None = None) -> None:
        super().__init__(kernel, first_arg, scratch)
        self.cached: dict[int, int] = {}  # value -> number of its row in scratch, or -1 - a store whose row it uses
        self.filled: set[int] = set()  # cached values whose row has been written
        self.passes = 0  # loops over a row so far
        self.chunks = 1
        self.chunk_loop = -1
        scopes = kernel.loop_scope()
        self.store_scope = [
            max([scopes[n] for n, s in enumerate(a.strides) if s] + [kernel.instrs[v].scope]) for v, a in kernel.stores
        ]

    # --- the three shapes -------------------------------------------------------------------------------------------

    def run(self) -> Source:
        if self.last == 0:
            return self.flat()
        return self.rows()

    def flat(self) -> Source:
        loops = [n for n in self.loops_of[0] if n != self.simd]
        across = self.crossing_loop(loops)
        block = BLOCK if across is None else TILE_WIDTH
        inner = self.extents[self.simd]
        blocks = max(1, -(-inner // block))
        self.open("PF_KERNEL(PF_KEY_0)")
        self.invariants()
        self.put(f"const int64_t extent = {self.arg(inner)}, blocks = {self.arg(blocks)};")
        if across is None:
            self.flat_loop(loops, block)
        else:
            loops.remove(across)
            self.crossing_tiles(loops, across, block)
        strips = 1 if across is None else -(-self.extents[across] // TILE_HEIGHT)
        rows = prod(self.extents[n] for n in loops)
        elements = min(inner, block) * (1 if across is None else min(TILE_HEIGHT, self.extents[across]))
        return self.source([Phase("_0", rows * strips * blocks, max(1, GRAIN // max(1, elements)))])

    def flat_loop(self, loops: list[int], block: int) -> None:
        """Blocks of rows, one after the other. Short rows cost less than a division for each loop would."""
        self.put("int64_t row = pf_div(begin, blocks), piece = begin - row * blocks;")
        self.decode("row", loops, kept=True)
        self.open("for (int64_t task = begin; task < end; task++)")
        self.put(f"const int64_t first = piece * {block}, rest = extent - first;")
        self.put(f"const int64_t count = rest < {block} ? rest : {block};")
        self.innermost([], list(range(len(self.kernel.stores))), "first", "count")
        self.open("if (++piece == blocks)")
        self.put("piece = 0;")
        self.advance(loops)
        self.close()
        self.close()
        self.close()

    def crossing_tiles(self, loops: list[int], across: int, block: int) -> None:
        """Tiles of an inner and a crossing loop: neighbours in memory are used while their cache line is at hand."""
        strips = -(-self.extents[across] // TILE_HEIGHT)
        self.put(f"const int64_t strips = {self.arg(strips)}, height = {self.arg(self.extents[across])};")
        self.open("for (int64_t task = begin; task < end; task++)")
        self.put(f"const int64_t row = pf_div(task, blocks), first = (task - row * blocks) * {block};")
        self.put(f"const int64_t rest = extent - first, count = rest < {block} ? rest : {block};")
        self.put(f"const int64_t strip = pf_div(row, strips), top = (row - strip * strips) * {TILE_HEIGHT};")
        self.put(f"const int64_t below = height - top, bottom = top + (below < {TILE_HEIGHT} ? below : {TILE_HEIGHT});")
        self.decode("strip", loops)
        self.open(f"for (int64_t i{across} = top; i{across} < bottom; i{across}++)")
        self.innermost([], list(range(len(self.kernel.stores))), "first", "count")
        self.close()
        self.close()
        self.close()

    def epilogue(self, layout: tuple[int, int], accumulator: str) -> tuple[str, tuple[int, ...]]:
        loops = self.loops_of[0]
        batch, row = loops[: layout[0]], loops[layout[0] : sum(layout)]
        columns = loops[sum(layout) :]
        self.open(
            "void PF_KEY_epilogue(char *const *buf, const int64_t *arg, const pf_word *uni, "
            f"int64_t batch, int64_t i, int64_t j, int64_t n, const {accumulator} *acc)"
        )
        self.invariants()
        self.decode("batch", batch)
        self.decode("i", row)
        everything = list(range(len(self.kernel.stores)))
        if len(columns) == 1:
            self.innermost([], everything, "j", "n")
        else:
            # The columns do not run along memory as one loop: take the stretches of the last one.
            last = columns[-1]
            self.open("for (int64_t column = 0, run; column < n; column += run, acc += run)")
            self.decode("j + column", columns)
            self.put(f"run = {self.arg(self.extents[last])} - i{last};")
            self.put("if (run > n - column) run = n - column;")
            self.innermost([], everything, f"i{last}", "run")
            self.close()
        self.close()
        return "\n".join(self.lines) + "\n", tuple(self.args)

    def rows(self) -> Source:
        outer = self.loops_of[0]
        rows = prod(self.extents[n] for n in outer)
        tiles = 1
        if self.tile:
            width = self.extents[outer[-1]]
            tiles = -(-width // self.lanes)
            rows = rows // max(width, 1) * tiles
        per_row = prod(self.extents[n] for d in range(1, self.last + 1) for n in self.loops_of[d]) * (
            self.lanes if self.tile else 1
        )
        levels = self.levels(0, self.row_targets())
        top = max((levels[i] for i in levels), default=0)
        if top == 1 and per_row > 2 * GRAIN and rows < 16 and not self.late_stores():
            self.chunk_loop = self.loops_of[1][0]
            self.chunks = max(
                1, min(self.extents[self.chunk_loop], MAX_CHUNKS, rows * per_row // GRAIN // max(rows, 1))
            )
        if not self.tile and self.last == 1:
            self.choose_cached()
        reductions = [i for i, instr in enumerate(self.kernel.instrs) if instr.kind == "reduce" and instr.scope == 0]
        if self.chunks > 1:
            return self.chunked(outer, rows, tiles, per_row, reductions)
        self.open("PF_KERNEL(PF_KEY_0)")
        self.invariants()
        self.row_loop(outer, tiles, "task")
        self.define(self.row_targets(), 0)
        self.finish_stores()
        self.close()
        self.close()
        return self.source([Phase("_0", rows, max(1, GRAIN // max(1, per_row)))])

    def chunked(self, outer: list[int], rows: int, tiles: int, per_row: int, reductions: list[int]) -> Source:
        width = self.lanes if self.tile else 1
        slots = len(reductions) * width
        scratch = len(self.buffers())
        self.open("PF_KERNEL(PF_KEY_0)")
        self.invariants()
        self.put(f"const int64_t chunks = {self.arg(self.chunks)}, split = {self.arg(self.extents[self.chunk_loop])};")
        self.row_loop(outer, tiles, "task / chunks")
        self.put("const int64_t from = task % chunks * split / chunks, to = (task % chunks + 1) * split / chunks;")
        kept = set(self.defined)
        inside = [v for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True) if scope > 0]
        self.define_outside([*(self.kernel.instrs[i].args[0] for i in reductions), *inside], 0)
        self.reduce_loop(reductions, 0, chunked=True)
        for k, i in enumerate(reductions):
            kind = register(self.kernel.instrs[i].dtype)
            place = f"(({kind} *)(((double *)buf[{scratch}]) + task * {slots} + {k * width}))"
            if self.tile:
                self.put(f"for (int64_t l = 0; l < lanes; l++) {place}[l] = v{i}[l];")
            else:
                self.put(f"*{place} = v{i};")
        self.close()
        self.close()
        self.defined = kept
        self.open("PF_KERNEL(PF_KEY_1)")
        self.defined = set()
        self.invariants()
        self.put(f"const int64_t chunks = {self.arg(self.chunks)};")
        self.row_loop(outer, tiles, "task")
        self.combine_chunks(reductions, scratch, width)
        self.define(self.row_targets(), 0)
        self.finish_stores()
        self.close()
        self.close()
        phases = [Phase("_0", rows * self.chunks, 1), Phase("_1", rows, max(1, GRAIN // self.chunks))]
        return self.source(phases, scratch_bytes=rows * self.chunks * slots * 8)

    def combine_chunks(self, reductions: list[int], scratch: int, width: int) -> None:
        """Reductions of whole rows from those of their chunks."""
        slots = len(reductions) * width
        for k, i in enumerate(reductions):
            instr = self.kernel.instrs[i]
            kind = register(instr.dtype)
            lane = "l" if self.tile else "0"
            place = f"(({kind} *)((double *)buf[{scratch}] + (task * chunks + c) * {slots} + {k * width}))[{lane}]"
            if self.tile:
                self.put(f"{kind} v{i}[{self.lanes}];")
                self.put(f"for (int64_t l = 0; l < lanes; l++) v{i}[l] = {identity(instr)};")
                self.open("for (int64_t c = 0; c < chunks; c++)")
                self.put(f"for (int64_t l = 0; l < lanes; l++) v{i}[l] = {combine(instr, f'v{i}[l]', place)};")
                self.close()
            else:
                self.put(f"{kind} v{i} = {identity(instr)};")
                self.put(f"for (int64_t c = 0; c < chunks; c++) v{i} = {combine(instr, f'v{i}', place)};")
            self.defined.add(i)

    def source(self, phases: list[Phase], scratch_bytes: int = 0) -> Source:
        row = prod(self.extents[n] for n in self.loops_of[self.last]) if self.cached else 0
        return Source(
            "\n".join(self.lines) + "\n", tuple(phases), tuple(self.args), row * 8 * self.scratch_rows(), scratch_bytes
        )

    def row_loop(self, outer: list[int], tiles: int, row: str) -> None:
        """The loop over rows or tiles of rows, with the outer loop variables decoded."""
        if self.tile:
            self.put(f"const int64_t tiles = {self.arg(tiles)}, width = {self.arg(self.extents[outer[-1]])};")
        self.open("for (int64_t task = begin; task < end; task++)")
        if self.tile:
            self.put(f"const int64_t row = pf_div({row}, tiles), tile = ({row} - row * tiles) * {self.lanes};")
            self.put(f"const int64_t lanes = width - tile < {self.lanes} ? width - tile : {self.lanes};")
            self.decode("row", outer[:-1])
        else:
            self.decode(row, outer)

    # --- which values, when -----------------------------------------------------------------------------------------

    def row_targets(self) -> list[int]:
        """Scope 0 values that anything stored depends on."""
        instrs = self.kernel.instrs
        found = []
        for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True):
            if scope == 0:
                found.append(v)
            else:
                found += [u for u in self.cone([v], set(), 0) if instrs[u].scope == 0 and instrs[u].kind == "reduce"]
        return found

    def late_stores(self) -> bool:
        """Whether a store inside the rows needs a reduction of its row first."""
        return any(
            scope > 0
            and any(
                self.kernel.instrs[u].kind == "reduce" and self.kernel.instrs[u].scope == 0
                for u in self.cone([v], set(), 0)
            )
            for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True)
        )

    def choose_cached(self) -> None:
        """Costly values of a row that several of its loops need are kept in scratch."""
        if prod(self.extents[n] for n in self.loops_of[1]) > MAX_CACHED_ROW:
            return
        instrs = self.kernel.instrs
        levels = self.levels(0, self.row_targets())
        uses: dict[int, set[int]] = {}
        for i, instr in enumerate(instrs):
            if instr.kind == "reduce":
                for u in self.cone(instr.args, set()):
                    uses.setdefault(u, set()).add(levels.get(i, 0))
        written: dict[int, int] = {}  # store -> the loop that writes it
        for n, (v, _) in enumerate(self.kernel.stores):
            if self.store_scope[n] == 1:
                cone = self.cone([v], set())
                written[n] = 1 + max((levels.get(u, 0) for u in cone if instrs[u].scope == 0), default=0)
                for u in cone:
                    uses.setdefault(u, set()).add(written[n])
        for u, where in sorted(uses.items()):
            op = instrs[u].op
            if (
                len(where) > 1
                and instrs[u].kind == "op"
                and instrs[u].scope == 1
                and op is not None
                and op.cost > COSTLY
            ):
                self.cached[u] = self.cache_place(u, [n for n, at in written.items() if at >= max(where)])

    def cache_place(self, u: int, late: list[int]) -> int:
        """Where a cached value's row is kept: in the row of a store behind its last use, or else in scratch."""
        dtype = self.kernel.instrs[u].dtype.compute
        for n in late:
            access = self.kernel.stores[n][1]
            whole = len(self.loops_of[1]) == 1 and access.strides[self.simd] == 1
            if whole and access.dtype is dtype and -1 - n not in self.cached.values():
                return -1 - n
        return self.scratch_rows()

    def invariants(self) -> None:
        """Values that no loop changes."""
        for i, instr in enumerate(self.kernel.instrs):
            plain = instr.kind in ("uniform", "load", "index") and not instr.loops
            if plain or (
                instr.kind in ("op", "gather") and not instr.loops and all(a in self.defined for a in instr.args)
            ):
                self.statement(i)

    def define(self, targets: Iterable[int], scope: int) -> None:
        """Write what makes the targets known at this point, loop after loop."""
        targets = [t for t in targets if t not in self.defined]
        levels = self.levels(scope, targets)
        instrs = self.kernel.instrs
        for level in range(max(levels.values(), default=0) + 1):
            if level:
                reductions = sorted(
                    v
                    for v, at in levels.items()
                    if at == level and instrs[v].kind == "reduce" and instrs[v].scope == scope
                )
                if reductions:
                    self.reduce_loop(reductions, scope)
            plain = [
                v
                for v in sorted(levels)
                if levels[v] == level and instrs[v].kind != "reduce" and instrs[v].scope <= scope
            ]
            self.statements([v for v in plain if v not in self.defined])

    def define_outside(self, targets: list[int], scope: int) -> None:
        """Write what values inside of the next loops need that is the same in all their iterations."""
        needed = self.cone(targets, self.defined, scope)
        self.define([u for u in needed if self.kernel.instrs[u].scope <= scope], scope)

    # --- loops ------------------------------------------------------------------------------------------------------

    def reduce_loop(self, reductions: list[int], scope: int, chunked: bool = False) -> None:
        """One pass over a row that feeds these reductions, and any store that is ready."""
        instrs = self.kernel.instrs
        inner = scope + 1
        ready = [
            n for n, s in enumerate(self.store_scope) if s == inner and n not in self.stored and self.ready(n, scope)
        ]
        self.start_reductions(reductions, inner)
        saved = set(self.defined)
        self.open("")
        loops = self.loops_of[inner]
        plain = loops[:-1] if inner == self.last and not self.tile else loops
        for n in plain:
            self.bounded_loop(n, chunked)
        if inner < self.last:
            sources = [instrs[v].args[0] for v in reductions]
            self.define([*sources, *(self.kernel.stores[n][0] for n in ready)], inner)
            for v in reductions:
                self.put(f"v{v} = {combine(instrs[v], f'v{v}', f'v{instrs[v].args[0]}')};")
            for n in ready:
                self.store(n)
        elif self.tile:
            self.innermost(reductions, ready, "tile", "lanes")
        else:
            n = loops[-1]
            if chunked and n == self.chunk_loop:
                self.innermost(reductions, ready, "from", "to - from")
            else:
                self.put(f"const int64_t extent{n} = {self.arg(self.extents[n])};")
                self.innermost(reductions, ready, "0", f"extent{n}")
        for _ in ("block", *plain):
            self.close()
        self.defined = saved
        self.finish_reductions(reductions, inner)
        self.stored.update(ready)
        self.filled.update(u for u in self.cached if any(u in self.cone(instrs[v].args, saved) for v in reductions))

    def start_reductions(self, reductions: list[int], inner: int) -> None:
        """Declare the results of reductions over the loops of a scope; along memory these are partial ones."""
        instrs = self.kernel.instrs
        for v in reductions:
            kind = register(instrs[v].dtype)
            size = f"[{self.lanes}]" if inner == self.last or self.tile else ""
            name = f"a{v}" if not self.tile and inner == self.last else f"v{v}"
            self.put(f"{kind} {name}{size};")
            start = identity(instrs[v])
            self.put(
                f"for (int64_t l = 0; l < {self.lanes}; l++) {name}[l] = {start};" if size else f"{name} = {start};"
            )

    def finish_reductions(self, reductions: list[int], inner: int) -> None:
        """Combine the partial results of reductions along memory."""
        instrs = self.kernel.instrs
        for v in reductions:
            if not self.tile and inner == self.last:
                self.put(f"for (int64_t w = {self.lanes // 2}; w; w /= 2)")
                self.put(
                    f"  for (int64_t l = 0; l < w; l++) a{v}[l] = {combine(instrs[v], f'a{v}[l]', f'a{v}[l + w]')};"
                )
                self.put(f"const {register(instrs[v].dtype)} v{v} = a{v}[0];")
            self.defined.add(v)

    def bounded_loop(self, n: int, chunked: bool) -> None:
        if chunked and n == self.chunk_loop:
            self.open(f"for (int64_t i{n} = from; i{n} < to; i{n}++)")
        else:
            self.open(f"for (int64_t i{n} = 0, e{n} = {self.arg(self.extents[n])}; i{n} < e{n}; i{n}++)")

    def ready(self, store: int, scope: int) -> bool:
        """Whether a store inside a row needs nothing that is still unknown outside of it."""
        cone = self.cone([self.kernel.stores[store][0]], self.defined, scope)
        return all(self.kernel.instrs[u].scope > scope or self.kernel.instrs[u].kind == "uniform" for u in cone)

    def finish_stores(self) -> None:
        for n, scope in enumerate(self.store_scope):
            if scope == 0 and n not in self.stored:
                self.store(n)
        left = [n for n, scope in enumerate(self.store_scope) if n not in self.stored and scope > 0]
        if left:
            self.define_outside([self.kernel.stores[n][0] for n in left], 0)
            self.store_loop(left, 1)

    def store_loop(self, stores: list[int], scope: int) -> None:
        """Loops for stores inside of rows that had to wait until something was known of the whole row."""
        loops = self.loops_of[scope]
        last = scope == self.last
        plain = loops[:-1] if last and not self.tile else loops
        saved = set(self.defined)
        self.open("")
        for n in plain:
            self.bounded_loop(n, False)
        if last and self.tile:
            self.innermost([], stores, "tile", "lanes")
        elif last:
            self.put(f"const int64_t extent{loops[-1]} = {self.arg(self.extents[loops[-1]])};")
            self.innermost([], stores, "0", f"extent{loops[-1]}")
        else:
            self.define_outside([self.kernel.stores[n][0] for n in stores], scope)
            for n in stores:
                if self.store_scope[n] == scope:
                    self.store(n)
            if deeper := [n for n in stores if self.store_scope[n] > scope]:
                self.store_loop(deeper, scope + 1)
        for _ in ("block", *plain):
            self.close()
        self.defined = saved

    def innermost(self, reductions: list[int], stores: list[int], start: str, count: str) -> None:
        """The vectorised loop: lane l stands for position start + l of the simd loop."""
        instrs = self.kernel.instrs
        targets = [instrs[v].args[0] for v in reductions] + [self.kernel.stores[n][0] for n in stores]
        stop = self.defined | {u for u in self.cached if u in self.filled}
        body = self.cone(targets, stop)
        row_values = [u for u in self.cone(targets, self.defined) if u in self.filled]
        inside = self.moving(body, row_values)
        saved = set(self.defined)
        for v in body:
            if v not in inside:
                self.statement(v)
        pointers = {
            v: self.pointer(instrs[v].access, f"q{v}", start) for v in inside if instrs[v].kind in ("load", "gather")
        }
        targets_at = {n: self.pointer(self.kernel.stores[n][1], f"s{n}", start, const=False) for n in stores}
        self.place_gathers(inside)
        rows = {u: self.cached_row(u, start) for u in [*row_values, *(v for v in inside if v in self.cached)]}
        blocked = bool(reductions) and not self.tile
        if blocked:
            self.open_blocks(count)
            count = "lanes"
        elif reductions:
            named = [(pointers[v][0], instrs[v].access) for v in pointers if instrs[v].kind == "load"]
            self.fetch_rows(named, 0)
            self.fetch_rows([(targets_at[n][0], self.kernel.stores[n][1]) for n in stores], 1)
        at = "(base + l)" if blocked else "l"
        self.put("#pragma omp simd")
        self.open(f"for (int64_t l = 0; l < {count}; l++)")
        for u in row_values:
            self.put(f"const {register(instrs[u].dtype)} v{u} = {rows[u]}[{at}];")
            self.defined.add(u)
        for v in inside:
            self.statement(v, at, pointers.get(v), start)
            if v in self.cached:
                self.put(f"{rows[v]}[{at}] = v{v};")
        self.feed(reductions, targets_at, at)
        self.close()
        if blocked:
            self.close()
        self.defined = saved
        self.placed.clear()

    def feed(self, reductions: list[int], targets_at: dict[int, tuple[str, str]], at: str) -> None:
        """One lane's part of reductions and stores, once their values are there. `targets_at`: pointers by store."""
        instrs = self.kernel.instrs
        for v in reductions:
            name = f"v{v}[l]" if self.tile else f"a{v}[l]"
            self.put(f"{name} = {combine(instrs[v], name, self.use(instrs[v].args[0], 'l'))};")
        for n, pointer in targets_at.items():
            value, access = self.kernel.stores[n]
            text = stored(access.dtype, self.use(value, "l"))
            self.put(f"{self.element(pointer, access, at)} = {text};")

    def open_blocks(self, count: str) -> None:
        """The loop over blocks of a row, each as long as there are partial results."""
        ahead = self.prefetches()
        self.passes += 1
        self.open(f"for (int64_t base = 0, total = {count}; base < total; base += {self.lanes})")
        self.put(f"const int64_t lanes = total - base < {self.lanes} ? total - base : {self.lanes};")
        for line in ahead:
            self.put(line)

    def fetch_rows(self, named: list[tuple[str, Access | None]], store: int) -> None:
        """A tile's part of a row is too short for hardware to see where the next lies: fetch the next but one."""
        down = self.loops_of[self.last][-1]
        for name, access in named:
            if access is not None and access.strides[self.simd] == 1 and access.strides[down]:
                ahead = f"{name} + l + 2 * {self.arg(access.strides[down])}"
                self.open(f"for (int64_t l = 0; l < lanes; l += {64 // access.dtype.itemsize})")
                self.put(f"__builtin_prefetch({ahead}, {store});")
                self.close()

    def place_gathers(self, inside: list[int]) -> None:
        """A gather whose indices stay the same along the vectorised loop is a plain load from a place found once."""
        instrs = self.kernel.instrs
        for v in inside:
            args = instrs[v].args
            if instrs[v].kind == "gather" and all(
                a in self.defined and self.simd not in instrs[a].loops and a not in self.laned for a in args
            ):
                self.put(f"q{v} += {' + '.join(self.gathered(v))};")
                self.placed.add(v)

    def moving(self, body: list[int], row_values: list[int]) -> list[int]:
        """Values of a vectorised loop that change with its lanes or are read from cached rows in it."""
        found = set(row_values)
        for v in body:
            instr = self.kernel.instrs[v]
            if self.simd in instr.loops or v in self.cached or v in self.laned or any(a in found for a in instr.args):
                found.add(v)
        return [v for v in body if v in found]

    def scratch_rows(self) -> int:
        return sum(place >= 0 for place in self.cached.values())

    def prefetches(self) -> list[str]:
        """Keep memory busy while a row is worked on: its first pass fetches what the stores will write, the later ones,
        which find the row in cache, fetch the next row."""
        if self.last != 1 or len(self.loops_of[1]) != 1 or not self.loops_of[0]:
            return []
        waiting = [a for n, (_, a) in enumerate(self.kernel.stores) if n not in self.stored]
        loads = [i.access for i in self.kernel.instrs if i.kind == "load" and i.access is not None]
        row = self.loops_of[0][-1]
        lines: list[str] = []
        for access in loads if self.passes else waiting:
            if access.strides[self.simd] != 1 or not access.strides[row]:
                continue
            store = not self.passes
            at = f"f{len(lines)}"
            terms = [f"i{n} * {self.arg(t)}" for n, t in enumerate(access.strides) if t and n != self.simd]
            if not store:
                terms.append(self.arg(access.strides[row]))
            self.put(f"const {storage(access.dtype)} *{at} = ({storage(access.dtype)} *){self.buffer(access.buffer)}")
            self.put(f"    + {' + '.join(terms)};")
            step = 64 // access.dtype.itemsize
            lines += [f"__builtin_prefetch({at} + base + {k}, {int(store)}, 2);" for k in range(0, self.lanes, step)]
        return lines

    def cached_row(self, v: int, start: str) -> str:
        """Pointer to the row of a cached value, at the start of the innermost loop."""
        place = self.cached[v]
        if place < 0:
            return self.pointer(self.kernel.stores[-1 - place][1], f"c{v}", start, const=False)[0]
        loops = self.loops_of[self.last]
        kind = register(self.kernel.instrs[v].dtype)
        flat = "0"
        for n in loops[:-1]:
            flat = f"({flat} * {self.arg(self.extents[n])} + i{n})"
        row = self.arg(prod(self.extents[n] for n in loops))
        inner = self.arg(self.extents[loops[-1]])
        scratch = len(self.buffers())
        rows = f"(double *)buf[{scratch}] + (worker * {self.scratch_rows()} + {place}) * {row}"
        self.put(f"{kind} *c{v} = ({kind} *)({rows}) + {flat} * {inner} + {start};")
        return f"c{v}"
