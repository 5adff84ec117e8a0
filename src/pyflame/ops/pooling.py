"""Pooling over windows of one to three axes.

The primitives see x (N, C, S0, S1, S2) and three `Window`s; 1-d and 2-d pooling have leading axes of size 1. A Window
describes regular, padded, dilated and adaptive windows alike, by the stretch of the axis that each output covers.
Gradients are primitives too: averages are linear, so each gradient is the other's; the gradient of a maximum goes to
the first maximum of its window (or the last NaN), which the kernel finds again in x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import FLOAT8, DType, bool_, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import Shape
from pyflame.core.window import Window, Windows, three
from pyflame.ir import F, Meta, Node, Sample, composite, primitive
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import per_axis


def _infer(x: Meta, windows: Windows) -> tuple[Shape, DType]:
    for w in windows:
        if any(first >= end for first, end, _ in w.spans()):
            raise ShapeError(f"[max_pool] expected each window to hold an element but got {w}; pad or dilate less")
    return (*x.shape[:2], *(w.out for w in windows)), x.dtype


def _boxes(windows: Windows) -> Iterator[tuple[Shape, tuple[Any, ...], int]]:
    """Every output position, the slices of its window, and its count."""
    for p in product(*(range(w.out) for w in windows)):
        spans = [w.spans()[i] for w, i in zip(windows, p, strict=True)]
        slices = tuple(slice(first, end, w.dilation) for (first, end, _), w in zip(spans, windows, strict=True))
        yield p, (..., *slices), prod(count for _, _, count in spans)


def _flat(x: Any) -> Any:
    return x.reshape(*x.shape[:2], prod(x.shape[2:]))


def _argmax(x: Any, windows: Windows) -> Any:
    """Position in the plane of each window's first maximum, or last NaN."""
    out: Any = np.zeros((*x.shape[:2], *(w.out for w in windows)), np.int64)
    plane: Any = np.arange(prod(x.shape[2:])).reshape(x.shape[2:])
    for p, box, _ in _boxes(windows):
        values, at = _flat(x[box]), plane[box].reshape(-1)
        nan = np.isnan(values)
        last = values.shape[-1] - 1 - np.argmax(nan[..., ::-1], -1)
        out[(..., *p)] = at[np.where(nan.any(-1), last, np.argmax(values, -1))]
    return out


def _max_reference(x: Any, windows: Windows) -> Any:
    at = _argmax(x, windows)
    return np.take_along_axis(_flat(x), _flat(at), -1).reshape(at.shape)


def _max_backward_reference(dy: Any, x: Any, windows: Windows) -> Any:
    out = np.zeros_like(_flat(x))
    for n, c in np.ndindex(x.shape[:2]):
        np.add.at(out[n, c], _argmax(x, windows)[n, c].reshape(-1), dy[n, c].reshape(-1))
    return out.reshape(x.shape)


def _avg_reference(x: Any, windows: Windows, include_pad: bool, divisor: int) -> Any:
    out: Any = np.zeros((*x.shape[:2], *(w.out for w in windows)), x.dtype)
    for p, box, count in _boxes(windows):
        inside = x[box]
        out[(..., *p)] = inside.sum((-3, -2, -1)) / (divisor or (count if include_pad else prod(inside.shape[2:])))
    return out


def _avg_backward_reference(dy: Any, windows: Windows, include_pad: bool, divisor: int) -> Any:
    out: Any = np.zeros((*dy.shape[:2], *(w.size for w in windows)), dy.dtype)
    for p, box, count in _boxes(windows):
        number = divisor or (count if include_pad else prod(out[box].shape[2:]))
        out[box] += (dy[(..., *p)] / number)[..., None, None, None]
    return out


# --- the primitives -----------------------------------------------------------------------------------------------


@primitive(
    KERNEL,
    infer=_infer,
    attrs=("windows",),
    reference=_max_reference,
    grad=lambda g, x, windows: (F.max_pool_backward(g, x, windows),),
    public=False,
)
def max_pool(x: Node, windows: Windows) -> Any:
    """The largest element of each window."""
    return (x,), (windows,)


