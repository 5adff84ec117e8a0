"""Launches of scatter.hip: which coordinates are keys and which are free, and which way is taken."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.shape import contiguous_strides
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.gpu_source import GpuFunctions, element, position_type, with_magic
from pyflame.kernels.scatter import Axis, merge, over_index_space
from pyflame.kernels.sort_gpu import Sorting, sort_rows
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

BLOCK, PIECE = 256, 32  # as in scatter.hip
SPACES = ("pf_scattering", "pf_sorting")
FEW = 16  # keys that a thread goes through alone
FEW_ASSIGNED = 32  # keys that each thread compares its own with
CLAIM_BYTES = 1 << 26  # of claims that are always worth their memory

_OP = {"assign": "pf_assign", "add": "pf_plus", "mul": "pf_times", "max": "pf_greatest", "min": "pf_least"}


@dataclass(frozen=True)
class Space:
    """The index space: keys and free coordinates, and for each index its size and its steps in base and id."""

    keys: list[Axis]  # steps in base, values, id and each index
    free: list[Axis]  # steps in base and values
    indices: list[tuple[int, int, int]]
    offset: int
    ids: int

    @property
    def height(self) -> int:
        return prod(a.extent for a in self.keys)

    @property
    def width(self) -> int:
        return prod(a.extent for a in self.free)

    @property
    def columns_inside(self) -> bool:
        """Whether neighbouring threads take neighbouring columns: the side along which values lie together."""
        return self.width > 1 and abs(self.free[-1].steps[1]) <= abs(self.keys[-1].steps[1] or self.width)

    def args(self, check: int, scratch: tuple[int, int] = (0, 0), pieces: bool = False) -> list[int]:
        inner = self.width if pieces or self.columns_inside else self.height
        head = [check, self.offset, self.height, self.width, *with_magic([inner]), self.ids, *scratch]
        axes = [n for a in (*self.keys, *self.free) for n in (*with_magic([a.extent]), *a.steps)]
        return [*head, *(n for index in self.indices for n in index), *axes]


def index_space(launch: Launch) -> Space:
    """How the elements of the values fall on the base."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    axes, dims, region, _ = anchor.attrs
    base, values, *indices = launch.operands
    strides = contiguous_strides(base.shape)
    inner = [over_index_space(view, len(values.shape)) for view in indices]
    ids = 1
    indexed: list[tuple[int, int, int]] = []
    for a in reversed(axes):
        _, step, size = region[a]
        indexed.insert(0, (size, strides[a] * step, ids))
        ids *= size
    keys: list[Axis] = []
    free: list[Axis] = []
    for d, extent in reversed(list(enumerate(values.shape))):
        shared = [a for a, dim in enumerate(dims) if a not in axes and dim == d]
        to, own = sum(strides[a] * region[a][1] for a in shared), values.strides[d] if extent > 1 else 0
        moving = tuple(s[d] for s in inner)
        if shared and not any(moving):
            free.insert(0, Axis(extent, (to, own)))
            continue
        keys.insert(0, Axis(extent, (to, own, ids if shared else 0, *moving)))
        ids *= extent if shared else 1
    offset = sum(strides[a] * start for a, (start, _, _) in enumerate(region))
    return Space(merge(keys, 3 + len(indices)), merge(free, 2), indexed, offset, ids)


def scatter_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and arguments of one scatter."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    base, values, *indices = launch.operands
    mode = anchor.attrs[3]
    return _Scatter(launch, index_space(launch), base.dtype, values.dtype, mode, len(indices), target).source()


