"""Convolutions and pooling in ONNX. The engine's have three axes of space; those of length 1 are left out again."""

from __future__ import annotations

from typing import Any

from pyflame.bridge.onnx.writer import Writer, form
from pyflame.core.errors import NotSupportedError
from pyflame.ir import Node


@form("conv_general")
def conv_general(w: Writer, node: Node, x: str, weight: str) -> str:
    """x (N, G, C, D, H, W) with weight (G, O, C, d, h, w) -> (N, G, O, D, H, W)."""
    stride, low, out, spread, dilation = node.attrs
    n, groups, channels, *image = node.srcs[0].shape
    _, outputs, _, *kernel = node.srcs[1].shape
    for axis, by in enumerate(spread):
        if by != 1:
            x = _spread(w, x, [n, groups * channels, *image], 2 + axis, by)
            image[axis] = (image[axis] - 1) * by + 1
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    high = [(o - 1) * s + r - i - p for o, s, r, i, p in zip(out, stride, reach, image, low, strict=True)]
    used = [a for a in range(3) if (image[a], kernel[a], out[a], low[a]) != (1, 1, 1, 0)] or [2]
    x = w.reshape(x, [n, groups * channels, *[image[a] for a in used]])
    weight = w.reshape(weight, [groups * outputs, channels, *[kernel[a] for a in used]])
    pads = [*[low[a] for a in used], *[high[a] for a in used]]
    if min(pads) < 0:  # what the last window does not reach
        zeros = [0, 0]
        x = w.add("Pad", x, w.ints([*zeros, *pads[: len(used)], *zeros, *pads[len(used) :]]))
        pads = [0] * len(pads)
    y = w.add(
        "Conv", x, weight, strides=[stride[a] for a in used], dilations=[dilation[a] for a in used], pads=pads,
        group=groups, kernel_shape=[kernel[a] for a in used],
    )  # fmt: skip
    return w.reshape(y, node.shape)


def _spread(w: Writer, x: str, shape: list[int], axis: int, by: int) -> str:
    """Zeros between the elements of an axis."""
    before, length, behind = shape[:axis], shape[axis], shape[axis + 1 :]
    x = w.reshape(x, [*before, length, 1, *behind])
    rank = len(shape) + 1
    x = w.add("Pad", x, w.ints([0] * rank + [by - 1 if a == axis + 1 else 0 for a in range(rank)]))
    x = w.reshape(x, [*before, length * by, *behind])
    shape[axis] = (length - 1) * by + 1
    return w.add("Slice", x, w.ints([0]), w.ints([shape[axis]]), w.ints([axis]))


def _pooled(w: Writer, node: Node, x: str, op: str, **more: Any) -> str:
    """x (N, C, D, H, W) over windows."""
    windows = node.attrs[0]
    used = [v for v in windows if (v.size, v.out, v.kernel) != (1, 1, 1)] or [windows[-1]]
    high = [(v.out - 1) * v.stride + (v.kernel - 1) * v.dilation + 1 - v.size - v.pad for v in used]
    if op == "AveragePool" and any(h > v.pad for h, v in zip(high, used, strict=True)):
        raise NotSupportedError("[onnx] expected windows within their padding but avg_pool has ceil_mode")
    x = w.reshape(x, [*node.shape[:2], *[v.size for v in used]])
    if any(v.dilation != 1 for v in used):
        more["dilations"] = [v.dilation for v in used]
    y = w.add(
        op, x, kernel_shape=[v.kernel for v in used], strides=[v.stride for v in used],
        pads=[*[v.pad for v in used], *[max(h, 0) for h in high]], **more,
    )  # fmt: skip
    return w.reshape(y, node.shape)


@form("max_pool")
def max_pool(w: Writer, node: Node, x: str) -> str:
    return _pooled(w, node, x, "MaxPool")


@form("avg_pool")
def avg_pool(w: Writer, node: Node, x: str) -> str:
    _, include_pad, divisor = node.attrs
    if divisor:
        raise NotSupportedError("[onnx] expected windows that divide by their size but avg_pool has divisor_override")
    return _pooled(w, node, x, "AveragePool", count_include_pad=int(include_pad))
