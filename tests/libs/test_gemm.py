"""Our matrices in a BLAS's words: whatever the strides say must be what the library would compute."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError
from pyflame.libs.conv import ConvSpec, packed
from pyflame.libs.gemm import GemmSpec, Operand, Strides, by_columns
from pyflame.libs.lt import alignment


def column_view(flat: np.ndarray[Any, Any], o: Operand, index: int) -> np.ndarray[Any, Any]:
    """The matrix that a library sees, by columns, transposed if it is told so."""
    item = flat.itemsize
    start = flat[o.stride * index :]
    matrix = np.lib.stride_tricks.as_strided(start, (o.rows, o.cols), (item, item * o.lead))
    return matrix.T if o.transposed else matrix


def strided(flat: np.ndarray[Any, Any], rows: int, cols: int, strides: Strides, index: int) -> np.ndarray[Any, Any]:
    item = flat.itemsize
    return np.lib.stride_tricks.as_strided(
        flat[strides[2] * index :], (rows, cols), (item * strides[0], item * strides[1])
    )


def layouts(rows: int, cols: int) -> list[Strides]:
    """By rows, by columns, and both with room between."""
    size = 4 * rows * cols
    return [(cols, 1, size), (cols + 3, 1, size), (1, rows, size), (1, rows + 5, size)]


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (1, 7, 3), (5, 1, 3), (5, 7, 1), (1, 1, 3), (1, 1, 1)])
def test_layouts(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for a, b, c in itertools.product(layouts(m, k), layouts(k, n), layouts(m, n)):
        spec = GemmSpec(m, n, k, "float64", batch=2, a=a, b=b, c=c)
        problem = by_columns(spec)
        assert problem is not None
        seen.add((problem.first.transposed, problem.second.transposed, problem.swapped))
        left, right, out = rng.standard_normal(999), rng.standard_normal(999), np.zeros(999)
        first, second = (right, left) if problem.swapped else (left, right)
        for i in range(2):
            result = column_view(first, problem.first, i) @ column_view(second, problem.second, i)
            assert result.shape == (problem.m, problem.n)
            column_view(out, problem.out, i)[...] = result
            want = strided(left, m, k, a, i) @ strided(right, k, n, b, i)
            np.testing.assert_allclose(strided(out, m, n, c, i), want)
        for operand in (problem.first, problem.second, problem.out):
            assert operand.lead >= operand.rows  # what every BLAS insists on
    if min(m, n, k) > 1:
        assert len(seen) == 8


def test_beyond_a_blas() -> None:
    for a in ((6, 2, 0), (0, 1, 0), (1, 0, 0), (2, 1, 0)):  # no axis packed, repeated rows, repeated columns, overlap
        assert by_columns(GemmSpec(4, 4, 4, a=a)) is None
    assert by_columns(GemmSpec(4, 4, 4, c=(1, 4, 16))) is not None
    assert by_columns(GemmSpec(4, 4, 4, c=(1, 4, 16), bias=True)) is None  # would run along the other axis
    assert by_columns(GemmSpec(4, 4, 4, batch=2, c=(4, 1, 0))) is None  # results on top of each other


def test_spec() -> None:
    spec = GemmSpec(2, 3, 4, "int8", batch=5)
    assert (spec.out, spec.a, spec.b, spec.c) == ("int32", (4, 1, 8), (3, 1, 12), (3, 1, 6))
    assert spec.flops == 2 * 5 * 2 * 3 * 4
    assert GemmSpec(2, 3, 4, bias=True, activation="gelu", tf32=True).text == (
        "(2, 4) @ (4, 3) float32 tf32 +bias +gelu"
    )
    assert GemmSpec(2, 3, 4, "bfloat16", "float32").out == "float32"
    for bad in (dict(m=0), dict(dtype="bool"), dict(out="float16"), dict(activation="swish")):
        with pytest.raises(ArgumentError, match=r"\[gemm\] expected"):
            GemmSpec(**{"m": 1, "n": 1, "k": 1, **bad})  # type: ignore[arg-type]


def test_alignment() -> None:
    assert [alignment(a) for a in (0, 256, 512, 16, 24, 2, 7)] == [256, 256, 256, 16, 8, 2, 1]


def test_conv_spec() -> None:
    spec = ConvSpec(2, 4, (10,), 6, (3,), (2,), (1,), (2,), 2, "float16")
    assert (spec.x, spec.w, spec.y) == ((2, 4, 10), (6, 2, 3), (2, 6, 4))
    assert spec.flat.x == (2, 4, 1, 10)
    assert spec.flat.y == (2, 6, 1, 4)
    assert (spec.flat.padding, spec.flat.dilation, spec.flat.dtype) == ((0, 1), (1, 2), "float16")
    assert spec.flops == 2 * 2 * 6 * 4 * 2 * 3
    assert ConvSpec(1, 1, (4, 4, 4), 1, (2, 2, 2)).flat.y == (1, 1, 3, 3, 3)
    assert packed((2, 3, 4)) == (12, 4, 1)
    for bad in (
        dict(size=(8, 8), kernel=(3,)),
        dict(groups=3),
        dict(kernel=(9, 9)),
        dict(size=(2, 2, 2, 2), kernel=(1, 1, 1, 1)),
    ):
        with pytest.raises(ArgumentError, match=r"\[conv\] expected"):
            ConvSpec(**{"batch": 1, "channels": 4, "size": (8, 8), "filters": 4, "kernel": (3, 3), **bad})  # type: ignore[arg-type]
