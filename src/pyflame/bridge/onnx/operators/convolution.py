"""Convolutions over one to three axes, with ONNX's paddings: by amounts on both sides, or SAME and VALID."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.bridge.onnx.operators.shapes import constant_pad, ints
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


class Window:
    """Kernel sizes, strides, dilations and paddings of a node, for each axis of the image."""

    def __init__(self, call: Call, image: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(image)
        if rank not in (1, 2, 3):
            raise call.refuse(f"has {rank} axes of space, and windows go over one to three")
        self.image, self.kernel = tuple(image), tuple(kernel)
        self.strides = tuple(call.get("strides", [1] * rank))
        self.dilations = tuple(call.get("dilations", [1] * rank))
        self.ceil = bool(call.get("ceil_mode", 0))
        self.reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        auto = call.get("auto_pad", "NOTSET")
        pads = call.get("pads", [0] * 2 * rank)
        self.pads = [(pads[a], pads[rank + a]) for a in range(rank)]
        if auto.startswith("SAME"):
            self.pads = [self._same(a, auto == "SAME_UPPER") for a in range(rank)]
        elif auto == "VALID":
            self.pads = [(0, 0)] * rank

    def _same(self, axis: int, upper: bool) -> tuple[int, int]:
        size, stride = self.image[axis], self.strides[axis]
        total = max((-(-size // stride) - 1) * stride + self.reach[axis] - size, 0)
        return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)

    def outputs(self) -> list[int]:
        """How many windows each axis has. None begins in the padding behind the image."""
        found = []
        for size, (low, high), reach, stride in zip(self.image, self.pads, self.reach, self.strides, strict=True):
            room = size + low + high - reach
            count = (-(-room // stride) if self.ceil else room // stride) + 1
            if self.ceil and (count - 1) * stride >= size + low:
                count -= 1
            found.append(count)
        return found

    def amounts(self, lead: int = 2) -> dict[int, tuple[int, int]]:
        """Padding for each axis of a tensor, as far as the windows reach."""
        found = {}
        for a, (count, (low, high)) in enumerate(zip(self.outputs(), self.pads, strict=True)):
            needed = (count - 1) * self.strides[a] + self.reach[a] - self.image[a] - low
            found[lead + a] = (low, max(high, needed))
        return found


def convolve(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Conv of tensors of one dtype."""
    window = Window(call, x.shape[2:], call.get("kernel_shape", w.shape[2:]))
    even = all(low == high for low, high in window.pads)
    padding: Any = tuple(low for low, _ in window.pads) if even else 0
    x = x if even else constant_pad(x, {2 + a: pair for a, pair in enumerate(window.pads)})
    op = F[f"conv{len(window.image)}d"]
    return op(x, w, b, window.strides, padding, window.dilations, call.get("group", 1))


@operator("Conv")
def conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    return convolve(call, x, w, b)


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """The whole transposed convolution, then cut to what the node asks for."""
    image = x.shape[2:]
    window = Window(call, image, call.get("kernel_shape", w.shape[2:]))
    extra = call.get("output_padding", [0] * len(image))
    full = [(n - 1) * s + r for n, s, r in zip(image, window.strides, window.reach, strict=True)]
    op = F[f"conv_transpose{len(image)}d"]
    y = op(x, w, None, window.strides, 0, 0, call.get("group", 1), window.dilations)
    for a, length in enumerate(full):
        low, count = _cut(call, window, a, length + extra[a])
        y = constant_pad(y, {2 + a: (0, max(low + count - length, 0))}).narrow(2 + a, low, count)
    return y if b is None else y + b.reshape(1, -1, *[1] * len(image))


def _cut(call: Call, window: Window, axis: int, length: int) -> tuple[int, int]:
    """Where the output begins within the whole one, and how long it is."""
    auto, shape = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    if shape is None and not auto.startswith("SAME"):
        low, high = window.pads[axis]
        return low, length - low - high
    wanted = window.image[axis] * window.strides[axis] if shape is None else shape[-len(window.image) :][axis]
    total = max(length - wanted, 0)
    return (total // 2 if auto == "SAME_UPPER" or auto == "NOTSET" else total - total // 2), wanted


@operator("Col2Im", host=[1, 2])
def col2im(call: Call, x: Tensor, image: Array, block: Array) -> Tensor:
    """Windows added up where they overlap: the transposed convolution that puts each column in its place."""
    sizes, kernel = ints(image), ints(block)
    if len(sizes) != 2:
        raise call.refuse(f"has {len(sizes)} axes of space, and fold goes over two")
    pads = call.get("pads", [0, 0, 0, 0])
    whole = [s + pads[a] + pads[2 + a] for a, s in enumerate(sizes)]
    y = F["fold"](x, whole, kernel, call.get("dilations", 1), 0, call.get("strides", 1))
    return y.narrow(2, pads[0], sizes[0]).narrow(3, pads[1], sizes[1])
