"""Host side of conv.hip: which way a convolution takes on a GPU, in which tiles and parts.

The text depends on dtype, on the number of spatial axes, on whether x is dilated, on which direction is contiguous and
on the tile; extents and strides are arguments. How k is cut depends on shape and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from pyflame.core.device import Target
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import contiguous_strides, magic
from pyflame.core.traced import whole
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.conv import ConvShape, merge_axes
from pyflame.kernels.matrix_async import AsyncTile, async_tiles, one_after_another
from pyflame.kernels.matrix_cores import PIECE_BYTES, MatrixKind, MatrixTile, kind_of, matrix_kind, matrix_tiles
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    MANY_PARTS,
    MAX_PARTS,
    PARTS_WIDTH,
    TIMED,
    VARIANTS,
    Cut,
    PhaseText,
    T,
    Tiling,
    adding_phase,
    best_cuts,
    check_extents,
    choose_cut,
    finish_phase,
    gpu_source,
    late_args,
    partial_out,
    round_up,
    sums_of,
    value_type,
)

FEW = 8  # output channels per group up to which a thread takes them all
_THREADS = 256
_SHORT = 64  # k that one thread walks over even where there are few pixels
_LARGEST = 1 << 31
_MASK_BITS = 32
_EDGE = 32  # of a square of partial sums
_PHASES = 4  # whose arguments a launch has
_WIDE = 256  # channels of the largest blocks
_CHANNELS = 2  # which of a result's axes they are


@dataclass(frozen=True)
class Convolution:
    """A convolution with the axes that count, and the strides of x (n, g, c, axes) and w (g, o, c, axes).

    `phases`: those of which it is one, in the order of their blocks. A phase begins with the number `w_at` of w and the
    pixel `out_at` of the result, along whose axes its pixels lie `out_steps` apart, and may have no taps.
    """

    shape: ConvShape
    x: tuple[int, ...]
    w: tuple[int, ...]
    axes: tuple[int, ...]  # of the three, those that count
    phases: tuple[Convolution, ...] = ()
    w_at: int = 0
    out_at: int = 0
    out_steps: tuple[int, ...] = ()

    @property
    def k(self) -> int:
        return self.shape.c * prod(self.shape.taps)

    @property
    def mean_k(self) -> int:
        """Of all phases, of which some may meet nothing."""
        return max(1, sum(phase.k * phase.shape.n * phase.pixels for phase in self.each) // max(1, self.columns))

    @property
    def pixels(self) -> int:
        return prod(self.shape.out)

    @property
    def places(self) -> int:
        return self.shape.n * self.shape.groups * self.pixels

    @property
    def outputs(self) -> int:
        return self.places * self.shape.o

    def blocked(self, target: Target) -> bool:
        """Whether blocks share tiles of outputs; else there are few channels, or few pixels and a short k."""
        few = self.k <= _SHORT or self.places >= _THREADS * target.workers
        return self.shape.o > FEW or (self.shape.groups == 1 and self.shape.o > 1 and not few)

    def in_phases(self) -> Convolution:
        """The largest of the phases of a dilated input, without the zeros between its elements; else the convolution.

        An output position p = D*q + r meets only taps k = D*j + k0 with k0 = (lo - r) mod D, and those at position
        q + j - (lo - r - k0)/D of the input: for each r an ordinary convolution by every D-th tap.
        """
        shape, ones = self.shape, (1, 1, 1)
        plain = shape.stride == shape.rhs_dilation == ones
        if not self.dilated or not plain or prod(shape.lhs_dilation) > _PHASES:
            return self
        starts = product(*(range(min(d, n)) for d, n in zip(shape.lhs_dilation, shape.out, strict=True)))
        found = sorted(map(self._phase, starts), key=lambda phase: -phase.k)  # what takes longest begins first
        return replace(found[0], phases=tuple(found))

    def _phase(self, start: tuple[int, ...]) -> Convolution:
        shape = self.shape
        by, steps, first = shape.lhs_dilation, contiguous_strides(shape.out), []
        axes: list[tuple[int, int, int]] = []
        for d, lo, r, k, n in zip(by, shape.pad_lo, start, shape.taps, shape.out, strict=True):
            tap = (lo - r) % d
            first.append(tap)
            axes.append((max(0, -(-(k - tap) // d)), -(-(n - r) // d), (lo - r - tap) // d))
        taps, out, low = zip(*axes, strict=True)
        return Convolution(
            replace(shape, taps=taps, out=out, pad_lo=low, lhs_dilation=(1, 1, 1)),
            self.x,
            (*self.w[:3], *(d * step for d, step in zip(by, self.w[3:], strict=True))),
            self.axes,
            w_at=sum(k * step for k, step in zip(first, self.w[3:], strict=True)),
            out_at=sum(r * step for r, step in zip(start, steps, strict=True)),
            out_steps=tuple(by[a] * steps[a] for a in self.axes),
        )

    @property
    def each(self) -> tuple[Convolution, ...]:
        """What a launch takes: all phases."""
        return self.phases or (self,)

    def in_tap(self, depth: int) -> bool:
        """Whether each step of so many k lies in one tap, as bits of taps say where there are several."""
        if all(prod(phase.shape.taps) <= 1 for phase in self.each):
            return True
        return self.mask == 1 and self.channels_last and self.shape.c % depth == 0

    @property
    def columns(self) -> int:
        """Pixels of all images, of all phases."""
        return sum(phase.shape.n * phase.pixels for phase in self.each)

    @property
    def dilated(self) -> bool:
        return any(self.shape.lhs_dilation[a] != 1 for a in self.axes)

    @property
    def channels_last(self) -> bool:
        """Whether channels should be the fastest axis of k."""
        return self.x[2] == 1 and self.shape.c > 1 and self.x[3 + self.axes[-1]] != 1

    @property
    def x_along_k(self) -> bool:
        """Whether longer stretches of x lie along k than along pixels."""
        shape, last = self.shape, self.axes[-1]
        step = self.x[3 + last]
        pixels = shape.out[last] if abs(step * shape.stride[last]) <= shape.lhs_dilation[last] else 1
        taps = shape.taps[last] if abs(step * shape.rhs_dilation[last]) <= shape.lhs_dilation[last] else 1
        return (shape.c if self.channels_last else taps) > pixels

    @property
    def w_along_k(self) -> bool:
        return self.w[1] != 1

    @property
    def images_last(self) -> bool:
        """Whether images, which are channels where this is a weight's gradient, lie side by side in x."""
        return self.x[0] == 1 and self.shape.n > 1

    @property
    def groups_last(self) -> bool:
        """Whether groups lie closer together in x than pixels do."""
        return self.shape.groups > 1 and abs(self.x[1]) < abs(self.x[3 + self.axes[-1]])

    @property
    def small(self) -> bool:
        """Whether positions inside of a group fit in 31 bits."""
        shape = self.shape
        x = (shape.n - 1) * abs(self.x[0]) + (shape.c - 1) * abs(self.x[2])
        w = (shape.o - 1) * abs(self.w[1]) + (shape.c - 1) * abs(self.w[2])
        for a in self.axes:
            # A window may reach beyond x on both sides before it is found outside.
            reach = (shape.out[a] - 1) * shape.stride[a] + (shape.taps[a] - 1) * shape.rhs_dilation[a]
            x += (reach + abs(shape.pad_lo[a]) + shape.size[a]) * abs(self.x[3 + a])
            w += (shape.taps[a] - 1) * abs(self.w[3 + a])
        return max(x, w) < _LARGEST

    @property
    def mask(self) -> int:
        """conv.hip's MASK: bits of few taps, or of few pixels."""
        if self.dilated:
            return 0
        few_pixels = all(phase.pixels <= _MASK_BITS for phase in self.each)
        return 1 if prod(self.shape.taps) <= _MASK_BITS else 2 * few_pixels

    @property
    def tap_bytes(self) -> int:
        """Of both of LDS's pf_tap of one k of a step."""
        return 2 * round_up(2 * (4 if self.small else 8) + 4 * (1 if self.mask else len(self.axes)), 16)

    def x_vector(self, width: int) -> bool:
        """Whether `width` neighbours of x, along k or across columns, are always a vector of one tap."""
        shape, spatial = self.shape, [(self.shape.size[a], self.x[3 + a]) for a in self.axes]
        if self.x_along_k:
            rest = [(shape.n, self.x[0]), (shape.groups, self.x[1]), *spatial]
            return self.channels_last and _whole(width, shape.c, rest)
        return self.images_last and _whole(width, shape.n, [(shape.groups, self.x[1]), (shape.c, self.x[2]), *spatial])

    def w_vector(self, width: int) -> bool:
        """The same of w, whose taps may lie side by side too."""
        shape = self.shape
        groups, along = (shape.groups, self.w[0]), [(e, w) for e, _, w in self.k_axes(self.channels_last) if e > 1]
        if self.w_at % width:
            return False
        if not self.w_along_k:
            return _whole(width, shape.o, [groups, *along])
        together = 1
        while along and along[-1][1] == together:
            together *= along.pop()[0]
        return _whole(width, together, [groups, (shape.o, self.w[1]), *along])

    def k_axes(self, channels_last: bool) -> list[tuple[int, int, int]]:
        """Extent, step in x and step in w of each axis of k, the slowest first."""
        shape = self.shape
        steps = [0 if self.dilated else shape.rhs_dilation[a] * self.x[3 + a] for a in self.axes]
        taps = [(max(1, shape.taps[a]), step, self.w[3 + a]) for a, step in zip(self.axes, steps, strict=True)]
        channels = (shape.c, self.x[2], self.w[2])
        return [*taps, channels] if channels_last else [channels, *taps]

    def bits(self, mask: int) -> list[int]:
        """Of each axis PF_AXIS_BITS: of all places along it, and the first ones along the axes behind it."""
        extents = [max(1, self.shape.taps[a]) if mask == 1 else self.shape.out[a] for a in self.axes]
        return [_bits_apart(e, prod(extents[n + 1 :])) if mask else 0 for n, e in enumerate(extents)]

    def args(self, split: int, parts: int, channels_last: bool, mask: int = 0) -> tuple[int, ...]:
        """The arguments of every phase that multiplies, and of the one that adds parts."""
        shape = self.shape
        head = [
            shape.o, shape.n * self.pixels, self.k, self.pixels, magic(self.pixels), shape.groups, magic(shape.groups),
            split, shape.n * shape.groups, shape.n, magic(shape.n), magic(shape.o), magic(shape.n * self.pixels), parts,
            self.x[0], self.x[1], self.w[0], self.w[1],
        ]  # fmt: skip
        for extent, x, w in self.k_axes(channels_last):
            head += [extent, magic(extent), x, w]
        for a, bits in zip(self.axes, self.bits(mask), strict=True):
            head += [
                shape.out[a], magic(shape.out[a]), shape.stride[a], shape.pad_lo[a], shape.size[a],
                shape.rhs_dilation[a], self.x[3 + a], shape.lhs_dilation[a], magic(shape.lhs_dilation[a]), bits,
            ]  # fmt: skip
        return tuple(head)

    def phase_args(self, blocks: int) -> tuple[int, ...]:
        """What follows a phase's arguments."""
        return blocks, self.w_at, self.out_at, *self.out_steps