class _Scatter:
    """One scatter on its way to text."""

    def __init__(
        self, launch: Launch, space: Space, base: DType, values: DType, mode: str, indices: int, target: Target
    ) -> None:
        assert launch.kernel.anchor is not None
        self.space, self.base, self.mode, self.target = space, base, mode, target
        self.check = launch.kernel.anchor.check
        self.guarded = launch.overwrites_input
        self.height, self.width = space.height, space.width
        position = position_type(self.height * self.width + BLOCK, self.height + BLOCK * PIECE)
        self.types = f"pf_space<{indices}, {len(space.keys)}, {len(space.free)}, {position}>"
        same = mode == "assign" and base is values  # bits are moved, not numbers
        self.element = f"pf_of<{storage(base)}>" if same else element(base)
        self.value = f"pf_of<{storage(values)}>" if same else element(values)
        self.op = f"{_OP[mode]}"
        buffers = [storage(base), f"const {storage(values)}", *["const int64_t"] * indices]
        self.made = GpuFunctions("scatter.hip", buffers, [base.itemsize, values.itemsize, *[8] * indices], SPACES)
        self.index = f"const int64_t *index[] = {{{', '.join(f'b{2 + k}' for k in range(indices))}}}; "

    def add(self, suffix: str, count: int, args: list[int], call: str) -> None:
        self.made.add(suffix, -(-count // BLOCK), BLOCK, args, f"{self.index}{call}")

    def source(self) -> GpuSource:
        if self.mode == "assign" and self.height <= FEW_ASSIGNED:
            return self.last()
        if self.height <= FEW:
            types = f"{self.types}, {self.element}, {self.value}, {self.op}, {int(self.guarded)}"
            args = self.space.args(self.check)
            self.add("_0", self.width, args, f"pf_serial<{types}>(b0, b1, index, err, arg);")
            return self.made.source()
        if self.mode == "assign":
            small = 4 * self.space.ids <= max(CLAIM_BYTES, 64 * self.height) and self.height < 1 << 32
            return self.claimed() if small else self.sorted()
        return self.sorted() if self.base.is_float and self.mode in ("add", "mul") else self.atomic()

    def atomic(self) -> GpuSource:
        """Integers and extremes: the order does not matter."""
        args = self.space.args(self.check)
        if self.guarded:
            self.add("_check", self.height, args, f"pf_check<{self.types}>(index, err, arg);")
        native = self.mode == "add" and self.base.is_int and self.base.itemsize >= 4 and self.element == self.value
        flags = f"{int(self.space.columns_inside)}, {int(self.guarded)}, {int(native)}"
        types = f"{self.types}, {self.element}, {self.value}, {self.op}, {flags}"
        self.add("_0", self.height * self.width, args, f"pf_atomic<{types}>(b0, b1, index, err, arg);")
        return self.made.source()

    def last(self) -> GpuSource:
        """Few assignments: nobody waits for those before."""
        flags = f"{int(self.space.columns_inside)}, {int(self.guarded)}"
        call = f"pf_write_last<{self.types}, {self.element}, {self.value}, {flags}>(b0, b1, index, err, arg);"
        self.add("_0", self.height * self.width, self.space.args(self.check), call)
        return self.made.source()

    def claimed(self) -> GpuSource:
        """Assignments: the last key of each id writes."""
        args = self.space.args(self.check)
        claims = "(uint32_t *)scratch"
        self.add("_clear", self.height, args, f"pf_claim<{self.types}, 1>({claims}, index, err, arg);")
        self.add("_claim", self.height, args, f"pf_claim<{self.types}, 0>({claims}, index, err, arg);")
        flags = f"{int(self.space.columns_inside)}, {int(self.guarded)}"
        call = f"pf_write_claimed<{self.types}, {self.element}, {self.value}, {flags}>"
        self.add("_0", self.height * self.width, args, f"{call}(b0, b1, {claims}, index, err, arg);")
        return self.made.source(4 * self.space.ids)

    def sorted(self) -> GpuSource:
        """Keys by id, then sums over runs of an id."""
        wide = 8 if self.space.ids >= 1 << 32 else 4
        kind = f"uint{8 * wide}_t"
        order = wide * (self.height + self.height % 2)
        parts = order + 8 * self.height
        pieces = -(-self.height // PIECE)
        end = parts + 16 * pieces * self.width
        args = self.space.args(self.check, (order, parts), pieces=True)
        ids, found = f"({kind} *)scratch", "(int64_t *)(scratch + arg[PF_ORDER])"
        self.add("_ids", self.height, args, f"pf_ids<{self.types}, {kind}>({ids}, index, err, arg);")
        used = max(1, -(-self.space.ids.bit_length() // 8))
        read = f"(const {kind} *)scratch"
        sorting = Sorting(f"pf_as_is<{kind}>", wide, used, 1, self.height, self.height, read, order, end)
        end = sort_rows(self.made, sorting, self.target)
        places = f"({ids}), {found}, scratch + arg[PF_PARTS], err, arg"
        flags = f"{kind}, {int(self.guarded)}"
        types = f"{self.types}, {self.element}, {self.value}, {self.op}, {flags}"
        self.add("_combine", pieces * self.width, args, f"pf_combine<{types}>(b0, b1, index, {places});")
        types = f"{self.types}, {self.element}, {self.op}, {flags}"
        self.add("_carry", pieces * self.width, args, f"pf_carry<{types}>(b0, index, {places});")
        return self.made.source(end)


for _op in ("scatter_at", "scatter_reduce_at"):
    kernel(
        KernelSpec(
            _op,
            "scatter_gpu",
            scatter_source,
            languages=("hip", "cuda"),
            why="as in index order, the same bits in every run",
            strided=True,
        )
    )
