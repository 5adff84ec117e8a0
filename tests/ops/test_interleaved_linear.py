"""interleaved_linear on the CPU: the same bits as encoded_linear of many rows, for any number of rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import CPU
from pyflame.core.encoding import ENCODINGS, Encoding
from pyflame.core.interleaving import as_stored, interleaved
from pyflame.engine.devices import get_device
from pyflame.kernels.encoded import lanes
from pyflame.tensor.interleaved import interleave
from tests.ops.test_encoded_linear import PIECES, SUMS, error, in_tiles, linear, normals, product, rounded

Array = np.ndarray[Any, Any]
KINDS = [pytest.param(kind, id=kind.name) for kind in ENCODINGS.values() if kind.interleaves]
MANY = 8  # rows from which encoded_linear sums in the same order, where SDOT multiplies


def weight_of(kind: Encoding, out: int, blocks: int) -> pf.EncodedTensor:
    return pf.EncodedTensor(kind.encode(normals(out, blocks * kind.block, seed=1)), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_interleaving_can_be_undone(kind: Encoding) -> None:
    for out, blocks, lines in itertools.product((1, 4, 7, 33), (1, 3), (1, 4, 8, 16)):
        rows = weight_of(kind, out, blocks).data.numpy()
        sets = interleaved(rows, kind, lines)
        assert sets.shape == (-(-out // lines) * lines, rows.shape[1])
        np.testing.assert_array_equal(as_stored(sets, kind, lines, out), rows)


def test_many_rows_are_moved_in_parts() -> None:
    kind = ENCODINGS["q4_0"]
    rows = np.random.default_rng(0).integers(0, 256, (5003, 36 * 18), np.uint8)
    np.testing.assert_array_equal(as_stored(interleaved(rows, kind, 4), kind, 4, 5003), rows)


@pytest.mark.share(6)
@pytest.mark.skipif("asimddp" not in get_device(CPU).target.isa, reason="others take offsets off in floats")
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_for_few_and_many_rows(kind: Encoding) -> None:
    for (out, blocks), rows, bits in itertools.product(((1, 1), (37, 3)), (1, 3, 9), (8, 16)):
        weight = weight_of(kind, out, blocks)
        x = normals(max(rows, MANY), weight.shape[1])
        want = pf.encoded_linear(
            pf.tensor(x), weight.data, encoding=kind, width=x.shape[1], activation_bits=bits
        ).numpy()
        got = interleave(weight).linear(pf.tensor(x[:rows]), activation_bits=bits).numpy()
        assert got.tobytes() == want[:rows].tobytes()


@pytest.mark.share(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_against_rounded_x(kind: Encoding, rows: int) -> None:
    weight, group = weight_of(kind, 70, 2), 16 if kind.name == "q6_k" else 32
    x, bias = normals(rows, weight.shape[1]), normals(70, seed=2)
    for bits in (8, 16):
        got = interleave(weight).linear(pf.tensor(x), pf.tensor(bias), bits).numpy().astype(np.float64)
        tiles = in_tiles(kind, rows, bits)
        want = product(x if tiles else rounded(x, group, bits), weight.data.numpy(), kind, bias)
        assert error(got, want) <= (PIECES[bits] if tiles else SUMS)


@pytest.mark.slow
def test_what_the_kernel_does_not_take() -> None:
    """Lines for another CPU, x that is not rounded, float64: put in order, and then as encoded_linear."""
    kind, other = ENCODINGS["q4_0"], 4 if lanes(get_device(CPU).target) != 4 else 8
    x, rows = normals(3, 64), kind.encode(normals(6, 64, seed=1))
    options = {"encoding": "q4_0", "width": 64, "outputs": 6}
    sets = pf.tensor(interleaved(rows, kind, other))
    got = pf.interleaved_linear(pf.tensor(x), sets, lines=other, **options).numpy()
    np.testing.assert_array_equal(got, linear(x, rows, kind))
    copy = interleave(pf.EncodedTensor(rows, kind))
    got = copy.linear(pf.tensor(x), activation_bits=32).numpy()
    np.testing.assert_array_equal(got, linear(x, rows, kind, activation_bits=32))
    wide = copy.linear(pf.tensor(x.astype(np.float64))).numpy()
    assert error(wide, product(x, rows, kind)) <= 1e-14


def test_groups_that_are_no_numbers() -> None:
    x, copy = normals(2, 96), interleave(weight_of(ENCODINGS["q4_0"], 9, 3))
    x[0, 40] = np.inf
    got = copy.linear(pf.tensor(x)).numpy()
    assert np.isnan(got[0]).all() and np.isfinite(got[1]).all()


def test_gradients_reach_x_and_bias() -> None:
    weight = weight_of(ENCODINGS["q8_0"], 6, 2)
    x, bias = pf.tensor(normals(3, 64), requires_grad=True), pf.tensor(normals(6), requires_grad=True)
    interleave(weight).linear(x, bias).sum().backward()
    assert x.grad is not None and bias.grad is not None
    np.testing.assert_allclose(
        x.grad.numpy(), np.tile(weight.dequantize().numpy().sum(0), (3, 1)), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(bias.grad.numpy(), np.full(6, 3.0))


def test_refusals() -> None:
    copy = interleave(weight_of(ENCODINGS["q4_0"], 6, 2))
    options = {"encoding": "q4_0", "width": 64, "lines": copy.lines}
    with pytest.raises(pf.ShapeError, match=r"\[interleaved_linear\] expected sets of \d+ rows, 99 in all"):
        pf.interleaved_linear(pf.ones(64), copy.data, outputs=99, **options)
    with pytest.raises(pf.ShapeError, match=r"expected a bias of shape \(6,\)"):
        pf.interleaved_linear(pf.ones(64), copy.data, pf.ones(8), outputs=6, **options)
    with pytest.raises(pf.ShapeError, match=r"expected x \(\.\.\., 64\)"):
        pf.interleaved_linear(pf.ones(32), copy.data, outputs=6, **options)
    with pytest.raises(
        pf.ArgumentError, match=r"\[interleave\] expected an encoding that can be interleaved but got f16"
    ):
        interleave(pf.quantize(pf.ones(4, 32), "f16"))
    with pytest.raises(pf.ShapeError, match=r"\[interleave\] expected a weight \(out, width\)"):
        interleave(pf.quantize(pf.ones(32), "q4_0"))