@whole
def _bits_apart(count: int, step: int) -> int:
    return sum(1 << n * step for n in range(count))


def _whole(width: int, extent: int, others: Sequence[tuple[int, int]]) -> bool:
    """Whether so many neighbours begin at a multiple of `width`, wherever the other axes (extent, stride) are."""
    return extent % width == 0 and all(stride % width == 0 for n, stride in others if n > 1)


def convolution(launch: Launch) -> Convolution:
    """The convolution of a launch, without axes of size 1."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    x, w = launch.operands
    n, groups, c, s0, s1, s2 = x.shape
    _, o, _, k0, k1, k2 = w.shape
    shape, x_strides = merge_axes(
        ConvShape(n, groups, c, o, (s0, s1, s2), (k0, k1, k2), *_geometry(anchor.attrs)), x.strides
    )
    axes = [
        a
        for a in range(3)
        if (shape.size[a], shape.taps[a], shape.out[a], shape.pad_lo[a]) != (1, 1, 1, 0)
    ]  # fmt: skip
    return Convolution(shape, x_strides, w.strides, tuple(axes or [2]))


def _geometry(attrs: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """The op's attributes in the order of ConvShape."""
    stride, pad_lo, out, lhs_dilation, rhs_dilation = attrs
    return out, stride, pad_lo, lhs_dilation, rhs_dilation


