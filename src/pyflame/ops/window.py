"""Padding and sliding windows: reads at positions that follow from the element's own."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Shape, normalize_axis
from pyflame.ir import F, Node, Sample, composite
from pyflame.ops.base import per_axis, want_whole

_X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
_CUBE = np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)
_IMAGE = np.linspace(-1.0, 1.0, 2 * 3 * 5 * 6).reshape(2, 3, 5, 6)


# --- padding --------------------------------------------------------------------------------------------------------


def _reflect(p: Node, n: int) -> Node:
    p = F.where(p < 0, -p, p)
    return F.where(p >= n, 2 * (n - 1) - p, p)


def _replicate(p: Node, n: int) -> Node:
    return F.where(p < 0, 0, F.where(p >= n, n - 1, p))


def _circular(p: Node, n: int) -> Node:
    return F.where(p < 0, p + n, F.where(p >= n, p - n, p))


# mode: (position before padding -> position that is read, the largest padding of an axis of size n)
_MODES: dict[str, tuple[Callable[[Node, int], Node], Callable[[int], float]]] = {
    "reflect": (_reflect, lambda n: n - 1),
    "replicate": (_replicate, lambda n: float("inf") if n else 0),
    "circular": (_circular, lambda n: n),
}
_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _numpy_pad(x: Any, pad: Any, mode: str = "constant", value: float = 0.0) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]

    def cropped(array: Any) -> Any:
        return array[tuple(np.s_[max(-a, 0) : n - max(-b, 0)] for (a, b), n in zip(pairs, array.shape, strict=True))]

    def padded(array: Any, **fill: Any) -> Any:
        return np.pad(array, [(max(a, 0), max(b, 0)) for a, b in pairs], mode=_NUMPY_MODES[mode], **fill)  # type: ignore[call-overload]

    if mode in ("reflect", "replicate"):
        return cropped(padded(x))
    return padded(cropped(x), **({"constant_values": value} if mode == "constant" else {}))


@composite(
    name="pad",
    reference=_numpy_pad,
    torch="nn.functional.pad",
    samples=lambda: [
        Sample((_X, (1, 2))),
        Sample((_X, (1, 0, 2, 1), "constant", -3.0)),
        Sample((_CUBE.T, (-1, 1, 0, -2))),
        Sample((_CUBE, (1, 2), "reflect")),
        Sample((_IMAGE, (2, 1, 0, 3), "reflect")),
        Sample((_IMAGE, (2, 0, 7, 1), "replicate")),
        Sample((_IMAGE, (6, 1, 0, 3), "circular")),
        *[Sample((_IMAGE, (-1, 1, 2, -3), mode)) for mode in ("reflect", "replicate")],
        *[Sample((_IMAGE, (a, b, -1, -2), "circular")) for a, b in ((-1, 1), (1, -1), (2, -3), (-2, 0))],
        Sample((np.zeros((0, 2)), (1, 1, 1, 0))),
        Sample((np.arange(3), (1, 1))),
    ],
)
def pad(x: Node, pad: Any, mode: str = "constant", value: Any = 0.0) -> Node:
    """Put elements before and behind axes: pad = (last axis before, last axis behind, axis before it before, ...).

    They are `value` ("constant"), the elements inside mirrored ("reflect"), the outermost one ("replicate") or those of
    the other end ("circular"). Negative numbers take elements away.

    >>> pf.pad(pf.tensor([1, 2, 3]), (2, 1), mode="reflect")
    tensor([3, 2, 1, 2, 3, 2])
    """
    given = tuple(want_whole("pad", "a padding", p) for p in pad)
    if len(given) % 2 or len(given) > 2 * x.ndim:
        raise ArgumentError(
            f"[pad] expected two numbers for each of at most {x.ndim} axes, last axis first, but got {given}"
        )
    if mode != "constant" and mode not in _MODES:
        raise ArgumentError(f"[pad] expected mode to be one of {['constant', *_MODES]} but got {mode!r}")
    pairs = [(0, 0)] * (x.ndim - len(given) // 2) + [(given[i], given[i + 1]) for i in range(len(given) - 2, -1, -2)]
    shape = tuple(a + n + b for (a, b), n in zip(pairs, x.shape, strict=True))
    if any(n < 0 for n in shape):
        raise ShapeError(f"[pad] expected sizes of at least 0 but {given} makes {shape} of {x.shape}")
    if mode in ("constant", "circular"):  # what is taken away is neither padded nor wrapped around
        x = _cropped(x, pairs)
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "constant":
        return _pad_constant(x, pairs, shape, value)
    for n, both in zip(x.shape, pairs, strict=True):
        if max(both) > max(_MODES[mode][1](n), 0):
            raise ShapeError(
                f"[pad] expected a padding of at most {_MODES[mode][1](n)} for {mode!r} on an axis of size {n} "
                f"but got {both}"
            )
    axes = tuple(a for a, both in enumerate(pairs) if both != (0, 0))
    if not axes:
        return x
    indices = tuple(
        F.reshape(_MODES[mode][0](F.iota_like(x, (shape[a],)) - pairs[a][0], x.shape[a]), (-1, *[1] * (x.ndim - a - 1)))
        for a in axes
    )
    return F.gather_at(x, indices, axes, tuple(range(x.ndim)), shape)


def _cropped(x: Node, pairs: list[tuple[int, int]]) -> Node:
    if min((n for both in pairs for n in both), default=0) >= 0:
        return x
    return F.slice(
        x, tuple((max(-a, 0), 1, max(0, n + min(a, 0) + min(b, 0))) for (a, b), n in zip(pairs, x.shape, strict=True))
    )


def _pad_constant(x: Node, pairs: list[tuple[int, int]], shape: Shape, value: Any) -> Node:
    if x.shape == shape:
        return x
    region = tuple((a, 1, n) for (a, _), n in zip(pairs, x.shape, strict=True))
    return F.assign(F.full_const(value, x.dtype, shape), x, region)


# --- windows --------------------------------------------------------------------------------------------------------


def _numpy_unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    axis = dimension % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return windows[(np.s_[:],) * axis + (np.s_[::step],)]


@composite(
    reference=_numpy_unfold,
    torch=lambda torch, x, dimension, size, step: x.unfold(dimension, size, step),
    samples=lambda: [
        Sample((np.arange(7.0), 0, 3, 1)),
        Sample((np.arange(7.0), 0, 2, 3)),
        Sample((_CUBE, 1, 2, 1)),
        Sample((_CUBE.T, -3, 2, 2)),
        Sample((_X, 1, 4, 5)),
    ],
)
def unfold(x: Node, dimension: int, size: int, step: int) -> Node:
    """Windows of `size` along an axis, every `step`, as a new last axis.

    >>> pf.tensor([1, 2, 3, 4]).unfold(0, 2, 1)
    tensor([[1, 2],
            [2, 3],
            [3, 4]])
    """
    axis = normalize_axis("unfold", dimension, x.ndim)
    size, step = want_whole("unfold", "size", size), want_whole("unfold", "step", step)
    if x.ndim == 0:
        return F.reshape(unfold(F.reshape(x, (1,)), 0, size, step), (-1,))
    if not 0 <= size <= x.shape[axis] or step < 1:
        raise ShapeError(
            f"[unfold] expected a size within the axis and a step of at least 1 but got size {size}, step {step} "
            f"for {x.shape}"
        )
    count = (x.shape[axis] - size) // step + 1
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if size <= step and count * step <= x.shape[axis]:  # windows that do not overlap are only moved
        part = F.slice(x, tuple((0, 1, count * step if a == axis else n) for a, n in enumerate(x.shape)))
        cut = F.reshape(part, (*before, count, step, *after))
        each = F.slice(cut, tuple((0, 1, size if a == axis + 1 else n) for a, n in enumerate(cut.shape)))
        return F.movedim(each, axis + 1, -1)
    used = F.slice(x, tuple((0, 1, (count - 1) * step + size if a == axis else n) for a, n in enumerate(x.shape)))
    index = F.iota_like(x, (count, *[1] * (len(after) + 1))) * step + F.iota_like(x, (size,))
    return F.gather_at(used, (index,), (axis,), tuple(range(x.ndim)), (*before, count, *after, size))


@composite(
    reference=lambda x, size, stride, storage_offset=0: np.lib.stride_tricks.as_strided(
        np.ascontiguousarray(x).reshape(-1)[storage_offset:], size, [s * x.itemsize for s in stride]
    ),
    torch=lambda torch, x, *args: torch.as_strided(x.contiguous(), *args),
    samples=lambda: [
        Sample((_CUBE, (2, 3), (1, 2))),
        Sample((_X, (3, 2, 2), (1, 0, 4), 2)),
        Sample((_X, (), (), 3)),
        Sample((_X, (2, 0), (1, 1))),
    ],
    public=False,
)
def strided(x: Node, size: Shape, stride: Shape, storage_offset: int = 0) -> Node:
    """The elements at storage_offset + sum of index * stride, of x in row-major order."""
    if len(size) != len(stride) or storage_offset < 0 or min((*size, *stride), default=0) < 0:
        raise ArgumentError(
            f"[as_strided] expected sizes, as many strides, and an offset, of at least 0, but got {size}, {stride} "
            f"and {storage_offset}"
        )
    if 0 in size:
        return F.reshape(F.slice(F.reshape(x, (x.size,)), ((0, 1, 0),)), size)
    last = storage_offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if last >= x.size:
        raise ShapeError(f"[as_strided] expected positions below {x.size} but got up to {last}, of {size} by {stride}")
    index: Any = storage_offset
    for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
        index = index + F.iota_like(x, (n, *[1] * (len(size) - axis - 1))) * s
    flat = F.reshape(x, (x.size,))
    if not size:
        return F.reshape(F.slice(flat, ((storage_offset, 1, 1),)), ())
    return F.gather_at(flat, (index,), (0,), (-1,), size)


class _Windows:
    """The windows of an image: kernel, dilation, padding and stride per axis, and how many there are."""

    def __init__(self, op: str, size: Shape, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
        self.kernel, self.dilation, self.stride = (
            per_axis(op, name, value, 2, 1)
            for name, value in (("kernel_size", kernel_size), ("dilation", dilation), ("stride", stride))
        )
        self.padding = per_axis(op, "padding", padding, 2, 0)
        self.padded = tuple(n + 2 * p for n, p in zip(size, self.padding, strict=True))
        span = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        self.counts = tuple((n - s) // step + 1 for n, s, step in zip(self.padded, span, self.stride, strict=True))
        if min(self.counts) < 1:
            raise ShapeError(
                f"[{op}] expected windows of {tuple(span)} that fit into the padded image but got {self.padded}"
            )

    def indices(self, x: Node) -> tuple[Node, Node]:
        """Row and column of the padded image for (kernel row, kernel column, window row, window column)."""
        (kh, kw), (lh, lw) = self.kernel, self.counts
        row = F.iota_like(x, (kh, 1, 1, 1)) * self.dilation[0] + F.iota_like(x, (lh, 1)) * self.stride[0]
        column = F.iota_like(x, (kw, 1, 1)) * self.dilation[1] + F.iota_like(x, (lw,)) * self.stride[1]
        return row, column


@composite(
    torch=lambda torch, x, *args: torch.nn.functional.unfold(x, *args),
    samples=lambda: [
        Sample((_IMAGE, 2)),
        Sample((_IMAGE, (2, 3), (2, 1), (0, 1), (1, 2))),
        Sample((_IMAGE[:1, :1], 5)),
        Sample((_IMAGE[0], 2)),
    ],
)
def unfold2d(x: Node, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Node:
    """Sliding windows of images as columns: (N, C, H, W) -> (N, C*kh*kw, windows); nn.functional.unfold.

    >>> pf.unfold2d(pf.zeros(1, 3, 4, 4), 2).shape
    (1, 12, 9)
    """
    if x.ndim == 3:
        columns = unfold2d(F.reshape(x, (1, *x.shape)), kernel_size, dilation, padding, stride)
        return F.reshape(columns, columns.shape[1:])
    if x.ndim != 4:
        raise ShapeError(f"[unfold2d] expected images of shape (N, C, H, W) or (C, H, W) but got {x.shape}")
    n, c, h, w = x.shape
    windows = _Windows("unfold2d", (h, w), kernel_size, dilation, padding, stride)
    (top, left), shape = windows.padding, (n, c, *windows.kernel, *windows.counts)
    padded = F.pad(x, (left, left, top, top))
    columns = F.gather_at(padded, windows.indices(x), (2, 3), (0, 1, -1, -1), shape)
    return F.reshape(columns, (n, c * prod(windows.kernel), prod(windows.counts)))


@composite(
    torch=lambda torch, x, *args: torch.nn.functional.fold(x, *args),
    samples=lambda: [
        Sample((np.linspace(-1.0, 1.0, 2 * 8 * 12).reshape(2, 8, 12), (4, 5), 2)),
        Sample((np.linspace(-1.0, 1.0, 12 * 6).reshape(1, 12, 6), (4, 5), (2, 3), (2, 1), (0, 1), (1, 2))),
        Sample((np.linspace(-1.0, 1.0, 8 * 12).reshape(8, 12), (4, 5), 2)),
    ],
)
def fold(x: Node, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Node:
    """Add windows back into images: (N, C*kh*kw, windows) -> (N, C, H, W): the other direction of unfold2d.

    >>> pf.fold(pf.ones(1, 4, 4), (3, 3), 2)[0, 0, 1, 1]
    tensor(4.)
    """
    if x.ndim == 2:
        image = fold(F.reshape(x, (1, *x.shape)), output_size, kernel_size, dilation, padding, stride)
        return F.reshape(image, image.shape[1:])
    h, w = per_axis("fold", "output_size", output_size, 2, 0)
    windows = _Windows("fold", (h, w), kernel_size, dilation, padding, stride)
    taps = prod(windows.kernel)
    if x.ndim != 3 or x.shape[1] % taps or x.shape[2] != prod(windows.counts):
        expected = f"(N, C*{taps}, {prod(windows.counts)})"
        raise ShapeError(f"[fold] expected windows of shape {expected} but got {x.shape}")
    n, c = x.shape[0], x.shape[1] // taps
    values = F.reshape(x, (n, c, *windows.kernel, *windows.counts))
    zero = F.full_const(0, x.dtype, (n, c, *windows.padded))
    image = F.scatter_at(zero, values, windows.indices(x), (2, 3), (0, 1, -1, -1), "add")
    (top, left) = windows.padding
    return F.slice(image, ((0, 1, n), (0, 1, c), (top, 1, h), (left, 1, w)))
