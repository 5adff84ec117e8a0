"""Writes to a few lines on simulated GPUs: those of the CPU, in index order; nothing where an index is bad."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from tests.decoding import Layer

DEVICES = ("sim:gfx942", "sim:gfx1100")


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_decoders_step(device: str, interleaved: bool) -> None:
    found = {}
    for place in ("cpu", device):
        with pf.device(place):
            layer = Layer(3, interleaved)
            step = layer.step()
            for _ in range(3):
                out = step(layer.x, layer.positions)
                layer.positions += 1
            found[place] = [t.numpy() for t in (out, layer.keys, layer.values)]
    for mine, theirs in zip(found[device], found["cpu"], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("index", [[4], [2, 0, 3], [1, 4, 1, 2, 4, 4, 0], [-1, 2, 4, -5], list(range(32))], ids=str)
def test_the_last_of_a_line_stays(index: list[int], width: int, device: str) -> None:
    lines = max(5, len(index))
    base = np.arange(lines * width, dtype=np.float32).reshape(lines, width)
    values = -1 - np.arange(len(index) * width, dtype=np.float32).reshape(-1, width)
    with pf.device(device):
        x = pf.tensor(base)
        x[pf.tensor(index)] = pf.tensor(values) * 2.0
        got = x.numpy()
    base[index] = values * 2.0
    np.testing.assert_array_equal(got, base)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [pf.bfloat16, pf.float64, pf.int8, pf.bool_, pf.complex64], ids=lambda d: d.name)
def test_types(dtype: pf.DType, device: str) -> None:
    base, values = np.arange(60).reshape(6, 10) % 7, np.arange(20).reshape(2, 10) % 5 % 2
    with pf.device(device):
        x = pf.tensor(base, dtype=dtype)
        x.index_copy_(0, pf.tensor([5, 1]), pf.tensor(values, dtype=dtype))
        got = x.numpy()
    want = base.astype(got.dtype)
    want[[5, 1]] = values.astype(got.dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("device", DEVICES)
def test_columns_regions_and_lines_that_are_read(device: str) -> None:
    base = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
    with pf.device(device):
        columns, region, read = (pf.tensor(base) for _ in range(3))
        columns.index_copy_(1, pf.tensor([7, 0]), pf.full((6, 2), -1.0))
        region[1:5:2, :4][:, pf.tensor([2, 2, 0])] = pf.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        read.index_copy_(0, pf.tensor([1, 0]), read[0:2] + 1.0)
        got = [t.numpy() for t in (columns, region, read)]
    want = [base.copy() for _ in range(3)]
    want[0][:, [7, 0]] = -1
    want[1][1:5:2, :4][:, [2, 2, 0]] = [[1, 2, 3], [4, 5, 6]]
    want[2][[1, 0]] = base[0:2] + 1
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_a_bad_index_writes_nothing(device: str) -> None:
    """Neither there nor to what is written beside it."""
    with pf.device(device):
        keys, values = pf.zeros(5, 8), pf.zeros(5, 8)
        pf.eval(keys, values)

        @pf.jit
        def write(at: pf.Tensor, x: pf.Tensor) -> pf.Tensor:
            keys.index_copy_(0, at, x * 2.0)
            values.index_copy_(0, at, x + 1.0)
            return x.sum()

        x = pf.ones(2, 8)
        write(pf.tensor([0, 3]), x).numpy()
        with pytest.raises(IndexError, match="5"):
            write(pf.tensor([1, 5]), x).numpy()
        assert (keys.numpy()[[1, 2, 4]] == 0).all() and (values.numpy()[[1, 2, 4]] == 0).all()
        assert (keys.numpy()[[0, 3]] == 2).all() and (values.numpy()[[0, 3]] == 2).all()
