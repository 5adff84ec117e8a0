"""encoded_linear on the CPU: every encoding, against float64 products of what the weights stand for.

Two references: x as it is, which x rounded to 8 or 16 bits misses by up to ROUNDED of the norm; and x rounded as
encoded.c does it, which leaves the error of float32 sums alone. Many rows are not rounded so where the CPU has AMX.
"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import CPU
from pyflame.core.encoding import ENCODINGS, Encoding
from pyflame.engine.devices import get_device
from pyflame.kernels.encoded import GROUPS, tiled
from tests.children import printed_by_threads

Array = np.ndarray[Any, Any]
LARGEST = {8: 127, 16: 127 * 128}  # what x is rounded to
HALVES = 2e-3  # of the norm: float16 weights with activations of 8 bits, where the CPU adds float16
ROUNDED = {8: 2e-2, 16: 2e-4}  # of the norm. A quarter of that for many outputs, so much for an unlucky single one
PIECES = {8: 1e-2, 16: 2e-5}  # as ROUNDED, where AMX multiplies in one or two bfloat16
SUMS = 2e-6
STORED = {"float32": 0.0, "float16": 5e-4, "bfloat16": 4e-3}  # rounding of the result
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
KINDS = [pytest.param(kind, id=kind.name) for kind in ENCODINGS.values()]
MAIN = ("q4_0", "q4_k", "q6_k", "f16", "int4_g32")


def normals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def rounded(x: Array, group: int, bits: int = 16) -> Array:
    """x as `round` of encoded.c leaves it."""
    top = np.float32(LARGEST[bits])
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, group)
    largest = np.abs(groups).max(-1, keepdims=True)
    q = np.rint(groups * np.divide(top, largest, where=largest > 0, out=np.zeros_like(largest)))
    return np.asarray((q.astype(np.float64) * (largest / top)).reshape(x.shape))


def in_tiles(kind: Encoding, rows: int, bits: int) -> bool:
    """Whether this CPU multiplies so many rows as encoded_tiles.c does."""
    return rows > 8 and tiled(kind, bits, get_device(CPU).target)


def product(x: Array, data: Array, kind: Encoding, bias: Array | None = None) -> Array:
    return x.astype(np.float64) @ kind.decode(data).astype(np.float64).T + (
        0 if bias is None else bias.astype(np.float64)
    )


def linear(x: Array, data: Array, kind: Encoding, bias: Array | None = None, **options: Any) -> Array:
    tensors = [pf.tensor(a) for a in (x, data, bias) if a is not None]
    out = pf.encoded_linear(*tensors, encoding=kind.name, width=x.shape[-1], **options)
    return np.asarray(out.numpy()).astype(np.float64)


def error(got: Array, want: Array, typical: float = 0.0) -> float:
    """Relative to the norm of the result, or to what is typical for its operands where it happens to be small."""
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), typical))


def check(
    kind: Encoding,
    rows: int,
    out: int,
    width: int,
    dtype: str = "float32",
    bias: bool = True,
    bits: tuple[int, ...] = (16, 32),
) -> None:
    x = normals(rows, width).astype(DTYPES[dtype])
    data = kind.encode(normals(out, width, seed=1))
    b = normals(out, seed=2).astype(DTYPES[dtype]) if bias else None
    want, group = product(x, data, kind, b), GROUPS.get(kind.name)
    typical = float(np.linalg.norm(x.astype(np.float64)) * np.linalg.norm(kind.decode(data)) / np.sqrt(width))
    for few in bits:
        got = linear(x, data, kind, b, activation_bits=few)
        if in_tiles(kind, rows, few):
            assert error(got, want, typical) <= PIECES[few] + STORED[dtype]
        elif group is None or few == 32:
            halves = kind.name == "f16" and few == 8
            assert error(got, want, typical) <= (HALVES if halves else SUMS) + STORED[dtype]
        else:
            assert error(got, want, typical) <= ROUNDED[few] + STORED[dtype]
            assert error(got, product(rounded(x, group, few), data, kind, b), typical) <= SUMS + STORED[dtype]


def width_of(kind: Encoding, blocks: int) -> int:
    return blocks * max(kind.block, 32)


@pytest.mark.share(8)
@pytest.mark.parametrize("kind", KINDS)
def test_every_encoding(kind: Encoding) -> None:
    odd = list(ENCODINGS).index(kind.name) % 2
    check(kind, 3 if odd else 17, 33, width_of(kind, 3), bits=(8, 16) if odd else (16, 32))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_every_encoding_in_every_shape(kind: Encoding) -> None:
    for rows, out, blocks in itertools.product((1, 3, 7, 9, 17, 70), (1, 7, 33, 130), (1, 2, 5)):
        check(kind, rows, out, width_of(kind, blocks), bias=out % 2 == 0, bits=(8, 16, 32))


@pytest.mark.share(6)
@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("rows", [1, 17])
def test_odd_shapes(name: str, rows: int) -> None:
    kind = ENCODINGS[name]
    for out, blocks in ((1, 1), (7, 2), (33, 5), (300, 4)):
        check(kind, rows, out, width_of(kind, blocks), bias=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("width", [1, 3, 37])
@pytest.mark.parametrize("rows", [1, 17])
def test_floats_of_any_width(width: int, rows: int) -> None:
    check(ENCODINGS["f16"], rows, 9, width, bias=False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_of_x(dtype: str) -> None:
    check(ENCODINGS["q4_1"], 2, 33, 96, dtype)
    check(ENCODINGS["q4_1"], 17, 33, 96, dtype)


def test_leading_axes_and_what_follows() -> None:
    kind = ENCODINGS["q8_0"]
    x, data, other = normals(2, 5, 64), kind.encode(normals(40, 64, seed=1)), normals(2, 5, 40)
    linear_ = pf.encoded_linear(pf.tensor(x), pf.tensor(data), encoding="q8_0", width=64)
    got = (pf.relu(linear_) + pf.tensor(other)).numpy()
    tiles = in_tiles(kind, 10, 16)
    want = np.maximum(product(x if tiles else rounded(x, 32), data, kind), 0) + other
    assert error(got.astype(np.float64), want) <= (PIECES[16] if tiles else SUMS)


def test_default_is_sixteen_bits() -> None:
    kind = ENCODINGS["q4_0"]
    x, data = normals(3, 512), kind.encode(normals(64, 512, seed=1))
    assert error(linear(x, data, kind), product(x, data, kind)) <= 1e-4
    with pytest.raises(pf.ArgumentError, match="activation_bits to be 8, 16 or 32 but got 4"):
        linear(x, data, kind, activation_bits=4)


@pytest.mark.slow(16)
@pytest.mark.parametrize("rows", [1, 17])
def test_extremes_do_not_overflow(rows: int) -> None:
    """Codes and x all at their largest: sums of a plane must fit what they are converted by."""
    for name, width in (("q8_0", 64), ("q5_0", 64), ("q6_k", 256), ("iq4_nl", 64)):
        kind = ENCODINGS[name]
        x = np.where(np.arange(width) % 3, -1, 1).astype(np.float32) * np.ones((rows, 1), np.float32)
        data = kind.encode(np.concatenate([x[:1], -x[:1], np.abs(x[:1]), -np.abs(x[:1])]))
        for bits in (8, 16):
            most = PIECES[bits] if in_tiles(kind, rows, bits) else SUMS
            assert error(linear(x, data, kind, activation_bits=bits), product(x, data, kind)) <= most


@pytest.mark.parametrize("rows", [1, 3])
def test_halves_that_overflow_or_are_no_numbers(rows: int) -> None:
    """float16 weights with activations of 8 bits may be summed in float16; lines that this is too small for are not."""
    x, weights = normals(rows, 96), normals(11, 96, seed=1)
    weights[2], weights[5, 7], weights[6, 8], weights[7] = 6e4, np.inf, np.nan, weights[7] * 1e-4
    got = linear(x, weights.astype(np.float16).view(np.uint8), ENCODINGS["f16"], activation_bits=8)
    want = product(x, weights.astype(np.float16).view(np.uint8), ENCODINGS["f16"])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
    for line in (0, 1, 2, 3, 4, 7, 8, 9, 10):
        assert error(got[:, line], want[:, line], float(np.linalg.norm(weights[line]))) <= HALVES


def test_float64_is_not_rounded() -> None:
    kind = ENCODINGS["q4_0"]
    x, data = normals(3, 64).astype(np.float64), kind.encode(normals(8, 64, seed=1))
    assert error(linear(x, data, kind), product(x, data, kind)) <= 1e-14


@pytest.mark.parametrize("rows", [1, 17])
def test_groups_that_are_no_numbers(rows: int) -> None:
    """NaN and infinity make their row NaN, and no other; tiny and zero groups count as zero."""
    kind = ENCODINGS["q4_0"]
    x, data = normals(rows, 96), kind.encode(normals(9, 96, seed=1))
    x[0, 40] = np.nan
    tensors = pf.tensor(x), pf.tensor(data)
    got = pf.encoded_linear(*tensors, encoding="q4_0", width=96).numpy()
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1:]).all()
    x[0, 40] = np.inf
    assert not np.isfinite(pf.encoded_linear(pf.tensor(x), tensors[1], encoding="q4_0", width=96).numpy()[0]).any()
    x[0] = 0
    x[0, 1] = 1e-38
    got = pf.encoded_linear(pf.tensor(x), tensors[1], encoding="q4_0", width=96).numpy()
    assert np.abs(got[0]).max() <= 1e-30


def test_one_large_element_spoils_only_its_group() -> None:
    kind = ENCODINGS["q8_0"]
    x, data = normals(1, 256), kind.encode(normals(64, 256, seed=1))
    x[0, 3] = 1000
    apart = np.where(np.arange(256) < 32, 0, x)
    rest = linear(x, data, kind) - linear(np.where(np.arange(256) < 32, x, 0), data, kind)
    assert error(rest, product(apart, data, kind)) <= 5e-2  # float32 sums beside 1000


def test_gradients_reach_x_and_bias() -> None:
    kind = ENCODINGS["q4_0"]
    data = kind.encode(normals(8, 64, seed=1))
    x, bias = pf.tensor(normals(3, 64), requires_grad=True), pf.tensor(normals(8), requires_grad=True)
    pf.encoded_linear(x, pf.tensor(data), bias, encoding="q4_0", width=64).sum().backward()
    assert x.grad is not None and bias.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.tile(kind.decode(data).sum(0), (3, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias.grad.numpy(), np.full(8, 3.0))


@pytest.mark.slow
def test_threads_do_not_change_a_bit() -> None:
    code = (
        "import hashlib, pyflame as pf\n"
        "w = pf.quantize(pf.arange(600 * 64).reshape(600, 64).sin(), 'q4_0').data\n"
        "for rows in (1, 130):\n"
        "    y = pf.encoded_linear(pf.arange(rows * 64).reshape(rows, 64).cos(), w, encoding='q4_0', width=64)\n"
        "    print(hashlib.sha256(y.numpy().tobytes()).hexdigest())\n"
    )
    one, three = printed_by_threads(code)
    assert one == three and len(one) == 130