@primitive(
    KERNEL,
    infer=lambda x, windows: (_infer(x, windows)[0], int64),
    attrs=("windows",),
    reference=_argmax,
    public=False,
    differentiable=False,
)
def max_pool_indices(x: Node, windows: Windows) -> Any:
    """Where in its plane the largest element of each window lies."""
    return (x,), (windows,)


def _read_maxima(g: Node, x: Node, windows: Windows) -> Node:
    at = F.max_pool_indices(x, windows)
    flat = (*at.shape[:2], prod(at.shape[2:]))
    planes = F.reshape(g, (*g.shape[:2], prod(g.shape[2:])))
    return F.reshape(F.gather_at(planes, (F.reshape(at, flat),), (2,), (0, 1, 2), flat), at.shape)


@primitive(
    KERNEL,
    infer=lambda dy, x, windows: (x.shape, dy.dtype),
    attrs=("windows",),
    srcs=("dy", "x"),
    reference=_max_backward_reference,
    # linear in dy, which it writes to where the maxima are: the gradient reads there
    grad=lambda g, x, windows: (_read_maxima(g, x, windows), None),
    public=False,
)
def max_pool_backward(dy: Node, x: Node, windows: Windows) -> Any:
    """The gradient of max_pool for x: dy at the position of each window's maximum, summed."""
    return (dy, x), (windows,)


_AVG = ("windows", "include_pad", "divisor")


@primitive(
    KERNEL,
    infer=lambda x, windows, include_pad, divisor: ((*x.shape[:2], *(w.out for w in windows)), x.dtype),
    attrs=_AVG,
    reference=_avg_reference,
    grad=lambda g, windows, include_pad, divisor: (F.avg_pool_backward(g, windows, include_pad, divisor),),
    public=False,
)
def avg_pool(x: Node, windows: Windows, include_pad: bool, divisor: int) -> Any:
    """The sum of each window over its count, or over a divisor that is not 0."""
    return (x,), (windows, include_pad, divisor)


@primitive(
    KERNEL,
    infer=lambda dy, windows, include_pad, divisor: ((*dy.shape[:2], *(w.size for w in windows)), dy.dtype),
    attrs=_AVG,
    srcs=("dy",),
    reference=_avg_backward_reference,
    # linear: y = A x has the gradient A^T dy, whose own gradient is A again
    grad=lambda g, windows, include_pad, divisor: (F.avg_pool(g, windows, include_pad, divisor),),
    public=False,
)
def avg_pool_backward(dy: Node, windows: Windows, include_pad: bool, divisor: int) -> Any:
    """The gradient of avg_pool for x: each window's share of dy, summed."""
    return (dy,), (windows, include_pad, divisor)


# --- arguments ------------------------------------------------------------------------------------------------------


def _checked(op: str, rank: int, x: Any, floats: bool) -> Shape:
    """The spatial sizes of an input ([N,] C, *sizes)."""
    channels = not floats  # a mean over no channels is empty, a maximum is refused
    if x.ndim not in (rank + 1, rank + 2) or 0 in x.shape[x.ndim - rank - channels :]:
        raise ShapeError(f"[{op}] expected input ([batch,] channels, {rank} axes of at least 1) but got {x.shape}")
    if x.dtype is bool_ or x.dtype in FLOAT8 or (floats and not x.dtype.is_float):
        wanted = "floats" if floats else "numbers"
        raise DTypeError(f"[{op}] expected {wanted} but got {x.dtype.name}; cast with .to(pf.float32)")
    sizes: Shape = x.shape[x.ndim - rank :]
    if prod(sizes) >= 2**31:
        raise ShapeError(f"[{op}] expected planes of fewer than 2**31 elements but got {sizes}")
    return sizes


