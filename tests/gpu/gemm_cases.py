"""Products and convolutions of awkward shapes, views and dtypes, with what NumPy says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.dtype import DType
from pyflame.ir import OPS, F
from pyflame.tensor import Tensor

Array = np.ndarray[Any, Any]
DTYPES = (
    pf.float32, pf.float64, pf.float16, pf.bfloat16, pf.int8, pf.uint8, pf.int16, pf.int32, pf.int64
)  # fmt: skip
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}


@dataclass
class Case:
    """A graph, what its outputs should be, and how large sums such as they are mostly are.

    A lone sum of many products may be near 0 by chance; what was rounded on the way there was not.
    """

    outputs: list[pf.Tensor]
    expected: list[Array]
    size: float = 1.0


Build = Callable[[], Case]


def numbers(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Numbers that the dtype holds exactly. Integers run through all of theirs, so that sums wrap."""
    rng = np.random.default_rng(seed + prod(shape))
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)


def wide(array: Array) -> Array:
    return array.astype(np.float64 if array.dtype.kind not in "iub" else np.int64)


def seen(array: Array, view: str) -> tuple[pf.Tensor, Array]:
    """A tensor of these numbers behind a view, and the numbers as the view shows them."""
    if view == "transposed":
        order = (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
        return pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(*order), array
    fastest = {"first last": 0, "last first": 1, "third last": 2}.get(view)
    if fastest is not None:  # this axis fastest in memory
        order = (*(a for a in range(array.ndim) if a != fastest), fastest)
        back = np.argsort(order).tolist()
        return pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(*back), array
    if view == "spread":  # every second element along the last axis
        room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        room[..., ::2] = array
        return pf.tensor(room)[..., ::2], array
    if view == "flipped":
        return pf.flip(pf.tensor(np.ascontiguousarray(array[..., ::-1])), (-1,)), array
    if view == "misaligned":  # memory that begins one element behind what vectors ask for
        room = np.zeros(array.size + 1, array.dtype)
        room[1:] = array.reshape(-1)
        return pf.from_numpy(room[1:].reshape(array.shape)), array
    assert view == "plain"
    return pf.tensor(array), array


def product(
    x: tuple[int, ...], y: tuple[int, ...], dtype: DType = pf.float32, views: tuple[str, str] = ("plain", "plain")
) -> Build:
    def build() -> Case:
        (left, a), (right, b) = seen(numbers(x, dtype, 1), views[0]), seen(numbers(y, dtype, 2), views[1])
        with np.errstate(over="ignore"):
            return Case([left @ right], [(wide(a) @ wide(b)).astype(dtype.numpy)], size_of_sums(a, b))

    return build


def size_of_sums(a: Array, b: Array) -> float:
    """Of the products of rows and columns of independent numbers: the root of k, times what the numbers are."""
    return float(np.sqrt(a.shape[-1] * np.mean(wide(a) ** 2.0) * np.mean(wide(b) ** 2.0)))


def fused(rows: int, k: int, columns: int, dtype: DType = pf.float32) -> Build:
    """Bias, residual and activation behind a product; the residual is one of its operands where that fits."""

    def build() -> Case:
        a, b, bias = (numbers(s, dtype, n) for n, s in enumerate([(rows, k), (k, columns), (columns,)]))
        rest = a if k == columns else numbers((rows, columns), dtype, 3)
        x = pf.tensor(a)
        out = pf.relu(x @ pf.tensor(b) + pf.tensor(bias)) + (x if rest is a else pf.tensor(rest))
        return Case([out], [(np.maximum(wide(a) @ wide(b) + wide(bias), 0) + wide(rest)).astype(dtype.numpy)])

    return build


def convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: tuple[int, int, int] = (1, 1, 1),
    pad: tuple[int, int, int] = (0, 0, 0),
    lhs: tuple[int, int, int] = (1, 1, 1),
    rhs: tuple[int, int, int] = (1, 1, 1),
    dtype: DType = pf.float32,
    views: tuple[str, str] = ("plain", "plain"),
    high: tuple[int, int, int] | None = None,
) -> Build:
    """conv_general of x (N, G, C, S0, S1, S2) and w (G, O, C, K0, K1, K2)."""

    def build() -> Case:
        (left, a), (right, b) = seen(numbers(x, dtype, 1), views[0]), seen(numbers(w, dtype, 2), views[1])
        room = [(s - 1) * d + 1 + lo + hi for s, d, lo, hi in zip(x[3:], lhs, pad, high or pad, strict=True)]
        out = tuple((r - (k - 1) * d - 1) // s + 1 for r, k, d, s in zip(room, w[3:], rhs, stride, strict=True))
        geometry = (stride, pad, out, lhs, rhs)
        reference = OPS["conv_general"].reference
        assert reference is not None
        expected = reference(wide(a), wide(b), *geometry).astype(dtype.numpy)
        return Case([Tensor(F.conv_general(left._node, right._node, *geometry))], [expected])

    return build


def trained(
    op: Callable[..., pf.Tensor], x: tuple[int, ...], w: tuple[int, ...], dtype: DType = pf.float32, **options: Any
) -> Build:
    """Both gradients of a convolution; the CPU's kernels say what they should be, and torch what those should be."""

    def build() -> Case:
        def gradients() -> list[pf.Tensor]:
            a, b = (pf.tensor(numbers(s, dtype, n)).requires_grad_() for n, s in ((1, x), (2, w)))
            out = op(a, b, **options)
            (out * pf.tensor(numbers(out.shape, dtype, 3))).sum().backward()
            return [t.grad for t in (a, b) if t.grad is not None]

        return Case(gradients(), [g.numpy() for g in gradients()])

    return build


def check(results: list[Array], case: Case) -> None:
    for result, want in zip(results, case.expected, strict=True):
        assert result.shape == want.shape
        assert result.dtype == want.dtype
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(result, want)
            continue
        tolerance = TOLERANCE[want.dtype.name]
        scale = float(np.abs(wide(want)).max(initial=case.size))
        np.testing.assert_allclose(wide(result), wide(want), rtol=tolerance, atol=tolerance * scale)


def normed(rows: int, k: int, n: int, dtype: DType = pf.float32, bias: bool = False, view: str = "plain") -> Build:
    """A linear layer behind an RMS norm."""

    def build() -> Case:
        shapes = ((rows, 1, k), (k,), (n, k), (n,))
        (x, a), (scale, g), (weight, w), (shift, b) = (seen(numbers(s, dtype, i), view) for i, s in enumerate(shapes))
        y = pf.linear(pf.rms_norm(x, (k,), scale, 1e-3), weight, shift if bias else None)
        a, g, w, b = map(wide, (a, g, w, b))
        want = (a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-3) * g) @ w.T + (b if bias else 0)
        return Case([y], [want.astype(dtype.numpy)], float(k) ** 0.5)

    return build