def conv_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one convolution. `aligned` False: for buffers that lie misaligned."""
    made = convolution(launch)
    shape = made.shape
    check_extents("conv", (shape.n * made.pixels, made.k, shape.o, shape.n * shape.groups))
    assert epilogue is not None
    if made.blocked(target):
        made = made.in_phases()
        matrix = _matrix_kind(launch, target)
        if matrix is None:
            return _tiles(launch, made, target, epilogue)
        cut = _cuts(launch, made, target, matrix, aligned)[launch.variant if aligned else 0]
        if isinstance(cut.tile, AsyncTile):
            return _by_copies(launch, made, target, epilogue, matrix, cut)
        return _matrix_tiles(launch, made, epilogue, matrix, cut, aligned)
    check_extents("conv", (made.places,))
    if made.k <= _SHORT or made.places >= _THREADS * target.workers:
        return _direct(launch, made, epilogue)
    return _dot(launch, made, target, epilogue)


def conv_variants(launch: Launch, target: Target) -> tuple[str, ...]:
    """The blocks of matrix tiles to try out."""
    made, matrix = convolution(launch), _matrix_kind(launch, target)
    if matrix is None or launch.flops < TIMED or not made.blocked(target):
        return ()
    return tuple(map(str, _cuts(launch, made.in_phases(), target, matrix, aligned=True)[:VARIANTS]))


def _matrix_kind(launch: Launch, target: Target) -> MatrixKind | None:
    """Of bytes a thread fetches so many at once, where they do not lie together, that registers do not suffice."""
    dtype = launch.operands[0].dtype
    return matrix_kind(target, dtype, tf32_allowed()) if dtype.is_float else None


def _cuts(
    launch: Launch, made: Convolution, target: Target, matrix: MatrixKind, aligned: bool
) -> tuple[Cut[MatrixTile], ...]:
    """Blocks of matrix tiles and cuts of k, the fastest first, as far as one can tell."""
    shape, sums, columns = made.shape, sums_of(launch.operands[0].dtype).nbytes, made.columns
    rest = (made.mean_k, shape.groups, sums, target.workers, bool(made.phases))
    copied: tuple[MatrixTile, ...] = _async_tiles(launch, made, target, matrix) if aligned else ()
    if copied:  # whose rows are pixels
        cuts = best_cuts(copied, columns, shape.o, *rest)
        return *(c for cut in cuts if (c := _in_halves(made, cut, target.workers)) is not None), *cuts
    return best_cuts(matrix_tiles(target, matrix, sums, made.tap_bytes), shape.o, columns, *rest)


def _in_halves(made: Convolution, cut: Cut[MatrixTile], workers: int) -> Cut[MatrixTile] | None:
    """The cut with the tiles of its last round in halves, where all those run at once."""
    tile, alone = cut.tile, made.shape.groups == cut.parts == len(made.each) == 1
    down, across = -(-made.shape.o // tile.cols), -(-made.columns // tile.rows)
    rest = down * across % workers
    fits = isinstance(tile, AsyncTile) and tile.wgmma and tile.resident == 1 and tile.cols == _WIDE
    if not (alone and fits and workers < down * across and 0 < 2 * rest <= workers and rest % down == 0):
        return None
    return replace(cut, halves=rest)


def _source(
    launch: Launch,
    made: Convolution,
    kind: dict[str, int],
    phases: Sequence[PhaseText],
    epilogue: Epilogue,
    parts: int,
    widths: Sequence[int] = (1, 1),
    types: dict[str, str] | None = None,
    functions: tuple[str, ...] = (),
    file: str = "conv.hip",
) -> GpuSource:
    """One launch, or with partial sums two."""
    scratch = parts * made.outputs * sums_of(launch.operands[0].dtype).nbytes if parts > 1 else 0
    kind = {**kind, "RANK": len(made.axes), "DILATED": int(made.dilated), "PHASES": len(made.each)}
    types = {"pos": "int" if made.small else "int64_t", **(types or {})}
    alignment = [width * v.dtype.itemsize for width, v in zip(widths, launch.operands, strict=True)]
    return gpu_source(file, launch, kind, types, phases, epilogue, alignment, scratch, functions)


def _tiles(launch: Launch, made: Convolution, target: Target, epilogue: Epilogue) -> GpuSource:
    """By pf_tile.h, number by number."""
    shape, sums = made.shape, sums_of(launch.operands[0].dtype)
    whole = bool(made.phases)
    cut = choose_cut(shape.o, made.columns, made.mean_k, shape.groups, sums.nbytes, target.workers, whole)
    kind = {**cut.tile.defines(), "WIDTH": 1, **_orders(made), "O_LAST": 0}
    phases = _blocks(launch, made, "tile", cut, cut.tile.lds_bytes(sums.nbytes))
    return _source(launch, made, kind, phases, epilogue, cut.parts)


def _matrix_tiles(
    launch: Launch, made: Convolution, epilogue: Epilogue, matrix: MatrixKind, cut: Cut[MatrixTile], aligned: bool
) -> GpuSource:
    """By pf_mma_loop.h."""
    x, sums, tile = launch.operands[0], sums_of(launch.operands[0].dtype), cut.tile
    wide = (tile.widths[made.x_along_k], Convolution.x_vector), (tile.widths[made.w_along_k], Convolution.w_vector)
    widths = [
        n if aligned and all(whole(p, n) for p in made.each) and at % (n * x.dtype.itemsize) == 0 else 1
        for (n, whole), (_, at) in zip(wide, launch.buffers[:2], strict=True)
    ]
    o_last = cut.parts == 1 and epilogue.along == "i"
    kind = {
        **tile.defines(), "AS_IS": int(matrix.as_is), **_orders(made), "X_VECTOR": int(widths[0] > 1),
        "W_VECTOR": int(widths[1] > 1), "O_LAST": int(o_last),
        "OUT_WIDTH": epilogue.width if o_last or (cut.parts == 1 and not made.images_last and not made.phases) else 1,
    }  # fmt: skip
    types, function = kind_of(x.dtype, matrix)
    phases = _blocks(launch, made, "mma", cut, tile.lds_bytes(sums.nbytes))
    return _source(launch, made, kind, phases, epilogue, cut.parts, widths, types, (function,))


def _async_tiles(launch: Launch, made: Convolution, target: Target, matrix: MatrixKind) -> tuple[AsyncTile, ...]:
    """Blocks of pf_mma_async.h, where both operands lie in pieces that are copied as they are."""
    width, sums = PIECE_BYTES // matrix.nbytes, sums_of(launch.operands[0].dtype).nbytes
    whole = all(p.x_vector(width) and p.w_vector(width) for p in made.each)
    if not whole or any(at % PIECE_BYTES for _, at in launch.buffers[:2]):
        return ()
    tiles = async_tiles(target, matrix, sums, clusters=False)
    return tuple(t for t in tiles if t.lds_bytes(sums) + _taps(made, t) * made.tap_bytes <= target.lds_bytes)


def _taps(made: Convolution, tile: Tiling) -> int:
    """Those that LDS holds twice: of a step, or of several that all threads work out together (conv_async.hip)."""
    if not isinstance(tile, AsyncTile):
        return tile.depth
    if made.in_tap(tile.depth):
        return 0
    return max(tile.depth, tile.threads) if made.mask == 2 else tile.depth


def _by_copies(
    launch: Launch, made: Convolution, target: Target, epilogue: Epilogue, matrix: MatrixKind, cut: Cut[MatrixTile]
) -> GpuSource:
    """By conv_async.hip."""
    shape, sums, tile = made.shape, sums_of(launch.operands[0].dtype), cut.tile
    if cut.parts > 1:
        out_width = PARTS_WIDTH if shape.o % PARTS_WIDTH == 0 else 1
    else:
        out_width = epilogue.width if epilogue.along == "i" else 1
    kind = {
        **tile.defines(), **_orders(made), "A_ALONG_K": int(made.x_along_k), "B_ALONG_K": int(made.w_along_k),
        "IN_TAP": int(made.in_tap(tile.depth)), "O_LAST": 1, "OUT_WIDTH": out_width,
        "TURNED": int(cut.parts == 1 and not _along_channels(launch)),
    }  # fmt: skip
    types, _ = kind_of(launch.operands[0].dtype, matrix)
    widths = tuple(tile.widths.values())
    phases = _blocks(launch, made, "async", cut, 0, tile.lds_bytes(sums.nbytes))
    if cut.halves:
        phases = [_halved(launch, made, cut, phases[0])]
    elif not made.phases:
        phases[0] = one_after_another(phases[0], tile, kind, target.workers)
    if 1 < cut.parts < MANY_PARTS and not _along_channels(launch):
        phases[1] = _turning(launch, made, phases[1].args)
    return _source(launch, made, kind, phases, epilogue, cut.parts, widths, types, (), "conv_async.hip")


def _halved(launch: Launch, made: Convolution, cut: Cut[MatrixTile], phase: PhaseText) -> PhaseText:
    """The launch with its last tiles in halves."""
    tile, first = cut.tile, len(phase.args)
    down, halves = -(-made.shape.o // tile.cols), -(-made.shape.o // (tile.cols // 2))
    whole, across = phase.grid - cut.halves, cut.halves // down
    given = f"b0, b1, {late_args(launch)}, pf_block() - (int)a{first}, out, 0, 0, (int)a{first + 1}"
    body = f"if (pf_block() < a{first}) {phase.body}\n  else pf_conv_async<pf_conv_halves<PF_KEY_kind>>({given});"
    args = (*phase.args, whole, whole // down * tile.rows)
    return replace(phase, grid=whole + halves * across, args=args, body=body, lds_bytes=2 * phase.lds_bytes)


def _along_channels(launch: Launch) -> bool:
    """Whether output channels lie side by side in what is stored."""
    return launch.kernel.stores[0][1].strides[_CHANNELS] == 1


def _turning(launch: Launch, made: Convolution, args: tuple[int, ...]) -> PhaseText:
    """The launch that adds partial sums of results that lie along pixels."""
    tiles = -(-made.shape.o // _EDGE) * -(-made.shape.n * made.pixels // _EDGE) * made.shape.groups
    width = PARTS_WIDTH if made.shape.o % PARTS_WIDTH == 0 else 1
    body = f"pf_conv_finish_turned<PF_KEY_kind, {_THREADS}, {_EDGE}, {width}>(scratch, {late_args(launch)}, out);"
    lds = _EDGE * (_EDGE + 1) * sums_of(launch.operands[0].dtype).nbytes
    return PhaseText(tiles, _THREADS, args, body, stores=True, lds_bytes=lds)


def _orders(made: Convolution) -> dict[str, int]:
    return {
        "C_LAST": int(made.channels_last), "X_ALONG_K": int(made.x_along_k), "W_ALONG_K": int(made.w_along_k),
        "N_LAST": int(made.images_last), "MASK": made.mask,
    }  # fmt: skip


def _blocks(
    launch: Launch, made: Convolution, way: str, cut: Cut[T], lds: int, dynamic_lds: int = 0
) -> list[PhaseText]:
    """A block for each of a group's tiles; then a thread for each output, where k is cut into parts."""
    tile, sums = cut.tile, sums_of(launch.operands[0].dtype)
    channels, pixels = (tile.cols, tile.rows) if way == "async" else (tile.rows, tile.cols)
    grids = [
        -(-p.shape.o // channels) * -(-p.shape.n * p.pixels // pixels) * p.shape.groups * cut.parts for p in made.each
    ]
    grid, whole, given = sum(grids), cut.parts == 1, late_args(launch)
    out = "out" if whole else f"pf_conv_parts<{sums.sum}>{{({sums.sum} *)scratch}}"
    if made.phases:
        each = [
            (p.args(p.k, 1, made.channels_last, made.mask), p.phase_args(n))
            for p, n in zip(made.each, grids, strict=True)
        ]
        args = tuple(word for words in each for some in words for word in some)
        body = f"pf_late_args mine = {given};\n  int block = pf_block();\n  PF_CONV_PHASE(PF_KEY_kind, mine, block)\n"
        body += f"  pf_conv_{way}<PF_KEY_kind>(b0, b1, mine, block, {out});"
    else:
        args = made.args(cut.split, cut.parts, made.channels_last, made.mask)
        body = f"pf_conv_{way}<PF_KEY_kind>(b0, b1, {given}, pf_block(), {out});"
    lds += _taps(made, tile) * made.tap_bytes
    phase = PhaseText(grid, tile.threads, args, body, whole, lds, dynamic_lds)
    if whole:
        return [phase]
    add = "pf_conv_finish<PF_KEY_kind", f"scratch, {given}, out"
    return [phase, adding_phase(*add, made.outputs, cut.parts, sums.nbytes, args)]


def _direct(launch: Launch, made: Convolution, epilogue: Epilogue) -> GpuSource:
    shape = made.shape
    kind = {"C_LAST": 0, "FEW": shape.o, "THREADS": _THREADS, "G_LAST": int(made.groups_last), "MASK": 0}
    grid = -(-made.places // _THREADS)
    body = f"pf_conv_direct<PF_KEY_kind>(b0, b1, {late_args(launch)}, out);"
    phase = PhaseText(grid, _THREADS, made.args(made.k, 1, channels_last=False), body, stores=True)
    return _source(launch, made, kind, [phase], epilogue, 1)


def _dot(launch: Launch, made: Convolution, target: Target, epilogue: Epilogue) -> GpuSource:
    shape, sums = made.shape, sums_of(launch.operands[0].dtype)
    places = made.places
    parts = max(1, min(-(-4 * target.workers // places), made.k // (8 * _THREADS), MAX_PARTS))
    split = -(-made.k // parts)
    last = made.channels_last
    kind = {"C_LAST": int(last), "FEW": shape.o, "THREADS": _THREADS, "G_LAST": 0, "MASK": 0}
    out = "out" if parts == 1 else partial_out("a0", "a3", sums)
    body = f"pf_conv_dot<PF_KEY_kind>(b0, b1, {late_args(launch)}, {out});"
    lds = _THREADS // target.wave_size * shape.o * sums.nbytes
    phases = [PhaseText(places * parts, _THREADS, made.args(split, parts, last), body, parts == 1, lds)]
    if parts > 1:
        phases.append(finish_phase(shape.o, made.pixels, shape.n * shape.groups, parts, sums))
    return _source(launch, made, kind, phases, epilogue, parts)


kernel(
    KernelSpec(
        "conv_general",
        "conv_gpu",
        conv_source,
        languages=("hip", "cuda"),
        why="own implicit GEMM",
        # (N, G, O, P0, P1, P2): images and groups are the batch, output channels the rows, pixels the columns
        epilogue=EpilogueSlot(lambda launch: (2, 1), value_type, 0),
        strided=True,
        unaligned=partial(conv_source, aligned=False),
        variants=conv_variants,
    )
)
