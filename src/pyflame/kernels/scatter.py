"""Launches of scatter.c: which coordinates are rows and which are columns, and how the work is cut into tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.shape import contiguous_strides
from pyflame.ir.c_types import small_float, storage
from pyflame.ir.kernel import Launch, OperandView, Phase, Source
from pyflame.kernels.ctype import macros
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

GRAIN = 32768  # elements worth waking a thread for
LINE = 64  # columns of one task, at least, where columns run along memory
MAX_PARTS = 8
CACHE_BYTES = 1 << 20

_OP = {"assign": "(b)", "add": "(a) + (b)", "mul": "(a) * (b)", "max": "pf_max(a, b)", "min": "pf_min(a, b)"}


@dataclass(frozen=True)
class Axis:
    """A coordinate of the index space: its extent, and its steps in base, values and each index."""

    extent: int
    steps: tuple[int, ...]


def merge(axes: list[Axis], streams: int) -> list[Axis]:
    """Neighbouring coordinates that every buffer steps through as one are one; there is at least one."""
    out: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if out and all(a == b * axis.extent for a, b in zip(out[-1].steps, axis.steps, strict=True)):
            out[-1] = Axis(out[-1].extent * axis.extent, axis.steps)
        else:
            out.append(axis)
    return out or [Axis(1, (0,) * streams)]


def _text(base: DType, values: DType, mode: str, indices: int) -> str:
    small, small_value = small_float(base), small_float(values)
    op = f"(({_OP[mode]}) != 0)" if base.name == "bool_" else f"({_OP[mode]})"
    if mode == "assign" and base is values:
        small = small_value = None  # bits are moved, not numbers
    defines = {
        "PF_NAME": "PF_KEY_0",
        "PF_CHECK_NAME": "PF_KEY_check",
        "PF_INDICES": str(indices),
        "PF_T": storage(base),
        "PF_LOAD(x)": f"pf_{small}_to_f32(x)" if small else "(x)",
        "PF_STORE(x, v)": f"(x) = pf_f32_to_{small}(v)" if small else f"(x) = ({storage(base)})(v)",
        "PF_VALUE_T": storage(values),
        "PF_VALUE(x)": f"pf_{small_value}_to_f32(x)" if small_value else "(x)",
        "PF_OP(a, b)": op,
    }
    return macros(defines) + '#include "scatter.c"\n'


def scatter_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one scatter."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    axes, dims, region, mode = anchor.attrs
    base, values, *indices = launch.operands
    shape = values.shape
    strides = contiguous_strides(base.shape)
    inner = [over_index_space(view, len(shape)) for view in indices]
    rows: list[Axis] = []
    columns: list[Axis] = []
    for d, extent in enumerate(shape):
        free = [a for a, dim in enumerate(dims) if a not in axes and dim == d]
        step = sum(strides[a] * region[a][1] for a in free)
        axis = Axis(extent, (step, values.strides[d] if extent > 1 else 0, *(s[d] for s in inner)))
        (columns if free else rows).append(axis)
    rows, columns = merge(rows, 2 + len(indices)), merge(columns, 2 + len(indices))
    height, width = prod(a.extent for a in rows), prod(a.extent for a in columns)
    # The side along which values lie next to each other runs inside.
    outside = width > 1 and (height == 1 or abs(columns[-1].steps[1]) <= abs(rows[-1].steps[1]))
    indexed = [(region[a][2], strides[a] * region[a][1]) for a in axes]
    offset = sum(strides[a] * start for a, (start, _, _) in enumerate(region))
    # Steps may be negative: positions are counted from the lowest.
    lowest = sum((size - 1) * step for size, step in indexed if step < 0)
    reach = 1 + sum((size - 1) * abs(step) for size, step in indexed)
    least = max(LINE if outside else 1, -(-GRAIN // max(height, 1)))
    parts = 1
    # Each part scans all indices: that pays where the base is too large for a cache.
    if width < 2 * least and height * width > 8 * GRAIN and anchor.meta.nbytes > CACHE_BYTES:
        parts = min(target.workers, MAX_PARTS, reach)
    head = [anchor.check, int(outside), parts, lowest, reach, height, width, len(rows), len(columns), offset]
    nest = [
        *(n for pair in indexed for n in pair),
        *(n for axis in (*rows, *columns) for n in (axis.extent, *axis.steps)),
    ]
    # Where the base is an input of the plan, nothing is written before all indices are known to be good.
    looked_at = merge([a for a in (*rows, *columns) if any(a.steps[2:])], 2 + len(indices))
    check = [len(looked_at), *(n for axis in looked_at for n in (axis.extent, *axis.steps))]
    phases = [Phase("_0", parts, 1) if parts > 1 else Phase("_0", width, least)]
    if launch.overwrites_input:
        phases.insert(0, Phase("_check", prod(a.extent for a in looked_at), GRAIN))
    args = (*head, len(head) + 1 + len(nest), *nest, *check)
    return Source(_text(base.dtype, values.dtype, mode, len(indices)), tuple(phases), args)


def over_index_space(view: OperandView, rank: int) -> tuple[int, ...]:
    """Strides of an index tensor over the index space, 0 where it is broadcast."""
    own = [0 if size == 1 else step for size, step in zip(view.shape, view.strides, strict=True)]
    return (*[0] * (rank - len(own)), *own)


for _op in ("scatter_at", "scatter_reduce_at"):
    kernel(KernelSpec(_op, "scatter", scatter_source, why="writes in index order, deterministic", strided=True))