def _products() -> Iterator[tuple[str, Build]]:
    shapes = [
        ((1, 1), (1, 1)), ((3, 5), (5, 7)), ((17, 1), (1, 19)), ((33, 65), (65, 17)), ((64, 64), (64, 64)),
        ((131, 37), (37, 67)), ((130, 24), (24, 136)), ((40, 2048), (2048, 36)), ((256, 9), (9, 10)),
    ]  # fmt: skip
    for x, y in shapes:
        yield f"product {x} {y}", product(x, y)
    for views in (("transposed", "plain"), ("plain", "transposed"), ("transposed", "transposed"),
                  ("spread", "plain"), ("flipped", "spread"), ("spread", "flipped"),
                  ("misaligned", "misaligned")):  # fmt: skip
        yield f"product {' '.join(views)}", product((68, 40), (40, 72), views=views)
        yield f"product odd {' '.join(views)}", product((67, 41), (41, 35), views=views)
    # few rows or columns: along k, across lines, neither; short and long
    for rows in (1, 2, 3, 5, 8):
        yield f"{rows} rows", product((rows, 96), (96, 260))
        yield f"{rows} rows, transposed", product((rows, 96), (96, 133), views=("plain", "transposed"))
        yield f"{rows} columns", product((260, 96), (96, rows))
        yield f"{rows} columns, transposed", product((133, 97), (97, rows), views=("transposed", "plain"))
    yield "1 row, spread", product((1, 96), (96, 64), views=("plain", "spread"))
    yield "1 row, misaligned", product((1, 96), (96, 64), views=("plain", "misaligned"))
    yield "1 column, misaligned", product((64, 96), (96, 1), views=("misaligned", "plain"))
    yield "1 row of a spread few", product((1, 96), (96, 64), views=("spread", "transposed"))
    yield "dot", product((1, 50000), (50000, 1))
    yield "short dots", product((300, 5), (5, 1))
    yield "long dots", product((6, 20000), (20000, 3))
    yield "long columns", product((1, 6000), (6000, 40))
    # batches
    yield "batch", product((3, 20, 24), (3, 24, 28))
    yield "batch of shared right", product((2, 3, 20, 24), (24, 28))
    yield "batch of shared left", product((20, 24), (5, 24, 28))
    yield "batch broadcast both ways", product((2, 1, 20, 24), (3, 24, 28))
    yield "batch of three axes", product((2, 1, 3, 9, 8), (1, 4, 3, 8, 11))
    yield "batch of rows", product((4, 1, 40), (4, 40, 36))
    yield "batch of columns, transposed", product((4, 36, 40), (4, 40, 1), views=("transposed", "plain"))
    yield "batch of long dots", product((2, 1, 9000), (2, 9000, 1))
    yield "batch transposed", product((2, 3, 20, 24), (2, 3, 24, 28), views=("transposed", "transposed"))
    for dtype in DTYPES:
        yield f"{dtype.name}", product((70, 36), (36, 44), dtype)
        yield f"{dtype.name} odd, transposed", product((35, 37), (37, 41), dtype, ("transposed", "transposed"))
        yield f"{dtype.name} rows", product((2, 256), (256, 64), dtype)
        yield f"{dtype.name} columns", product((64, 256), (256, 1), dtype)
        yield f"{dtype.name} long", product((9, 3000), (3000, 12), dtype)
    yield "normed row", normed(1, 576, 260)
    yield "normed rows", normed(2, 1030, 133, pf.float16, bias=True)
    yield "normed row, misaligned", normed(1, 512, 140, pf.bfloat16, view="misaligned")
    yield "normed long row", normed(1, 4104, 66, pf.bfloat16, bias=True)
    yield "fused", fused(70, 33, 45)
    yield "fused with its own operand", fused(70, 48, 48)
    yield "fused bfloat16", fused(33, 64, 40, pf.bfloat16)
    yield "fused rows", fused(4, 64, 128)
    yield "fused long", fused(20, 4096, 24)


