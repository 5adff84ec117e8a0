"""Host side of conv.hip: which way a convolution takes on a GPU, in which tiles and parts.

The text depends on dtype, on the number of spatial axes, on whether x is dilated, on which direction is contiguous and
on the tile; extents and strides are arguments. How k is cut depends on shape and target.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pyflame.core.device import Target
from pyflame.core.shape import magic
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.conv import ConvShape, merge_axes
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    MAX_PARTS,
    PhaseText,
    check_extents,
    choose_cut,
    finish_phase,
    gpu_source,
    late_args,
    partial_out,
    sums_of,
    value_type,
)

FEW = 8  # output channels per group up to which a thread takes them all
_THREADS = 256
_SHORT = 64  # k that one thread walks over even where there are few pixels
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Convolution:
    """A convolution with the axes that count, and the strides of x (n, g, c, axes) and w (g, o, c, axes)."""

    shape: ConvShape
    x: tuple[int, ...]
    w: tuple[int, ...]
    axes: tuple[int, ...]  # of the three, those that count

    @property
    def k(self) -> int:
        return self.shape.c * prod(self.shape.taps)

    @property
    def pixels(self) -> int:
        return prod(self.shape.out)

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
    def images_last(self) -> bool:
        """Whether images, which are channels where this is a weight's gradient, lie side by side in x."""
        return self.x[0] == 1 and self.shape.n > 1 and self.pixels > 1

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

    def args(self, split: int, channels_last: bool) -> tuple[int, ...]:
        """The arguments of every phase that multiplies."""
        shape = self.shape
        head = [
            shape.o, shape.n * self.pixels, self.k, self.pixels, magic(self.pixels), shape.groups, magic(shape.groups),
            split, shape.n * shape.groups, shape.n, magic(shape.n), self.x[0], self.x[1], self.w[0], self.w[1],
        ]  # fmt: skip
        steps = [0 if self.dilated else shape.rhs_dilation[a] * self.x[3 + a] for a in self.axes]
        taps = [(shape.taps[a], step, self.w[3 + a]) for a, step in zip(self.axes, steps, strict=True)]
        channels = (shape.c, self.x[2], self.w[2])
        for extent, x, w in [*taps, channels] if channels_last else [channels, *taps]:
            head += [extent, magic(extent), x, w]
        for a in self.axes:
            head += [
                shape.out[a], magic(shape.out[a]), shape.stride[a], shape.pad_lo[a], shape.size[a],
                shape.rhs_dilation[a], self.x[3 + a], shape.lhs_dilation[a], magic(shape.lhs_dilation[a]),
            ]  # fmt: skip
        return tuple(head)


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


def conv_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and launches of one convolution. It loads single numbers, so it asks for no alignment."""
    made = convolution(launch)
    shape = made.shape
    check_extents("conv", (shape.n * made.pixels, made.k, shape.o, shape.n * shape.groups))
    assert epilogue is not None
    places = shape.n * shape.groups * made.pixels
    if shape.o > FEW or (shape.groups == 1 and shape.o > 1 and made.k > _SHORT and places < _THREADS * target.workers):
        return _tiles(launch, made, target, epilogue)
    check_extents("conv", (places,))
    if made.k <= _SHORT or places >= _THREADS * target.workers:
        return _direct(launch, made, epilogue)
    return _dot(launch, made, target, epilogue)


def _source(
    launch: Launch, made: Convolution, kind: dict[str, int], first: PhaseText, epilogue: Epilogue, parts: int
) -> GpuSource:
    """One launch, or with partial sums two."""
    shape, sums = made.shape, sums_of(launch.operands[0].dtype)
    phases, scratch = [first], 0
    if parts > 1:
        entries = shape.n * shape.groups
        phases.append(finish_phase(shape.o, made.pixels, entries, parts, sums))
        scratch = parts * entries * shape.o * made.pixels * sums.nbytes
    kind = {**kind, "RANK": len(made.axes), "DILATED": int(made.dilated)}
    types = {"pos": "int" if made.small else "int64_t"}
    alignment = [v.dtype.itemsize for v in launch.operands]
    return gpu_source("conv.hip", launch, kind, types, phases, epilogue, alignment, scratch)


def _tiles(launch: Launch, made: Convolution, target: Target, epilogue: Epilogue) -> GpuSource:
    shape, sums = made.shape, sums_of(launch.operands[0].dtype)
    columns = shape.n * made.pixels
    cut = choose_cut(shape.o, columns, made.k, shape.groups, sums.nbytes, target.workers)
    tile = cut.tile
    last = made.channels_last
    kind = {
        **tile.defines(), "C_LAST": int(last), "X_ALONG_K": int(made.x_along_k), "W_ALONG_K": int(made.w[1] != 1),
        "N_LAST": int(made.images_last),
    }  # fmt: skip
    grid = -(-shape.o // tile.rows) * -(-columns // tile.cols) * shape.groups * cut.parts
    out = "out" if cut.parts == 1 else partial_out("a0", "a3", sums)
    body = f"pf_conv_tile<PF_KEY_kind>(b0, b1, {late_args(launch)}, {out});"
    tap = 4 * (2 + len(made.axes)) if made.small else 16 + 8 * -(-len(made.axes) // 2)
    lds = tile.lds_bytes(sums.nbytes) + 2 * tile.depth * tap
    phase = PhaseText(grid, tile.threads, made.args(cut.split, last), body, cut.parts == 1, lds)
    return _source(launch, made, kind, phase, epilogue, cut.parts)


def _direct(launch: Launch, made: Convolution, epilogue: Epilogue) -> GpuSource:
    shape = made.shape
    kind = {"C_LAST": 0, "FEW": shape.o, "THREADS": _THREADS, "G_LAST": int(made.groups_last)}
    grid = -(-shape.n * shape.groups * made.pixels // _THREADS)
    body = f"pf_conv_direct<PF_KEY_kind>(b0, b1, {late_args(launch)}, out);"
    phase = PhaseText(grid, _THREADS, made.args(made.k, channels_last=False), body, stores=True)
    return _source(launch, made, kind, phase, epilogue, 1)


def _dot(launch: Launch, made: Convolution, target: Target, epilogue: Epilogue) -> GpuSource:
    shape, sums = made.shape, sums_of(launch.operands[0].dtype)
    places = shape.n * shape.groups * made.pixels
    parts = max(1, min(-(-4 * target.workers // places), made.k // (8 * _THREADS), MAX_PARTS))
    split = -(-made.k // parts)
    last = made.channels_last
    kind = {"C_LAST": int(last), "FEW": shape.o, "THREADS": _THREADS, "G_LAST": 0}
    out = "out" if parts == 1 else partial_out("a0", "a3", sums)
    body = f"pf_conv_dot<PF_KEY_kind>(b0, b1, {late_args(launch)}, {out});"
    lds = _THREADS // target.wave_size * shape.o * sums.nbytes
    phase = PhaseText(places * parts, _THREADS, made.args(split, last), body, parts == 1, lds)
    return _source(launch, made, kind, phase, epilogue, parts)


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
    )
)
