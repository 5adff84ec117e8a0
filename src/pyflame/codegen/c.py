"""Kernel -> C for one CPU core; the runner spreads the parallel index over threads.

Three shapes of text:
- flat: no reduction. Rows of the outer loops, cut into blocks; the innermost loop is left to the vectoriser.
- row: reductions run along memory. Each keeps LANES partial results, so that no reassociation by the compiler is needed.
- tile: reductions run across memory. The innermost loop takes LANES neighbouring rows at once.

A reduction with too few rows for the threads is cut into chunks (phase 0 leaves partial results in scratch, phase 1
combines them); the number of chunks depends on the shape alone, so results do not depend on the number of threads.
Extents and strides are arguments: the text depends on the structure only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from pyflame.codegen.expr import combine, expression, identity, loaded, register, storage, stored
from pyflame.ir.kernel import Access, Kernel, Phase, Source

LANES = 64
BLOCK = 16384  # elements of the innermost loop that one iteration of a flat kernel takes
GRAIN = 32768  # elements worth waking a thread for
MAX_CHUNKS = 64
MAX_CACHED_ROW = 65536
COSTLY = 4


def generate(kernel: Kernel) -> Source:
    """The C text of a fused kernel without an anchor."""
    return _Emitter(_prepare(kernel)).run()


def epilogue(kernel: Kernel, layout: tuple[int, int], first_arg: int, scratch: int) -> tuple[str, tuple[int, ...]]:
    """`PF_EPILOGUE(batch, i, j, n, acc)` of an anchored kernel, and its arguments, which start at arg[first_arg].

    layout: how many loops `batch` and `i` stand for; `j` stands for the rest. Buffers from `scratch` on move up by one.
    """
    return _Emitter(_join_columns(kernel, sum(layout)), first_arg, scratch).epilogue(layout)


def _join_columns(kernel: Kernel, first: int) -> Kernel:
    """Run the column loops of an anchored kernel as one, where its accesses allow that."""
    (extents,) = kernel.loops
    accesses = [i.access for i in kernel.instrs if i.access is not None] + [a for _, a in kernel.stores]
    while len(extents) > first + 1:
        last = extents[-1]
        if any(a.strides[-2] != a.strides[-1] * last for a in accesses):
            return kernel
        extents = (*extents[:-2], extents[-2] * last)
        renumber = {n: min(n, len(extents) - 1) for n in range(len(extents) + 1)}
        kernel = _map_access(kernel, (extents,), lambda s: (*s[:-2], s[-1]), renumber)
        accesses = [i.access for i in kernel.instrs if i.access is not None] + [a for _, a in kernel.stores]
    return kernel


def _prepare(kernel: Kernel) -> Kernel:
    """Give every scope a loop, and put the loop that runs along memory last in its scope."""
    if kernel.loops[-1] == ():
        kernel = _insert_loop(kernel, len([e for s in kernel.loops for e in s]), kernel.depth - 1)
    start = 0
    order: list[int] = []
    for scope in kernel.loops:
        loops = list(range(start, start + len(scope)))
        start += len(scope)
        if len(loops) > 1:
            best = max(loops, key=lambda n: (_contiguous(kernel, n), n))
            loops = [n for n in loops if n != best] + [best]
        order += loops
    return kernel if order == sorted(order) else _reorder(kernel, order)


def _contiguous(kernel: Kernel, loop: int) -> int:
    """How many accesses run along memory with this loop; stores count twice."""
    reads = sum(i.access.strides[loop] == 1 for i in kernel.instrs if i.access is not None and i.kind != "index")
    return reads + 2 * sum(a.strides[loop] == 1 for _, a in kernel.stores)


def _map_access(kernel: Kernel, loops: tuple[tuple[int, ...], ...], strides: object, renumber: dict[int, int]) -> Kernel:
    assert callable(strides)
    instrs = tuple(
        replace(
            i,
            loops=frozenset(renumber[n] for n in i.loops),
            access=None if i.access is None else replace(i.access, strides=strides(i.access.strides)),
        )
        for i in kernel.instrs
    )
    stores = tuple((v, replace(a, strides=strides(a.strides))) for v, a in kernel.stores)
    return replace(kernel, loops=loops, instrs=instrs, stores=stores)


def _insert_loop(kernel: Kernel, position: int, scope: int) -> Kernel:
    """A loop of extent 1 at this position."""
    loops = tuple((*s, 1) if d == scope else s for d, s in enumerate(kernel.loops))
    total = sum(len(s) for s in kernel.loops)
    renumber = {n: n + (n >= position) for n in range(total)}
    return _map_access(kernel, loops, lambda s: (*s[:position], 0, *s[position:]), renumber)


def _reorder(kernel: Kernel, order: list[int]) -> Kernel:
    extents = [e for s in kernel.loops for e in s]
    loops = []
    start = 0
    for scope in kernel.loops:
        loops.append(tuple(extents[n] for n in order[start : start + len(scope)]))
        start += len(scope)
    renumber = {old: new for new, old in enumerate(order)}
    return _map_access(kernel, tuple(loops), lambda s: tuple(s[n] for n in order), renumber)


class _Emitter:
    def __init__(self, kernel: Kernel, first_arg: int = 0, scratch: int | None = None) -> None:
        self.kernel = kernel
        self.first_arg = first_arg
        self.scratch = scratch  # an anchor's scratch buffer; those behind it move up by one
        self.args: list[int] = []
        self.lines: list[str] = []
        self.indent = 1
        self.defined: set[int] = set()
        self.stored: set[int] = set()  # numbers of stores already written
        self.cached: dict[int, int] = {}  # value -> number of its row in scratch
        self.filled: set[int] = set()
        scopes = kernel.loop_scope()
        self.loops_of = [[n for n, s in enumerate(scopes) if s == d] for d in range(kernel.depth)]
        self.extents = [e for s in kernel.loops for e in s]
        self.last = kernel.depth - 1
        self.tile = self.last == 1 and self.prefers_tile()
        self.simd = self.loops_of[0][-1] if self.tile else self.loops_of[self.last][-1]
        self.chunks = 1
        self.chunk_loop = -1
        self.store_scope = [max([scopes[n] for n, s in enumerate(a.strides) if s] + [kernel.instrs[v].scope]) for v, a in kernel.stores]
        reducing = any(i.kind == "reduce" for i in kernel.instrs)
        assert reducing == (self.last > 0), "a scope without reductions"

    # --- text -------------------------------------------------------------------------------------------------------

    def put(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def open(self, line: str) -> None:
        self.put(f"{line} {{".lstrip())
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1
        self.put("}")

    def arg(self, value: int) -> str:
        self.args.append(value)
        return f"arg[{self.first_arg + len(self.args) - 1}]"

    def buffer(self, number: int) -> str:
        return f"buf[{number + (self.scratch is not None and number >= self.scratch)}]"

    # --- the three shapes -------------------------------------------------------------------------------------------

    def run(self) -> Source:
        if self.last == 0:
            return self.flat()
        return self.rows()

    def flat(self) -> Source:
        loops = self.loops_of[0]
        inner = self.extents[self.simd]
        rows = prod(self.extents[n] for n in loops[:-1])
        blocks = max(1, -(-inner // BLOCK))
        self.open("PF_KERNEL(PF_KEY_0)")
        self.invariants()
        self.put(f"const int64_t extent = {self.arg(inner)}, blocks = {self.arg(blocks)};")
        self.open("for (int64_t task = begin; task < end; task++)")
        self.put(f"const int64_t first = task % blocks * {BLOCK}, rest = extent - first;")
        self.put(f"const int64_t count = rest < {BLOCK} ? rest : {BLOCK};")
        self.decode("task / blocks", loops[:-1])
        self.innermost([], [n for n in range(len(self.kernel.stores))], "first", "count")
        self.close()
        self.close()
        elements = min(inner, BLOCK)
        return self.source([Phase("_0", rows * blocks, max(1, GRAIN // max(1, elements)))])

    def epilogue(self, layout: tuple[int, int]) -> tuple[str, tuple[int, ...]]:
        loops = self.loops_of[0]
        batch, row = loops[: layout[0]], loops[layout[0] : sum(layout)]
        columns = loops[sum(layout) :]
        self.open(
            "static inline void PF_EPILOGUE(char *const *buf, const int64_t *arg, const pf_word *uni, int64_t batch, int64_t i, "
            "int64_t j, int64_t n, const PF_ACC_T *acc)"
        )
        self.invariants()
        self.decode("batch", batch)
        self.decode("i", row)
        everything = list(range(len(self.kernel.stores)))
        if len(columns) == 1:
            self.innermost([], everything, "j", "n")
        else:
            # The columns do not run along memory as one loop: take them one by one.
            self.open("for (int64_t column = 0; column < n; column++, acc++)")
            self.decode("j + column", columns)
            self.innermost([], everything, f"i{columns[-1]}", "1")
            self.close()
        self.close()
        return "\n".join(self.lines) + "\n", tuple(self.args)

    def rows(self) -> Source:
        outer = self.loops_of[0]
        rows = prod(self.extents[n] for n in outer)
        tiles = 1
        if self.tile:
            width = self.extents[outer[-1]]
            tiles = -(-width // LANES)
            rows = rows // max(width, 1) * tiles
        per_row = prod(self.extents[n] for d in range(1, self.last + 1) for n in self.loops_of[d]) * (LANES if self.tile else 1)
        levels = self.levels(0, self.row_targets())
        top = max((levels[i] for i in levels), default=0)
        if rows < 16 and top == 1 and per_row > 2 * GRAIN and not self.late_stores():
            self.chunk_loop = self.loops_of[1][0]
            self.chunks = max(1, min(self.extents[self.chunk_loop], MAX_CHUNKS, rows * per_row // GRAIN // max(rows, 1)))
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
        width = LANES if self.tile else 1
        slots = len(reductions) * width
        scratch = len(self.buffers())
        self.open("PF_KERNEL(PF_KEY_0)")
        self.invariants()
        self.put(f"const int64_t chunks = {self.arg(self.chunks)}, split = {self.arg(self.extents[self.chunk_loop])};")
        self.row_loop(outer, tiles, "task / chunks")
        self.put("const int64_t from = task % chunks * split / chunks, to = (task % chunks + 1) * split / chunks;")
        kept = set(self.defined)
        self.reduce_loop(reductions, 0, chunked=True)
        for k, i in enumerate(reductions):
            partial = f"((double *)buf[{scratch}])"
            kind = register(self.kernel.instrs[i].dtype)
            place = f"(({kind} *)({partial} + task * {slots} + {k * width}))"
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
        for k, i in enumerate(reductions):
            instr = self.kernel.instrs[i]
            kind = register(instr.dtype)
            lane = "l" if self.tile else "0"
            place = f"(({kind} *)((double *)buf[{scratch}] + (task * chunks + c) * {slots} + {k * width}))[{lane}]"
            if self.tile:
                self.put(f"{kind} v{i}[{LANES}];")
                self.put(f"for (int64_t l = 0; l < lanes; l++) v{i}[l] = {identity(instr)};")
                self.open("for (int64_t c = 0; c < chunks; c++)")
                self.put(f"for (int64_t l = 0; l < lanes; l++) v{i}[l] = {combine(instr, f'v{i}[l]', place)};")
                self.close()
            else:
                self.put(f"{kind} v{i} = {identity(instr)};")
                self.put(f"for (int64_t c = 0; c < chunks; c++) v{i} = {combine(instr, f'v{i}', place)};")
            self.defined.add(i)
        self.define(self.row_targets(), 0)
        self.finish_stores()
        self.close()
        self.close()
        phases = [Phase("_0", rows * self.chunks, 1), Phase("_1", rows, max(1, GRAIN // self.chunks))]
        return self.source(phases, scratch_bytes=rows * self.chunks * slots * 8)

    def source(self, phases: list[Phase], scratch_bytes: int = 0) -> Source:
        row = prod(self.extents[n] for n in self.loops_of[self.last]) if self.cached else 0
        return Source("\n".join(self.lines) + "\n", tuple(phases), tuple(self.args), row * 8 * len(self.cached), scratch_bytes)

    def row_loop(self, outer: list[int], tiles: int, row: str) -> None:
        """The loop over rows or tiles of rows, with the outer loop variables decoded."""
        if self.tile:
            self.put(f"const int64_t tiles = {self.arg(tiles)}, width = {self.arg(self.extents[outer[-1]])};")
        self.open("for (int64_t task = begin; task < end; task++)")
        if self.tile:
            self.put(f"const int64_t tile = {row} % tiles * {LANES};")
            self.put(f"const int64_t lanes = width - tile < {LANES} ? width - tile : {LANES};")
            self.decode(f"{row} / tiles", outer[:-1])
        else:
            self.decode(row, outer)

    def decode(self, flat: str, loops: list[int]) -> None:
        """Loop variables from a flat index."""
        if not loops:
            return
        if len(loops) == 1:
            self.put(f"const int64_t i{loops[0]} = {flat};")
            return
        at = f"at{loops[0]}"
        self.put(f"int64_t {at} = {flat};")
        for n in reversed(loops[1:]):
            self.put(f"const int64_t e{n} = {self.arg(self.extents[n])}, i{n} = {at} % e{n};")
            self.put(f"{at} /= e{n};")
        self.put(f"const int64_t i{loops[0]} = {at};")

    # --- which values, when -----------------------------------------------------------------------------------------

    def buffers(self) -> list[int]:
        used = {i.access.buffer for i in self.kernel.instrs if i.access is not None and i.access.buffer >= 0}
        return sorted(used | {a.buffer for _, a in self.kernel.stores})

    def cone(self, targets: Iterable[int], stop: set[int]) -> list[int]:
        """Undefined values that the targets need, without entering reductions; in order."""
        seen: set[int] = set()
        stack = [t for t in targets if t not in stop]
        while stack:
            v = stack.pop()
            if v in seen or v in stop:
                continue
            seen.add(v)
            if self.kernel.instrs[v].kind != "reduce":
                stack.extend(self.kernel.instrs[v].args)
        return sorted(seen)

    def levels(self, scope: int, targets: Iterable[int]) -> dict[int, int]:
        """For values of a scope: how many loops over rows must have run before they are known."""
        instrs = self.kernel.instrs
        out: dict[int, int] = {}
        stack = [(t, False) for t in targets if t not in self.defined]
        while stack:
            v, ready = stack.pop()
            instr = instrs[v]
            if v in out:
                continue
            if instr.kind == "reduce" and instr.scope == scope:
                below = [u for u in self.cone(instr.args, self.defined) if instrs[u].scope <= scope]
            else:
                below = [u for u in instr.args if u not in self.defined]
            if not ready:
                stack.append((v, True))
                stack.extend((u, False) for u in below if u not in out)
                continue
            level = max((out[u] for u in below), default=0)
            out[v] = level + 1 if instr.kind == "reduce" and instr.scope == scope else level
        return out

    def row_targets(self) -> list[int]:
        """Scope 0 values that anything stored depends on."""
        instrs = self.kernel.instrs
        found = []
        for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True):
            if scope == 0:
                found.append(v)
            else:
                found += [u for u in self.cone([v], set()) if instrs[u].scope == 0 and instrs[u].kind == "reduce"]
        return found

    def late_stores(self) -> bool:
        """Whether a store inside the rows needs a reduction of its row first."""
        return any(
            scope > 0 and any(self.kernel.instrs[u].kind == "reduce" and self.kernel.instrs[u].scope == 0 for u in self.cone([v], set()))
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
        for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True):
            if scope == 1:
                cone = self.cone([v], set())
                level = 1 + max((levels.get(u, 0) for u in cone if instrs[u].scope == 0), default=0)
                for u in cone:
                    uses.setdefault(u, set()).add(level)
        for u, where in sorted(uses.items()):
            op = instrs[u].op
            if len(where) > 1 and instrs[u].kind == "op" and instrs[u].scope == 1 and op is not None and op.cost > COSTLY:
                self.cached[u] = len(self.cached)

    def invariants(self) -> None:
        """Values that no loop changes."""
        for i, instr in enumerate(self.kernel.instrs):
            plain = instr.kind in ("uniform", "load", "index") and not instr.loops
            if plain or (instr.kind in ("op", "gather") and not instr.loops and all(a in self.defined for a in instr.args)):
                self.statement(i)

    def define(self, targets: Iterable[int], scope: int) -> None:
        """Write what makes the targets known at this point, loop after loop."""
        targets = [t for t in targets if t not in self.defined]
        levels = self.levels(scope, targets)
        instrs = self.kernel.instrs
        for level in range(max(levels.values(), default=0) + 1):
            if level:
                reductions = sorted(v for v, at in levels.items() if at == level and instrs[v].kind == "reduce" and instrs[v].scope == scope)
                if reductions:
                    self.reduce_loop(reductions, scope)
            plain = [v for v in sorted(levels) if levels[v] == level and instrs[v].kind != "reduce" and instrs[v].scope <= scope]
            self.statements([v for v in plain if v not in self.defined])

    def statements(self, values: list[int]) -> None:
        """Values of the current scope; in a tile each is computed for all lanes."""
        lanes = [v for v in values if self.tile and self.simd in self.lane_loops(v)]
        for v in values:
            if v not in lanes:
                self.statement(v)
        if lanes:
            for v in lanes:
                self.put(f"{register(self.kernel.instrs[v].dtype)} v{v}[{LANES}];")
            pointers = {v: self.pointer(self.kernel.instrs[v].access, f"q{v}", "tile") for v in lanes if self.kernel.instrs[v].kind == "load"}
            self.put("#pragma omp simd")
            self.open("for (int64_t l = 0; l < lanes; l++)")
            for v in lanes:
                self.put(f"v{v}[l] = {self.rhs(v, 'l', pointers.get(v))};")
                self.defined.add(v)
            self.close()

    def lane_loops(self, v: int) -> frozenset[int]:
        """Loops a row value changes with, reductions included."""
        instr = self.kernel.instrs[v]
        out = instr.loops
        return out

    # --- loops ------------------------------------------------------------------------------------------------------

    def reduce_loop(self, reductions: list[int], scope: int, chunked: bool = False) -> None:
        """One pass over a row that feeds these reductions, and any store that is ready."""
        instrs = self.kernel.instrs
        inner = scope + 1
        ready = [n for n, s in enumerate(self.store_scope) if s == inner and n not in self.stored and self.ready(n, scope)]
        for v in reductions:
            kind = register(instrs[v].dtype)
            size = f"[{LANES}]" if inner == self.last or self.tile else ""
            name = f"a{v}" if not self.tile and inner == self.last else f"v{v}"
            self.put(f"{kind} {name}{size};")
            start = identity(instrs[v])
            self.put(f"for (int64_t l = 0; l < {LANES}; l++) {name}[l] = {start};" if size else f"{name} = {start};")
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
        for v in reductions:
            if not self.tile and inner == self.last:
                self.put(f"for (int64_t w = {LANES // 2}; w; w /= 2)")
                self.put(f"  for (int64_t l = 0; l < w; l++) a{v}[l] = {combine(instrs[v], f'a{v}[l]', f'a{v}[l + w]')};")
                self.put(f"const {register(instrs[v].dtype)} v{v} = a{v}[0];")
            self.defined.add(v)
        self.stored.update(ready)
        self.filled.update(u for u in self.cached if any(u in self.cone(instrs[v].args, saved) for v in reductions))

    def bounded_loop(self, n: int, chunked: bool) -> None:
        if chunked and n == self.chunk_loop:
            self.open(f"for (int64_t i{n} = from; i{n} < to; i{n}++)")
        else:
            self.open(f"for (int64_t i{n} = 0, e{n} = {self.arg(self.extents[n])}; i{n} < e{n}; i{n}++)")

    def ready(self, store: int, scope: int) -> bool:
        """Whether a store inside a row needs nothing that is still unknown outside of it."""
        cone = self.cone([self.kernel.stores[store][0]], self.defined)
        return all(self.kernel.instrs[u].scope > scope or self.kernel.instrs[u].kind == "uniform" for u in cone)

    def finish_stores(self) -> None:
        for n, scope in enumerate(self.store_scope):
            if scope == 0 and n not in self.stored:
                self.store(n)
        left = [n for n, scope in enumerate(self.store_scope) if n not in self.stored and scope > 0]
        if left:
            needed = [u for n in left for u in self.cone([self.kernel.stores[n][0]], self.defined) if self.kernel.instrs[u].scope == 0]
            self.define(needed, 0)
            self.reduce_loop_for_stores(left)

    def reduce_loop_for_stores(self, stores: list[int]) -> None:
        loops = self.loops_of[self.last]
        assert all(self.store_scope[n] == self.last for n in stores)
        middle = [n for d in range(1, self.last) for n in self.loops_of[d]]
        plain = middle + (loops if self.tile else loops[:-1])
        self.open("")
        for n in plain:
            self.bounded_loop(n, False)
        if self.tile:
            self.innermost([], stores, "tile", "lanes")
        else:
            self.put(f"const int64_t extent{loops[-1]} = {self.arg(self.extents[loops[-1]])};")
            self.innermost([], stores, "0", f"extent{loops[-1]}")
        for _ in ("block", *plain):
            self.close()

    def innermost(self, reductions: list[int], stores: list[int], start: str, count: str) -> None:
        """The vectorised loop: lane l stands for position start + l of the simd loop."""
        instrs = self.kernel.instrs
        targets = [instrs[v].args[0] for v in reductions] + [self.kernel.stores[n][0] for n in stores]
        stop = self.defined | {u for u in self.cached if u in self.filled}
        body = self.cone(targets, stop)
        row_values = [u for u in self.cone(targets, self.defined) if u in self.filled]
        hoisted = [v for v in body if self.simd not in instrs[v].loops and v not in self.cached]
        inside = sorted([v for v in body if v not in hoisted])
        saved = set(self.defined)
        for v in hoisted:
            self.statement(v)
        pointers = {v: self.pointer(instrs[v].access, f"q{v}", start) for v in inside if instrs[v].kind in ("load", "gather")}
        targets_at = {n: self.pointer(self.kernel.stores[n][1], f"s{n}", start, const=False) for n in stores}
        rows = {u: self.cached_row(u, start) for u in [*row_values, *(v for v in inside if v in self.cached)]}
        blocked = bool(reductions) and not self.tile
        if blocked:
            self.open(f"for (int64_t base = 0, total = {count}; base < total; base += {LANES})")
            self.put(f"const int64_t lanes = total - base < {LANES} ? total - base : {LANES};")
            count = "lanes"
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
        for v in reductions:
            name = f"v{v}[l]" if self.tile else f"a{v}[l]"
            self.put(f"{name} = {combine(instrs[v], name, self.use(instrs[v].args[0], 'l'))};")
        for n in stores:
            value, access = self.kernel.stores[n]
            text = stored(access.dtype, self.use(value, "l"))
            self.put(f"{self.element(targets_at[n], access, at)} = {text};")
        self.close()
        if blocked:
            self.close()
        self.defined = saved

    def cached_row(self, v: int, start: str) -> str:
        """Pointer to the scratch row of a cached value, at the start of the innermost loop."""
        loops = self.loops_of[self.last]
        kind = register(self.kernel.instrs[v].dtype)
        flat = "0"
        for n in loops[:-1]:
            flat = f"({flat} * {self.arg(self.extents[n])} + i{n})"
        row = self.arg(prod(self.extents[n] for n in loops))
        inner = self.arg(self.extents[loops[-1]])
        scratch = len(self.buffers())
        self.put(f"{kind} *c{v} = ({kind} *)((double *)buf[{scratch}] + (worker * {len(self.cached)} + {self.cached[v]}) * {row}) + {flat} * {inner} + {start};")
        return f"c{v}"

    # --- statements -------------------------------------------------------------------------------------------------

    def pointer(self, access: Access | None, name: str, start: str, const: bool = True) -> tuple[str, str]:
        """Declare a pointer to the access's element at the start of the simd loop; gives its name and its step."""
        assert access is not None
        kind = storage(access.dtype)
        terms = [f"i{n} * {self.arg(s)}" for n, s in enumerate(access.strides) if s and n != self.simd]
        stride = access.strides[self.simd]
        step = "" if stride in (0, 1) else self.arg(stride)
        if stride and start != "0":
            terms.append(f"({start})" if stride == 1 else f"({start}) * {step}")
        base = f"({'const ' if const else ''}{kind} *){self.buffer(access.buffer)}"
        self.put(f"{'const ' if const else ''}{kind} *{name} = {' + '.join([base, *terms])};")
        return name, step

    def element(self, pointer: tuple[str, str], access: Access, at: str) -> str:
        name, step = pointer
        stride = access.strides[self.simd]
        return f"*{name}" if stride == 0 else f"{name}[{at}]" if stride == 1 else f"{name}[{at} * {step}]"

    def use(self, v: int, lane: str) -> str:
        """A value by name; row values of a tile are arrays over its lanes."""
        instr = self.kernel.instrs[v]
        if self.tile and instr.scope == 0 and (instr.kind == "reduce" or self.simd in instr.loops) and not self.top(v):
            return f"v{v}[{lane}]"
        return f"v{v}"

    def top(self, v: int) -> bool:
        return not self.kernel.instrs[v].loops and self.kernel.instrs[v].kind != "reduce"

    def statement(self, v: int, at: str = "0", pointer: tuple[str, str] | None = None, start: str = "0") -> None:
        instr = self.kernel.instrs[v]
        if pointer is None and instr.kind in ("load", "gather"):
            pointer = self.pointer(instr.access, f"q{v}", "0")
        if instr.kind == "gather":
            self.gather(v, at, pointer)
        else:
            self.put(f"const {register(instr.dtype)} v{v} = {self.rhs(v, at, pointer, start)};")
        self.defined.add(v)

    def rhs(self, v: int, at: str, pointer: tuple[str, str] | None = None, start: str = "tile") -> str:
        instr = self.kernel.instrs[v]
        if instr.kind == "load":
            assert instr.access is not None and pointer is not None
            return loaded(instr.access.dtype, self.element(pointer, instr.access, at))
        if instr.kind == "acc":
            return "acc[l]"
        if instr.kind == "uniform":
            field = "f" if instr.dtype.is_float else "i"
            return f"({register(instr.dtype)})uni[{self.arg(instr.uniform)}].{field}"
        if instr.kind == "index":
            assert instr.access is not None
            terms = [self.arg(instr.access.offset)]
            for n, s in enumerate(instr.access.strides):
                if s:
                    terms.append(f"({start} + {at}) * {self.arg(s)}" if n == self.simd else f"i{n} * {self.arg(s)}")
            return f"({register(instr.dtype)})({' + '.join(terms)})"
        dtypes = [self.kernel.instrs[a].dtype for a in instr.args]
        return expression(instr, [self.use(a, "l") for a in instr.args], dtypes)

    def gather(self, v: int, at: str, pointer: tuple[str, str] | None) -> None:
        """A load at a computed position, checked: a bad index is reported once and read as 0."""
        instr = self.kernel.instrs[v]
        assert instr.access is not None and pointer is not None
        terms = []
        for k, (a, (size, stride)) in enumerate(zip(instr.args, instr.dynamic, strict=True)):
            self.put(f"int64_t x{v}_{k} = (int64_t){self.use(a, 'l')};")
            self.put(f"const int64_t n{v}_{k} = {self.arg(size)};")
            self.put(f"x{v}_{k} += x{v}_{k} < 0 ? n{v}_{k} : 0;")
            self.open(f"if (__builtin_expect((uint64_t)x{v}_{k} >= (uint64_t)n{v}_{k}, 0))")
            self.put(f"pf_bad_index(buf, {self.arg(instr.check)}, {self.use(a, 'l')}, n{v}_{k});")
            self.put(f"x{v}_{k} = 0;")
            self.close()
            terms.append(f"x{v}_{k} * {self.arg(stride)}")
        name, step = pointer
        inner = instr.access.strides[self.simd]
        if inner and at != "0":
            terms.append(at if inner == 1 else f"{at} * {step}")
        text = loaded(instr.access.dtype, f"{name}[{' + '.join(terms)}]")
        self.put(f"const {register(instr.dtype)} v{v} = {text};")

    def store(self, n: int) -> None:
        """A store of a row value."""
        value, access = self.kernel.stores[n]
        self.stored.add(n)
        if self.tile and access.strides[self.simd]:
            pointer = self.pointer(access, f"s{n}", "tile", const=False)
            self.put("#pragma omp simd")
            self.put(f"for (int64_t l = 0; l < lanes; l++) {self.element(pointer, access, 'l')} = {stored(access.dtype, self.use(value, 'l'))};")
            return
        pointer = self.pointer(access, f"s{n}", "0", const=False)
        self.put(f"*{pointer[0]} = {stored(access.dtype, self.use(value, '0'))};")

    def prefers_tile(self) -> bool:
        """Whether memory runs along the rows' last loop rather than along the reduction."""
        if not self.loops_of[0]:
            return False
        outer, inner = self.loops_of[0][-1], self.loops_of[1][-1]
        reads = [i.access for i in self.kernel.instrs if i.kind == "load" and i.access is not None and i.scope == 1]
        along = sum(abs(a.strides[inner]) == 1 for a in reads)
        across = sum(abs(a.strides[outer]) == 1 for a in reads)
        return across > along and self.extents[outer] > 1
