"""Values of a Kernel as C statements: loads, expressions, gathers and stores, and the order in which they are known.

The loops around them are `c.py`'s. One loop of the nest, `simd`, is left to the vectoriser: inside it, lane `l` stands
for one position. In a tile that loop runs over neighbouring rows, so values of a row are arrays over its lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from pyflame.codegen.expr import expression, loaded, register, stored
from pyflame.codegen.loops import along_memory
from pyflame.codegen.text import Writer
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Access, Kernel

SHORT_ROW, MANY_ROWS = 32, 64  # elements up to which a row is no work for lanes, and rows from which on they take these
LANES = 64  # partial results of a reduction along memory
TILE = 256  # neighbouring rows taken at once by a reduction across memory


class Values(Writer):
    """Writes the values of one kernel; which of them are `defined` at the current place is kept up to date."""

    def __init__(self, kernel: Kernel, first_arg: int = 0, scratch: int | None = None) -> None:
        super().__init__()
        self.kernel = kernel
        self.first_arg = first_arg
        self.scratch = scratch  # an anchor's scratch buffer; those behind it move up by one
        self.args: list[int] = []
        self.defined: set[int] = set()
        self.stored: set[int] = set()  # numbers of stores already written
        self.placed: set[int] = set()  # gathers whose pointer stands at their indices already
        scopes = kernel.loop_scope()
        self.loops_of = [[n for n, s in enumerate(scopes) if s == d] for d in range(kernel.depth)]
        self.extents = [e for s in kernel.loops for e in s]
        self.last = kernel.depth - 1
        self.tile = self.last == 1 and self.prefers_tile()
        self.simd = self.loops_of[0][-1] if self.tile else self.loops_of[self.last][-1]
        self.lanes = TILE if self.tile else LANES
        self.laned = self.find_laned() if self.tile else set()  # values of a tile that differ from lane to lane

    def prefers_tile(self) -> bool:
        """Whether memory runs along the rows' last loop rather than along the reduction, or rows are short and many."""
        if not self.loops_of[0]:
            return False
        outer, inner = self.loops_of[0][-1], self.loops_of[1][-1]
        if prod(self.extents[n] for n in self.loops_of[1]) <= SHORT_ROW and self.extents[outer] >= MANY_ROWS:
            return True
        reads = [i.access for i in self.kernel.instrs if i.kind == "load" and i.access is not None and i.scope == 1]
        return along_memory(reads, outer) > along_memory(reads, inner) and self.extents[outer] > 1

    def find_laned(self) -> set[int]:
        """In a tile every reduction is an array over the lanes, and so is what follows from one."""
        found: set[int] = set()
        for v, instr in enumerate(self.kernel.instrs):
            if instr.kind == "reduce" or self.simd in instr.loops or any(a in found for a in instr.args):
                found.add(v)
        return found

    # --- arguments and buffers --------------------------------------------------------------------------------------

    def arg(self, value: int) -> str:
        self.args.append(value)
        return f"arg[{self.first_arg + len(self.args) - 1}]"

    def buffer(self, number: int) -> str:
        return f"buf[{number + (self.scratch is not None and number >= self.scratch)}]"

    def buffers(self) -> list[int]:
        used = {i.access.buffer for i in self.kernel.instrs if i.access is not None and i.access.buffer >= 0}
        return sorted(used | {a.buffer for _, a in self.kernel.stores})

    # --- which values, when -----------------------------------------------------------------------------------------

    def cone(self, targets: Iterable[int], stop: set[int], scope: int | None = None) -> list[int]:
        """Undefined values that the targets need, in order, without entering reductions. Given a scope, those inside of
        its loops are entered: what they need must be known before the loops begin."""
        seen: set[int] = set()
        stack = [t for t in targets if t not in stop]
        while stack:
            v = stack.pop()
            if v in seen or v in stop:
                continue
            seen.add(v)
            instr = self.kernel.instrs[v]
            if instr.kind != "reduce" or (scope is not None and instr.scope > scope):
                stack.extend(instr.args)
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
                below = [u for u in self.cone(instr.args, self.defined, scope) if instrs[u].scope <= scope]
            else:
                below = [u for u in instr.args if u not in self.defined]
            if not ready:
                stack.append((v, True))
                stack.extend((u, False) for u in below if u not in out)
                continue
            level = max((out[u] for u in below), default=0)
            out[v] = level + 1 if instr.kind == "reduce" and instr.scope == scope else level
        return out

    def crossing_loop(self, loops: list[int]) -> int | None:
        """A loop along which some access runs through memory while the simd loop jumps: both must be cut into tiles."""
        accesses = [i.access for i in self.kernel.instrs if i.kind == "load" and i.access is not None]
        accesses += [a for _, a in self.kernel.stores]
        for n in loops:
            if self.extents[n] >= 8 and any(a.strides[n] == 1 and abs(a.strides[self.simd]) > 8 for a in accesses):
                return n
        return None

    # --- statements -------------------------------------------------------------------------------------------------

    def decode(self, flat: str, loops: list[int], kept: bool = False) -> None:
        """Loop variables from a flat index. `kept`: they are counted on from there."""
        kind = "int64_t" if kept else "const int64_t"
        if not loops:
            return
        if len(loops) == 1:
            self.put(f"{kind} i{loops[0]} = {flat};")
            return
        at = f"at{loops[0]}"
        self.put(f"int64_t {at} = {flat};")
        for n in reversed(loops[1:]):
            self.put(f"const int64_t e{n} = {self.arg(self.extents[n])}, d{n} = pf_div({at}, e{n});")
            self.put(f"{kind} i{n} = {at} - d{n} * e{n};")
            self.put(f"{at} = d{n};")
        self.put(f"{kind} i{loops[0]} = {at};")

    def advance(self, loops: list[int]) -> None:
        """Loop variables that were decoded and kept, for the next flat index."""
        for n in reversed(loops[1:]):
            self.put(f"if (++i{n} == e{n}) {{ i{n} = 0;")
        if loops:
            self.put(f"i{loops[0]}++;" + " }" * (len(loops) - 1))

    def statements(self, values: list[int]) -> None:
        """Values of the current scope; in a tile each is computed for all lanes."""
        lanes = [v for v in values if v in self.laned]
        for v in values:
            if v not in lanes:
                self.statement(v)
        if lanes:
            for v in lanes:
                self.put(f"{register(self.kernel.instrs[v].dtype)} v{v}[{self.lanes}];")
            kinds = {v: self.kernel.instrs[v].kind for v in lanes}
            pointers = {
                v: self.pointer(self.kernel.instrs[v].access, f"q{v}", "tile")
                for v in lanes
                if kinds[v] in ("load", "gather")
            }
            self.put("#pragma omp simd")
            self.open("for (int64_t l = 0; l < lanes; l++)")
            for v in lanes:
                if kinds[v] == "gather":
                    self.gather(v, "l", pointers[v], f"v{v}[l]")
                else:
                    self.put(f"v{v}[l] = {self.rhs(v, 'l', pointers.get(v))};")
                self.defined.add(v)
            self.close()

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
        return f"v{v}[{lane}]" if v in self.laned and self.kernel.instrs[v].scope == 0 else f"v{v}"

    def statement(self, v: int, at: str = "0", pointer: tuple[str, str] | None = None, start: str = "0") -> None:
        instr = self.kernel.instrs[v]
        if pointer is None and instr.kind in ("load", "gather"):
            pointer = self.pointer(instr.access, f"q{v}", "0")
        if instr.kind == "gather" and v not in self.placed:
            self.gather(v, at, pointer, f"const {register(instr.dtype)} v{v}")
        else:
            self.put(f"const {register(instr.dtype)} v{v} = {self.rhs(v, at, pointer, start)};")
        self.defined.add(v)

    def rhs(self, v: int, at: str, pointer: tuple[str, str] | None = None, start: str = "tile") -> str:
        instr = self.kernel.instrs[v]
        if instr.kind == "load" or v in self.placed:
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
                place = f"({start} + {at})" if n == self.simd else f"i{n}"
                if s:  # NEON has no product of 64-bit integers: it would keep the loop from being vectorised
                    terms.append(place if s == 1 else f"{place} * {self.arg(s)}")
            return f"({register(instr.dtype)})({' + '.join(terms)})"
        dtypes = [self.kernel.instrs[a].dtype for a in instr.args]
        return expression(instr, [self.use(a, "l") for a in instr.args], dtypes)

    def gather(self, v: int, at: str, pointer: tuple[str, str] | None, target: str) -> None:
        """A load at a computed position."""
        instr = self.kernel.instrs[v]
        assert instr.access is not None and pointer is not None
        terms = self.gathered(v)
        name, step = pointer
        inner = instr.access.strides[self.simd]
        if inner and at != "0":
            terms.append(at if inner == 1 else f"{at} * {step}")
        text = loaded(instr.access.dtype, f"{name}[{' + '.join(terms)}]")
        self.put(f"{target} = {text};")

    def gathered(self, v: int) -> list[str]:
        """What the indices of a gather add to its address, checked: a bad index is reported once and read as 0."""
        instr = self.kernel.instrs[v]
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
        return terms

    def store(self, n: int) -> None:
        """A store of a row value."""
        value, access = self.kernel.stores[n]
        self.stored.add(n)
        if self.tile and access.strides[self.simd]:
            pointer = self.pointer(access, f"s{n}", "tile", const=False)
            self.put("#pragma omp simd")
            text = stored(access.dtype, self.use(value, "l"))
            self.put(f"for (int64_t l = 0; l < lanes; l++) {self.element(pointer, access, 'l')} = {text};")
            return
        pointer = self.pointer(access, f"s{n}", "0", const=False)
        self.put(f"*{pointer[0]} = {stored(access.dtype, self.use(value, '0'))};")