def _regular(
    op: str, sizes: Shape, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> tuple[Window, ...]:
    rank = len(sizes)
    kernel = per_axis(op, "kernel_size", kernel_size, rank, 1)
    step = kernel if stride is None or stride in ([], ()) else per_axis(op, "stride", stride, rank, 1)
    pad = per_axis(op, "padding", padding, rank, 0)
    hop = per_axis(op, "dilation", dilation, rank, 1)
    if not isinstance(ceil_mode, (bool, np.bool_)):
        raise ArgumentError(f"[{op}] expected ceil_mode to be True or False but got {ceil_mode!r}")
    found = []
    for size, k, s, p, d in zip(sizes, kernel, step, pad, hop, strict=True):
        if 2 * p > k:
            raise ArgumentError(
                f"[{op}] expected padding up to half the kernel but got {padding!r} for kernel_size={kernel_size!r}"
            )
        w = Window(size, 0, k, s, p, d).counted(bool(ceil_mode))
        if w.out < 1:
            raise ShapeError(
                f"[{op}] expected a kernel that fits the padded input but got kernel_size={kernel_size!r}, "
                f"dilation={dilation!r}, padding={padding!r} for sizes {sizes}; pad more"
            )
        found.append(w)
    return tuple(found)


def _opened(x: Any, rank: int) -> Any:
    """([N,] C, *S) -> (N, C, S0, S1, S2), of a Node or an array."""
    shape = (1,) * (rank + 2 - x.ndim) + x.shape
    shape = (*shape[:2], *(1,) * (3 - rank), *shape[2:])
    return F.reshape(x, shape) if isinstance(x, Node) else x.reshape(shape)


def _closed(out: Any, x: Any, rank: int) -> Any:
    shape = (*out.shape[2 - (x.ndim - rank) : 2], *out.shape[5 - rank :])
    return F.reshape(out, shape) if isinstance(out, Node) else out.reshape(shape)


WindowsOf = Callable[[Shape], tuple[Window, ...]]  # from the sizes of the axes that are pooled


@composite(public=False)
def pool_max(op: str, rank: int, x: Any, windows_of: WindowsOf, return_indices: bool = False) -> Any:
    """Maxima over the windows of the last `rank` axes, for the op of this name; and their positions."""
    windows = windows_of(_checked(op, rank, x, floats=False))
    opened, axes = _opened(x, rank), three(windows)
    out = _closed(F.max_pool(opened, axes), x, rank)
    return (out, _closed(F.max_pool_indices(opened, axes), x, rank)) if return_indices else out


@composite(public=False)
def pool_avg(
    op: str, rank: int, x: Any, windows_of: WindowsOf, include_pad: bool = True, divisor: int | None = None
) -> Any:
    """Means over the windows of the last `rank` axes, for the op of this name."""
    if divisor is not None and (type(divisor) is not int or divisor == 0):
        raise ArgumentError(f"[{op}] expected divisor_override other than 0, a whole number, but got {divisor!r}")
    windows = windows_of(_checked(op, rank, x, floats=True))
    if all(w.whole for w in windows):  # a plain reduction, which fuses with its neighbours
        axes = tuple(range(x.ndim - rank, x.ndim))
        return F.div(F.sum(x, axes, keepdims=True), float(divisor or prod(w.size for w in windows)))
    return _closed(F.avg_pool(_opened(x, rank), three(windows), bool(include_pad), divisor or 0), x, rank)


def _max_pool(
    rank: int, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, return_indices: bool
) -> Any:
    op = f"max_pool{rank}d"
    return F.pool_max(
        op, rank, x, lambda s: _regular(op, s, kernel, stride, padding, dilation, ceil_mode), return_indices
    )


def _avg_pool(
    rank: int, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, include_pad: Any, divisor: Any = None
) -> Any:
    op = f"avg_pool{rank}d"
    return F.pool_avg(
        op, rank, x, lambda s: _regular(op, s, kernel, stride, padding, 1, ceil_mode), include_pad, divisor
    )


# --- NumPy twins and samples ------------------------------------------------------------------------------------------


def _max_windows(
    sizes: Shape, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Window, ...]:
    return _regular("max_pool", sizes, kernel, stride, padding, dilation, ceil_mode)


def _avg_windows(
    sizes: Shape, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False
) -> tuple[Window, ...]:
    return _regular("avg_pool", sizes, kernel, stride, padding, 1, ceil_mode)


def _twin(rank: int, kind: str) -> Callable[..., Any]:
    """The primitives' references behind the public arguments."""

    def max_twin(x: Any, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
        opened, axes = _opened(x, rank), three(_max_windows(x.shape[-rank:], *args, **kwargs))
        out = _closed(_max_reference(opened, axes), x, rank)
        return (out, _closed(_argmax(opened, axes), x, rank)) if return_indices else out

    def avg_twin(x: Any, *args: Any, count_include_pad: bool = True, divisor_override: Any = 0, **kwargs: Any) -> Any:
        axes = three(_avg_windows(x.shape[-rank:], *args, **kwargs))
        return _closed(_avg_reference(_opened(x, rank), axes, count_include_pad, divisor_override), x, rank)

    return max_twin if kind == "max" else avg_twin


_SIZES: dict[int, Shape] = {1: (11,), 2: (7, 10), 3: (4, 5, 6)}


def _samples(rank: int, kind: str) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        rng = np.random.default_rng(rank)
        size = _SIZES[rank]

        def r(*shape: int) -> Any:
            return rng.permutation(prod(shape)).reshape(shape) / 7.0 - 3  # no ties

        x = r(2, 3, *size)
        found = [
            Sample((x, 2)),
            Sample((x, 3), {"stride": 2, "padding": 1}),
            Sample((x, 3), {"stride": 1, "padding": 1}),
            Sample((x, 3), {"stride": 2, "ceil_mode": True}),
            Sample((x, 3), {"stride": 3, "padding": 1, "ceil_mode": True}),
            Sample((r(3, *size), (2,) * (rank - 1) + (3,)), {"stride": (1,) * (rank - 1) + (2,)}),  # without a batch
            Sample((r(1, 1, *(1,) * rank), 1)),
            Sample((r(1, 2, *(3,) * rank), 3), {"padding": 1, "stride": 2}),
            Sample((r(2, 3, *size[:-1], 22)[..., ::2], 4)),
            Sample((r(0, 3, *size), 2)),
        ]
        if kind == "max":
            bad = x.copy()
            bad.reshape(-1)[::5] = np.nan
            bad.reshape(-1)[1::7] = -np.inf
            found += [
                Sample((x, 2), {"dilation": 2, "stride": 1, "padding": 1}),
                Sample((x, 3), {"stride": 2, "padding": 1, "return_indices": True}),
                Sample((bad, 3), {"stride": 2, "padding": 1, "return_indices": True}),
                Sample((np.zeros((1, 2, *size)), 3), {"stride": 2, "padding": 1}),  # all equal: the first one counts
            ]
        else:
            found += [
                Sample((x, 3), {"stride": 2, "padding": 1, "count_include_pad": False}),
                Sample((x, 3), {"stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}),
                Sample((x, size)),
            ]
            if rank > 1:
                found.append(Sample((x, 3), {"padding": 1, "divisor_override": 5}))
        return found

    return samples


def _declared(rank: int, kind: str) -> dict[str, Any]:
    twin, samples = _twin(rank, kind), _samples(rank, kind)
    return dict(reference=twin, torch=f"nn.functional.{kind}_pool{rank}d", samples=samples, method=False)


# --- the public ops --------------------------------------------------------------------------------------------------


@composite(**_declared(1, "max"))
def max_pool1d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of ([N,] C, L); with return_indices also where it was found.

    >>> pf.max_pool1d(pf.ones(1, 2, 8), 2).shape
    (1, 2, 4)
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(**_declared(2, "max"))
def max_pool2d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of ([N,] C, H, W); with return_indices also where in its plane it was found.

    >>> pf.max_pool2d(pf.ones(1, 2, 8, 8), 3, stride=2, padding=1).shape
    (1, 2, 4, 4)
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(**_declared(3, "max"))
def max_pool3d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of ([N,] C, D, H, W); with return_indices also where it was found.

    >>> pf.max_pool3d(pf.ones(1, 2, 4, 8, 8), 2).shape
    (1, 2, 2, 4, 4)
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(**_declared(1, "avg"))
def avg_pool1d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of ([N,] C, L).

    >>> pf.avg_pool1d(pf.ones(1, 2, 8), 2).shape
    (1, 2, 4)
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


@composite(**_declared(2, "avg"))
def avg_pool2d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of ([N,] C, H, W); divisor_override replaces the number of elements.

    >>> pf.avg_pool2d(pf.ones(1, 2, 8, 8), 2).shape
    (1, 2, 4, 4)
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(**_declared(3, "avg"))
def avg_pool3d(
    input: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of ([N,] C, D, H, W); divisor_override replaces the number of elements.

    >>> pf.avg_pool3d(pf.ones(1, 2, 4, 8, 8), 2).shape
    (1, 2, 2, 4, 4)
    """
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
