"""The text of GPU kernels short of the question how rows are laid over threads: parameters, positions, values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from pyflame.codegen.expr import combine, expression, loaded, register, stored
from pyflame.codegen.gpu_shape import MAX_BLOCK, lds_room
from pyflame.codegen.loops import contiguous
from pyflame.codegen.text import Writer
from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.errors import CompileError
from pyflame.core.shape import magic
from pyflame.ir.c_types import small_float, storage
from pyflame.ir.kernel import Access, GpuPhase, GpuSource, Instr, Kernel

VECTOR_BYTES = 16
MAX_VECTOR = 8
MAX_WORDS = 512  # 4 KiB: what any driver takes as parameters of a launch
MAX_THREADS = 1 << 32  # of a launch, by HIP's rules
LEAST_TURNED = 16  # elements along both loops from which on turning a tile pays


class GpuText(Writer):
    """A kernel on its way to text: what is known of it, and one value or vector of values after another."""

    def __init__(self, kernel: Kernel, target: Target, aligned: bool) -> None:
        self.kernel = kernel
        self.instrs = kernel.instrs
        self.target = target
        self.aligned = aligned
        self.extents = [e for scope in kernel.loops for e in scope]
        scopes = kernel.loop_scope()
        self.order = [self.in_order([n for n, s in enumerate(scopes) if s == d]) for d in range(kernel.depth)]
        self.store_scope = [
            max([scopes[n] for n, s in enumerate(a.strides) if s] + [self.instrs[v].scope]) for v, a in kernel.stores
        ]
        read = [i.access for i in self.instrs if i.access is not None and i.access.buffer >= 0]
        self.accesses = read + [a for _, a in kernel.stores]
        self.count = 1 + max(a.buffer for a in self.accesses)
        self.index = "int" if self.small() else "int64_t"
        self.line = kernel.line  # that the first store goes to
        self.into_line = None if self.line is None else kernel.stores[0][1]
        self.online: dict[int, int] = {}  # sums that are made in one pass with the maximum they need
        self.stage = self.stages()
        self.tile = kernel.depth == 2 and self.prefers_tile()
        inner = self.order[-1]
        self.lane = self.choose_lane()  # the loop that vectors run along
        self.side = self.choose_side()
        self.cross, self.staged = self.choose_staged()  # the loop that some loads run along instead, and those loads
        self.width, self.cross_width = self.choose_width(), self.choose_cross_width()
        self.rows_along = self.width if self.tile else 1  # of a vector
        self.items = prod(self.extents[n] for n in inner) * self.rows_along // self.width  # vectors in a row, or in all
        self.asked = self.alignment()
        self.texts: list[str] = []
        self.phases: list[GpuPhase] = []
        self.kept: set[int] = set()  # values of a row that stay in registers from one pass to the next
        self.raw: set[int] = set()  # those of them that stay as they were read: vectors of small types
        self.by_element = False  # whether what is read now is no vector, though vectors are
        self.begin()

    # --- facts about the kernel -------------------------------------------------------------------------------------

    def in_order(self, loops: list[int]) -> list[int]:
        """Loops of a scope, the one that most accesses follow along memory last."""
        best = max(loops, key=lambda n: (contiguous(self.kernel, n), n), default=-1)
        return [n for n in loops if n != best] + [n for n in loops if n == best]

    def small(self) -> bool:
        """Whether every position fits in 31 bits."""
        gathered = sum(size * abs(stride) for i in self.instrs for size, stride in i.dynamic)
        reaches = (sum(abs(s) * (e - 1) for s, e in zip(a.strides, self.extents, strict=True)) for a in self.accesses)
        # A loop over threads may step past the end by one block.
        sizes = prod(self.extents) + MAX_BLOCK * MAX_VECTOR, *(reach + gathered for reach in reaches)
        return all(size < 1 << 31 for size in sizes)

    def stages(self) -> list[int]:
        """For each value how many passes over the row must have run before it is known."""
        out: list[int] = []
        for v, i in enumerate(self.instrs):
            if v in self.online:
                out.append(out[self.online[v]])
            else:
                out.append(max((out[a] for a in i.args), default=0) + (i.kind == "reduce"))
        return out

    def exponential_sums(self) -> dict[int, int]:
        """Sums over exp(x - m), each with m, the maximum of x over the same row: one pass can give both."""
        out: dict[int, int] = {}
        for v, i in enumerate(self.instrs):
            if i.kind != "reduce" or self.op_name(v) != "reduce_sum" or i.dtype.compute.name != "float32":
                continue
            power = i.args[0]
            if self.op_name(power) != "exp" or self.op_name(self.instrs[power].args[0]) != "sub":
                continue
            x, high = self.instrs[self.instrs[power].args[0]].args
            found = self.instrs[high].kind == "reduce" and self.op_name(high) == "reduce_max"
            if found and self.instrs[high].args == (x,) and high not in out.values():
                out[v] = high
        return out

    def op_name(self, v: int) -> str:
        op = self.instrs[v].op
        return "" if op is None else op.name

    def prefers_tile(self) -> bool:
        """Whether memory runs along the rows' last loop rather than along the reduction."""
        if not self.order[0] or not self.order[1]:
            return False
        outer, inner = self.order[0][-1], self.order[1][-1]
        reads = [i.access for i in self.instrs if i.kind == "load" and i.access is not None and i.scope == 1]

        def elements(along: int) -> int:
            """How many are read along memory with this loop."""
            return sum(
                prod(e for e, stride in zip(self.extents, a.strides, strict=True) if stride)
                for a in reads
                if abs(a.strides[along]) == 1
            )

        return elements(outer) > elements(inner)

    def choose_lane(self) -> int:
        """The loop inside of rows that runs along memory; where rows lie beside each other and each is gone through
        once, the loop over them."""
        if not self.tile:
            return self.order[-1][-1] if self.order[-1] else -1
        inside = [v for (v, _), scope in zip(self.kernel.stores, self.store_scope, strict=True) if scope]
        once = all(s <= 1 for s in self.stage) and not any(self.stage[v] for v in inside)
        return self.order[0][-1] if once else -1

    def choose_staged(self) -> tuple[int, dict[int, int]]:
        """Loads that run along memory in another loop than the kernel does, with the bytes that they take in LDS.

        They are read tile by tile along their own loop, and turned in LDS: strided reads fetch a line for an element.
        The epilogue of an anchor has no tiles of its own.
        """
        if self.kernel.depth != 1 or self.kernel.anchor is not None or self.lane < 0:
            return -1, {}

        def across(access: Access, n: int) -> bool:
            return n != self.lane and abs(access.strides[n]) == 1 and abs(access.strides[self.lane]) > 1

        loads = {v: i.access for v, i in enumerate(self.instrs) if i.kind == "load" and i.access is not None}
        found = {n: [v for v, a in loads.items() if across(a, n)] for n in self.order[0]}
        cross = max(found, key=lambda n: len(found[n]))
        if not found[cross] or min(self.extents[cross], self.extents[self.lane]) < LEAST_TURNED:
            return -1, {}
        room = lds_room(self.target)
        staged: dict[int, int] = {}
        for v in found[cross]:
            dtype = loads[v].dtype
            nbytes = self.side * self.pitch(dtype) * dtype.itemsize
            if sum(staged.values()) + nbytes <= room:
                staged[v] = nbytes
        return (cross, staged) if staged else (-1, {})

    def choose_side(self) -> int:
        """Elements of a side of the tiles that are turned in LDS: 128 bytes at least, but for single bytes, and twice
        as many where there are blocks enough."""
        widest = max(a.dtype.itemsize for a in self.accesses)
        many = widest == 4 and prod(self.extents) >= 2 * self.target.workers * 64 * 64
        return 64 if widest <= 2 or many else 32

    def pitch(self, dtype: DType) -> int:
        """Elements of a line of such a tile: an odd number of words, so that a column lies in all banks."""
        return self.side + max(1, 4 // dtype.itemsize)

    def choose_width(self) -> int:
        """Elements that a thread takes at once: up to 16 bytes of the widest access along memory."""
        inside = [i.access for i in self.instrs if i.kind == "load" and i.scope == 1 and i.access is not None]
        candidates = inside if self.tile else self.accesses
        along = [a for a in candidates if self.lane >= 0 and a.strides[self.lane] == 1]
        if not self.aligned or not along or (self.line is not None and self.lane in self.line.loops):
            return 1
        width = self.most_turned(along) if self.staged else MAX_VECTOR
        width = min(width, VECTOR_BYTES // max(a.dtype.itemsize for a in along))
        while width > 1 and (self.extents[self.lane] % width or not any(self.is_vector(a, width) for a in along)):
            width //= 2
        return width

    def most_turned(self, along: Sequence[Access]) -> int:
        """Elements that a thread takes at once, at most, of what is turned in LDS: the fastest on an H200."""
        return {1: 8, 2: 8, 4: 2}.get(max(a.dtype.itemsize for a in along), 1)

    def choose_cross_width(self) -> int:
        """Elements that a thread reads at once of what is turned in LDS."""
        along = [a for v in self.staged if (a := self.instrs[v].access) is not None]
        if not self.aligned or not along:
            return 1
        width = self.most_turned(along)
        while width > 1 and (
            self.extents[self.cross] % width or not all(self.is_vector(a, width, self.cross) for a in along)
        ):
            width //= 2
        return width

    def is_vector(self, access: Access, width: int, loop: int | None = None) -> bool:
        """Whether `width` neighbours of this access, along the lanes or another loop, are one aligned vector."""
        lane = self.lane if loop is None else loop
        others = [s for n, s in enumerate(access.strides) if n != lane]
        if self.line is not None and access is self.into_line:
            others.append(self.line.dynamic[0][1])
        return width > 1 and access.strides[lane] == 1 and all(s % width == 0 for s in (*others, access.offset))

    def alignment(self) -> tuple[int, ...]:
        """Bytes to which each buffer must be aligned."""
        out = [1] * self.count
        turned = [self.instrs[v].access for v in self.staged]
        for a in self.accesses:
            along = self.width if self.is_vector(a, self.width) else self.cross_width if a in turned else 1
            out[a.buffer] = max(out[a.buffer], a.dtype.itemsize * along)
        return tuple(out)

    def is_beside(self, v: int) -> bool:
        """Whether a row's value, known before the row is gone through, is another one in each row of a vector."""
        instr = self.instrs[v]
        return self.rows_along > 1 and instr.scope == 0 and self.lane in instr.loops and not self.stage[v]

    def cone(self, targets: Iterable[int], stop: Iterable[int] = ()) -> list[int]:
        """Values inside the row that the targets need, in order; what is in `stop` is there already."""
        done = set(stop)
        stack = list(targets)
        seen: set[int] = set()
        while stack:
            v = stack.pop()
            inside = self.kernel.depth == 1 or self.instrs[v].scope == 1 or self.is_beside(v)
            if v not in seen and v not in done and inside:
                seen.add(v)
                stack.extend(self.instrs[v].args)
        return sorted(seen)

    def targets(self, reductions: Iterable[int], stores: Iterable[int]) -> list[int]:
        """What a pass over the row must compute to feed these."""
        fed = [self.instrs[v].args[0] for v in reductions if v not in self.online]
        return fed + [self.kernel.stores[n][0] for n in stores]

    # --- text -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the text of a phase."""
        super().__init__()
        self.args: list[int] = []
        self.named: list[tuple[tuple[object, ...], str]] = []  # keys hold strides, which are compared but not hashed
        self.lds = 0

    def arg(self, value: int, key: tuple[object, ...] | None = None) -> str:
        """A parameter; values with one key share it."""
        if key is not None:
            for known, name in self.named:
                if known == key:
                    return name
        self.args.append(value)
        name = f"a{len(self.args) - 1}"
        if key is not None:
            self.named.append((key, name))
        return name

    def position(self, value: int, key: tuple[object, ...] | None = None) -> str:
        """A parameter as a position."""
        name = self.arg(value, key)
        return f"(int){name}" if self.index == "int" else name

    def end(self, suffix: str, grid: int, block: int) -> None:
        """Wrap the lines into a function."""
        launched = min(grid, (MAX_THREADS - 1) // block)
        turns = "" if launched == grid else f"group < {self.arg(grid)}; group += {self.arg(launched)}"
        params = self._parameters()
        if len(params) > MAX_WORDS:
            raise CompileError(
                f"[codegen] expected at most {MAX_WORDS} parameters but got {len(params)}; lower PYFLAME_MAX_FUSED"
            )
        name, listed, lines = f"PF_KEY{suffix}", ", ".join(params), self.lines
        if turns:  # blocks take several groups of threads
            lines = [line.replace("pf_block()", "group") for line in lines]
            self.texts.append("\n".join([f"PF_FN void {name}_group(const int64_t group, {listed}) {{", *lines, "}"]))
            given = ", ".join(["group", *(p.split()[-1] for p in params)])
            lines = [f"for (int64_t group = pf_block(); {turns}) {{", f"{name}_group({given});", "pf_barrier();", "}"]
        self.texts.append("\n".join([f"PF_GLOBAL({block}) {name}({listed}) {{", "pf_await();", *lines, "}"]))
        self.phases.append(GpuPhase(suffix, launched, block, tuple(self.args), self.lds))
        self.begin()

    def _parameters(self) -> list[str]:
        """Of a function: buffers, what all kernels get, and the arguments so far."""
        types: dict[int, tuple[str, bool]] = {}
        written = {a.buffer for _, a in self.kernel.stores}
        for a in self.accesses:
            types[a.buffer] = (storage(a.dtype), a.buffer in written)
        params = []
        for n in range(self.count):
            kind, writable = types.get(n, ("void", False))
            params.append(f"{'' if writable else 'const '}{kind} *PF_RESTRICT b{n}")
        params += ["char *PF_RESTRICT scratch", "const pf_word *PF_RESTRICT uni", "int64_t *PF_RESTRICT err"]
        return [*params, *(f"int64_t a{n}" for n in range(len(self.args)))]

    def source(self, scratch_bytes: int = 0) -> GpuSource:
        return GpuSource("\n".join(self.texts) + "\n", tuple(self.phases), self.count, self.asked, scratch_bytes)

    def divided(self, a: str, extent: int, key: tuple[object, ...] | None = None) -> str:
        """a / extent, where 32 bits suffice by multiplication."""
        if self.index == "int64_t":
            return f"{a} / {self.arg(extent, key)}"
        return f"pf_divide({a}, {self.arg(magic(extent), None if key is None else (*key, 'magic'))})"

    def decode(self, flat: str, loops: Sequence[int]) -> None:
        """Loop variables from a flat position in which the last loop counts in vectors."""
        at = flat
        for n in reversed(loops[1:]):
            extent = self.extents[n] // (self.width if n == self.lane else 1)
            self.put(f"const {self.index} d{n} = {self.divided(at, extent, ('extent', n))};")
            self.loop_variable(n, f"{at} - d{n} * {self.position(extent, ('extent', n))}")
            at = f"d{n}"
        if loops:
            self.loop_variable(loops[0], at)

    def loop_variable(self, n: int, value: str) -> None:
        wide = self.width > 1 and n == self.lane
        value = f"({value})" if wide and " " in value else value
        self.put(f"const {self.index} i{n} = {value}{f' * {self.width}' if wide else ''};")

    # --- one value --------------------------------------------------------------------------------------------------

    def offset(self, access: Access, k: str = "") -> str:
        """The element's position; `k` counts the elements of a vector."""
        terms = []
        for n, s in enumerate(access.strides):
            if s:
                i = f"(i{n} + {k})" if k and n == self.lane else f"i{n}"
                terms.append(i if s == 1 else f"{i} * {self.position(s, (access.strides, n))}")
        if self.line is not None and access is self.into_line:
            terms.append(f"({self.index})line * {self.position(self.line.dynamic[0][1])}")
        return " + ".join(terms) or "0"

    def element(self, access: Access, k: str) -> str:
        return f"b{access.buffer}[{self.offset(access, k)}]"

    def statement(self, v: int, k: str = "") -> None:
        instr = self.instrs[v]
        if instr.kind == "gather":
            self.gather(v, k)
        else:
            self.put(f"const {register(instr.dtype)} v{v} = {self.rhs(v, instr, k)};")

    def rhs(self, v: int, instr: Instr, k: str) -> str:
        if instr.kind == "load":
            assert instr.access is not None
            if v in self.staged:
                x = f"(x + {k})" if k else "x"
                return loaded(instr.access.dtype, f"l{v}[{x} * {self.pitch(instr.access.dtype)} + y]")
            vector = k and not self.by_element and self.is_vector(instr.access, self.width)
            if vector and (instr.access.dtype.name == "bfloat16" or self.is_float8(instr.access)):
                return f"pf_{small_float(instr.access.dtype)}_at(q{v}.at, {k})"
            return loaded(instr.access.dtype, f"q{v}.at[{k}]" if vector else self.element(instr.access, k))
        if instr.kind == "uniform":
            field = "f" if instr.dtype.is_float else "i"
            return f"({register(instr.dtype)})pf_uniform_at(uni, {self.arg(instr.uniform)}).{field}"
        if instr.kind == "index":
            assert instr.access is not None
            terms = [self.arg(instr.access.offset)]
            for n, s in enumerate(instr.access.strides):
                if s:
                    i = f"(i{n} + {k})" if k and n == self.lane else f"i{n}"
                    terms.append(f"(int64_t){i} * {self.arg(s)}")
            return f"({register(instr.dtype)})({' + '.join(terms)})"
        text = expression(instr, [f"v{a}" for a in instr.args], [self.instrs[a].dtype for a in instr.args])
        if self.op_name(v) == "exp" and self.op_name(instr.args[0]) == "sub":
            return text.replace("pf_exp(", "pf_exp_near(")  # of a difference, which is rounded already
        return text

    def gather(self, v: int, k: str) -> None:
        """A load at a computed position, checked: a bad index is reported once and read as 0."""
        instr = self.instrs[v]
        assert instr.access is not None
        terms = [self.offset(instr.access, k)]
        for d, (a, (size, stride)) in enumerate(zip(instr.args, instr.dynamic, strict=True)):
            limits = f"{self.arg(size)}, err, {self.arg(instr.check)}"
            self.put(f"const {self.index} x{v}_{d} = ({self.index})pf_checked((int64_t)v{a}, {limits});")
            terms.append(f"x{v}_{d} * {self.position(stride)}")
        text = loaded(instr.access.dtype, f"b{instr.access.buffer}[{' + '.join(terms)}]")
        self.put(f"const {register(instr.dtype)} v{v} = {text};")

    def store(self, n: int, k: str = "") -> None:
        value, access = self.kernel.stores[n]
        self.put(f"{self.element(access, k)} = {stored(access.dtype, f'v{value}')};")

    # --- one vector of a row ----------------------------------------------------------------------------------------

    def body(self, reductions: Sequence[int], stores: Sequence[int], guard: str, slot: str, ready: set[int]) -> None:
        """What one thread does at the loops' present position: feeds reductions and stores.

        `slot`: number of this vector in the arrays of kept values. Those in `ready` are read from there, others that
        are kept are put there. `guard` stands before every store.
        """
        targets = self.targets(reductions, stores)
        values = self.cone(targets, ready - self.raw)
        used = [u for u in sorted(ready) if u in targets or any(u in self.instrs[v].args for v in values)]
        k = "k" if self.width > 1 else ""
        at = f"{slot} * {self.width} + k" if k else slot
        if k:
            fixed = self.fixed(values, ready)
            for v in fixed:
                self.statement(v)
            values = [v for v in values if v not in fixed]
            self.vector_loads(values, slot, ready)
        vectors = [n for n in stores if k and self.is_vector(self.kernel.stores[n][1], self.width)]
        for n in vectors:
            self.put(f"{self.vector(self.kernel.stores[n][1])} s{n};")
        as_floats = [n for n in vectors if self.is_float8(self.kernel.stores[n][1])]
        for n in as_floats:
            self.put(f"float f{n}[{self.width}];")
        if k and 0 in stores and 0 not in vectors:
            self.find_line()
        if k:
            self.put("PF_UNROLL")
            self.open(f"for (int k = 0; k < {self.width}; k++)")
        for u in used:
            if u not in self.raw:
                self.put(f"const {register(self.instrs[u].dtype)} v{u} = r{u}[{at}];")
        for v in values:
            self.statement(v, k)
            if v in self.kept - self.raw:
                self.put(f"r{v}[{at}] = v{v};")
        for team in self.teams(reductions):
            given = [f"v{self.instrs[team[0]].args[0]}", "1.0f"]
            self.put(self.joined(team, [f"c{v}[k]" if k else f"c{v}" for v in team], given))
        if not k and 0 in stores:
            self.find_line()
        for n in stores:
            value, access = self.kernel.stores[n]
            value = self.before_cast(value, access, values)
            if n in as_floats:
                self.put(f"f{n}[k] = v{value};")
                continue
            to = f"s{n}.at[k]" if n in vectors else f"{self.guarded(access, guard)}{self.element(access, k)}"
            self.put(f"{to} = {stored(access.dtype, f'v{value}')};")
        if k:
            self.close()
        for n in as_floats:
            self.put(f"pf_put_{small_float(self.kernel.stores[n][1].dtype)}(s{n}, f{n});")
        if 0 in vectors:  # behind all that is read, which need not wait for it
            self.find_line()
        for n in vectors:
            access = self.kernel.stores[n][1]
            at = f"*({self.vector(access)} *)(b{access.buffer} + {self.offset(access)})"
            self.put(f"{self.guarded(access, guard)}{at} = s{n};")

    def find_line(self) -> None:
        """Find out which line the first store goes to, where an index says so: `line`, below 0 for none."""
        if self.line is not None and self.line.access is not None:
            (lines, _), (keys, _) = self.line.dynamic
            key, limits = self.offset(self.line.access), f"(int){self.arg(keys)}, {self.arg(lines)}"
            found = f"pf_line(b{self.line.access.buffer}, {key}, {limits}, err, {self.arg(self.line.check)})"
            self.put(f"const int64_t line = {found};")

    def guarded(self, access: Access, guard: str) -> str:
        """What stands before a store."""
        return f"{guard}if (line >= 0) " if access is self.into_line else guard

    def vector(self, access: Access) -> str:
        """The type of as many neighbours as a thread takes."""
        return f"pf_vector<{storage(access.dtype)}, {self.width}>"

    def vector_loads(self, values: Sequence[int], slot: str, ready: set[int]) -> None:
        """Vectors of those values that are loaded as such: from memory, or from where they are kept as read."""
        for v in values:
            access = self.instrs[v].access
            if self.instrs[v].kind != "load" or access is None or not self.is_vector(access, self.width):
                continue
            kind = self.vector(access)
            if v in self.raw and v in ready:
                self.put(f"const {kind} q{v} = pf_hidden(r{v}[{slot}]);")
                continue
            self.put(f"const {kind} q{v} = *(const {kind} *)(b{access.buffer} + {self.offset(access)});")
            if v in self.raw:
                self.put(f"r{v}[{slot}] = q{v};")

    def teams(self, reductions: Sequence[int]) -> list[tuple[int, ...]]:
        """Reductions that are combined together: a maximum with the sum that is made beside it, others alone."""
        partner = {high: v for v, high in self.online.items()}
        return [(v, partner[v]) if v in partner else (v,) for v in reductions if v not in self.online]

    def joined(self, team: tuple[int, ...], into: Sequence[str], given: Sequence[str]) -> str:
        """The statement that adds partial results to others."""
        if len(team) == 2:
            return f"pf_online({into[0]}, {into[1]}, {given[0]}, {given[1]});"
        return f"{into[0]} = {combine(self.instrs[team[0]], into[0], given[0])};"

    def is_float8(self, access: Access) -> bool:
        """Whether elements are 8-bit floats, which some GPUs convert by pairs."""
        return access.dtype.is_float and access.dtype.itemsize == 1

    def before_cast(self, v: int, access: Access, values: Sequence[int]) -> int:
        """A value that is stored, or what a cast to the stored type casts, where that is there: it rounds the same."""
        instr = self.instrs[v]
        if (
            instr.op is not None
            and instr.op.name == "cast"
            and small_float(instr.dtype)
            and instr.dtype == access.dtype
        ):
            (source,) = instr.args
            if source in values and self.instrs[source].dtype.compute == instr.dtype.compute:
                return source
        return v

    def fixed(self, values: Sequence[int], ready: set[int]) -> list[int]:
        """Values that are the same for all elements of a vector, and known before its loop."""
        out: list[int] = []
        for v in values:
            inside = [a for a in self.instrs[v].args if a in values or a in ready]
            if self.lane not in self.instrs[v].loops and v not in self.kept and all(a in out for a in inside):
                out.append(v)
        return out