def _convolutions() -> Iterator[tuple[str, Build]]:
    image = (2, 1, 3, 1, 9, 11)
    yield "conv", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 1, 1))
    yield "conv stride", convolution(image, (1, 12, 3, 1, 3, 2), stride=(1, 2, 3), pad=(0, 1, 2))
    yield "conv dilation", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 2, 2), rhs=(1, 2, 2))
    yield "conv uneven pads", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 2, 0), high=(0, 0, 1))
    yield "conv negative pad", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, -1, -2), high=(0, 0, 0))
    yield "conv 1x1", convolution((2, 1, 20, 1, 6, 7), (1, 33, 20, 1, 1, 1))
    yield "conv 1d", convolution((3, 1, 4, 1, 1, 50), (1, 10, 4, 1, 1, 5), pad=(0, 0, 2))
    yield "conv 3d", convolution((2, 1, 2, 4, 5, 6), (1, 9, 2, 2, 3, 2), stride=(1, 2, 1), pad=(1, 1, 0))
    yield "conv 3d middle axes", convolution((1, 1, 2, 5, 1, 6), (1, 9, 2, 3, 1, 2))
    yield "conv one pixel", convolution((1, 1, 70, 1, 1, 1), (1, 40, 70, 1, 1, 1))
    yield "conv groups", convolution((2, 3, 4, 1, 7, 8), (3, 9, 4, 1, 3, 3), pad=(0, 1, 1))
    yield "conv many channels", convolution((1, 1, 40, 1, 12, 12), (1, 130, 40, 1, 3, 3), pad=(0, 1, 1))
    yield "conv large", convolution((3, 1, 6, 1, 16, 16), (1, 130, 6, 1, 3, 3), pad=(0, 1, 1))
    yield "conv long k", convolution((1, 1, 300, 1, 4, 4), (1, 10, 300, 1, 3, 3))
    # dilated inputs: transposed convolution with dilated taps, gradients of gradients
    yield "conv dilated input", convolution(image, (1, 12, 3, 1, 3, 3), lhs=(1, 2, 3), rhs=(1, 2, 1), pad=(0, 3, 2))
    yield "conv dilated input, stride", convolution(image, (1, 12, 3, 1, 3, 3), stride=(1, 3, 2), lhs=(1, 2, 3))
    yield "conv dilated depthwise", convolution((2, 5, 1, 1, 7, 6), (5, 1, 1, 1, 3, 3), lhs=(1, 2, 2), rhs=(1, 2, 2))
    # views
    for view in ("last first", "transposed", "spread", "flipped"):
        yield f"conv of {view}", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 1, 1), views=(view, "plain"))
        yield f"conv by {view}", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 1, 1), views=("plain", view))
    # few channels per group
    yield "depthwise", convolution((2, 6, 1, 1, 9, 11), (6, 1, 1, 1, 3, 3), pad=(0, 1, 1))
    yield "depthwise stride", convolution((2, 6, 1, 1, 9, 11), (6, 2, 1, 1, 3, 3), stride=(1, 2, 2), pad=(0, 1, 1))
    yield "depthwise 1d", convolution((2, 6, 1, 1, 1, 40), (6, 1, 1, 1, 1, 4), pad=(0, 0, 3))
    yield "depthwise 3d", convolution((1, 3, 1, 4, 5, 6), (3, 1, 1, 2, 3, 2), pad=(1, 1, 1))
    yield "few channels", convolution((2, 3, 4, 1, 9, 8), (3, 5, 4, 1, 3, 3), pad=(0, 1, 1))
    yield "one channel", convolution((2, 1, 40, 1, 9, 8), (1, 1, 40, 1, 3, 3), pad=(0, 1, 1))
    yield "few long", convolution((2, 2, 60, 1, 5, 5), (2, 3, 60, 1, 5, 5))
    # backward-weight: taps as large as images, few outputs
    yield "backward weight", convolution((3, 1, 4, 1, 18, 18), (1, 10, 4, 1, 16, 16))
    yield "backward weight of depthwise", convolution((1, 5, 4, 1, 18, 18), (5, 1, 4, 1, 16, 16))
    yield "backward weight of one", convolution((1, 1, 9, 1, 42, 42), (1, 1, 9, 1, 40, 40))
    for dtype in DTYPES:
        yield f"conv {dtype.name}", convolution(image, (1, 12, 3, 1, 3, 3), pad=(0, 1, 1), dtype=dtype)
        yield f"depthwise {dtype.name}", convolution((1, 4, 1, 1, 6, 7), (4, 1, 1, 1, 3, 3), dtype=dtype)
        yield f"dot {dtype.name}", convolution((1, 2, 1, 1, 34, 33), (2, 2, 1, 1, 32, 32), dtype=dtype)
    yield "gradients", trained(pf.conv2d, (2, 3, 8, 9), (5, 3, 3, 3), stride=2, padding=1)
    yield "gradients of groups", trained(pf.conv2d, (2, 4, 8, 9), (4, 1, 3, 3), padding=1, groups=4)
    yield "gradients of 3d", trained(pf.conv3d, (1, 2, 5, 6, 4), (3, 2, 3, 2, 2), dilation=2, padding=2)
    yield "gradients of transposed", trained(pf.conv_transpose2d, (2, 3, 5, 6), (3, 4, 3, 3), stride=2, padding=1)
    yield "gradients of 1x1", trained(pf.conv2d, (2, 12, 5, 6), (9, 12, 1, 1), stride=2)
    yield "conv with bias", fused_convolution((2, 3, 8, 9), (12, 3, 3, 3), padding=1)


def fused_convolution(
    x: tuple[int, ...], w: tuple[int, ...], dtype: DType = pf.float32, rest: str = "", **options: Any
) -> Build:
    """Bias and activation behind a convolution, and a residual behind this view."""

    def build() -> Case:
        a, b, bias = (numbers(s, dtype, n) for n, s in enumerate((x, w, w[:1]), 1))
        reference = OPS["conv2d"].reference
        assert reference is not None
        expected = np.maximum(reference(wide(a), wide(b), wide(bias), **options), 0)
        out = pf.relu(pf.conv2d(pf.tensor(a), pf.tensor(b), pf.tensor(bias), **options))
        if rest:
            residual, shown = seen(numbers(out.shape, dtype, 4), rest)
            out, expected = out + residual, expected + wide(shown)
        return Case([out], [expected.astype(dtype.numpy)])

    return build


CASES: dict[str, Build] = {**dict(_products()), **dict(_convolutions())}
