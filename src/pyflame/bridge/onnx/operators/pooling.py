"""Pooling over windows, and over whole images."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pyflame.bridge.onnx.operators.convolution import Window
from pyflame.bridge.onnx.operators.shapes import constant_pad, ints
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.bridge.onnx.values import to_tensor
from pyflame.core.dtype import int64
from pyflame.core.limits import iinfo
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor, zeros


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    window = Window(call, x.shape[2:], call.get("kernel_shape"))
    amounts = window.amounts()
    lowest = float("-inf") if x.dtype.is_float else iinfo(x.dtype).min
    padded = constant_pad(x, amounts, lowest)
    # the last window ends where the padding does, so the rest is cut off
    for a, count in enumerate(window.outputs()):
        padded = padded.narrow(2 + a, 0, (count - 1) * window.strides[a] + window.reach[a])
    op = F[f"max_pool{len(window.image)}d"]
    wanted = call.outputs > 1
    found: Any = op(padded, window.kernel, window.strides, 0, window.dilations, False, wanted)
    if not wanted:
        return (found,)
    values, places = found
    return values, _places(call, x, places.to(int64), padded.shape[2:], [low for low, _ in amounts.values()])


def _places(call: Call, x: Tensor, places: Tensor, padded: tuple[int, ...], low: list[int]) -> Tensor:
    """Places within padded images -> places within the whole tensor."""
    image: tuple[int, ...] = tuple(x.shape[2:])
    parts = []
    for size, before in zip(reversed(padded), reversed(low), strict=True):
        parts.append(places % size - before)
        places = F["floor_div"](places, size)
    if not call.get("storage_order", 0):
        parts = parts[::-1]
    else:
        image = tuple(reversed(image))
    flat = parts[0]
    for part, size in zip(parts[1:], image[1:], strict=True):
        flat = flat * size + part
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(image))
    return flat + tensor(planes * int(np.prod(image)))


def _sums(x: Tensor, window: Window) -> Tensor:
    """Sums over windows of a padded tensor."""
    counts = window.outputs()
    if any(d != 1 for d in window.dilations):
        total = None
        for offset in itertools.product(*map(range, window.kernel)):
            part = x
            for a, at in enumerate(offset):
                start, stride = at * window.dilations[a], window.strides[a]
                key = (slice(None),) * (2 + a) + (slice(start, start + (counts[a] - 1) * stride + 1, stride),)
                part = part[key]
            total = part if total is None else total + part
        assert total is not None
        return total
    for a, count in enumerate(counts):
        x = x.narrow(2 + a, 0, (count - 1) * window.strides[a] + window.reach[a])
    size = int(np.prod(window.kernel))
    return F[f"avg_pool{len(counts)}d"](x, window.kernel, window.strides, 0) * size


def _members(window: Window, axis: int, include_pad: bool) -> Array:
    """How many elements each window of an axis counts."""
    size, (low, high) = window.image[axis], window.pads[axis]
    start, end = (-low, size + high) if include_pad else (0, size)
    first = np.arange(window.outputs()[axis])[:, None] * window.strides[axis] - low
    places = first + np.arange(window.kernel[axis])[None] * window.dilations[axis]
    return np.asarray(((places >= start) & (places < end)).sum(1))


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    window = Window(call, x.shape[2:], call.get("kernel_shape"))
    include = bool(call.get("count_include_pad", 0))
    counts = np.ones(())
    for axis in range(len(window.image)):
        counts = counts[..., None] * _members(window, axis, include)
    total = _sums(constant_pad(x, window.amounts()), window)
    return total / to_tensor(counts.astype(np.float32)).to(x.dtype)


@operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    window = Window(call, x.shape[2:], call.get("kernel_shape"))
    p = float(call.get("p", 2))
    return F["pow"](_sums(constant_pad(F["pow"](x.abs(), p), window.amounts()), window), 1.0 / p)


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    return F["mean"](x, tuple(range(2, x.ndim)), True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    return F["amax"](x, tuple(range(2, x.ndim)), True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    p = float(call.get("p", 2))
    return F["pow"](F["sum"](F["pow"](x.abs(), p), tuple(range(2, x.ndim)), True), 1.0 / p)


@operator("MaxUnpool", host=[2])
def max_unpool(call: Call, x: Tensor, places: Tensor, shape: Array | None = None) -> Tensor:
    """Values back at their places; indices count within the unpooled tensor, a larger output has zeros around it."""
    rank = x.ndim - 2
    window = Window(call, x.shape[2:], call.get("kernel_shape"))
    image = [
        (n - 1) * s - low - high + k
        for n, s, k, (low, high) in zip(x.shape[2:], window.strides, window.kernel, window.pads, strict=True)
    ]
    sizes = [*x.shape[:2], *image]
    out = zeros(int(np.prod(sizes)), dtype=x.dtype)
    found = F["scatter"](out, 0, places.to(int64).reshape(-1), x.reshape(-1)).reshape(sizes)
    if shape is not None:
        wanted = ints(shape)
        found = constant_pad(found, {2 + a: (0, wanted[2 + a] - image[a]) for a in range(rank)})
    return found
