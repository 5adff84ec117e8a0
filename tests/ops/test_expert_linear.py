"""expert_linear on the CPU: few and many lines, every way to multiply, against float64 products of chosen matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import CPU
from pyflame.core.encoding import ENCODINGS
from pyflame.core.errors import DTypeError, IndexError, ShapeError
from pyflame.engine.devices import get_device
from pyflame.kernels.encoded import GROUPS, tiled
from tests.children import printed_by_threads
from tests.ops.test_encoded_linear import DTYPES, HALVES, PIECES, STORED, SUMS, Array, error, normals, rounded

# rows of x, ids for each, matrices: one line, few for each matrix, many, and one matrix that has most of them
SHAPES = {"one": (1, 1, 4), "decoding": (1, 4, 16), "few": (6, 3, 9), "many": (90, 2, 5), "single": (40, 1, 1)}


def chosen(rows: int, share: int, count: int) -> Array:
    """Half of the lines have the same matrix; some ids count from the end."""
    rng = np.random.default_rng([rows, share, count])
    return np.where(rng.random((rows, share)) < 0.5, -1, rng.integers(0, count, (rows, share)))


def product(x: Array, stack: Array, ids: Array) -> Array:
    wide = np.broadcast_to(x.astype(np.float64)[:, None], (*ids.shape, x.shape[-1]))
    return np.asarray(np.einsum("rsw,rsow->rso", wide, stack.astype(np.float64)[ids]))


def check(name: str | None, shape: str, dtype: str = "float32", bits: int = 16, out: int = 37) -> None:
    rows, share, count = SHAPES[shape]
    kind = ENCODINGS[name] if name else None
    width = 2 * max(kind.block, 32) if kind else 45
    x, weight = normals(rows, width).astype(DTYPES[dtype]), normals(count, out, width, seed=1)
    data = kind.encode(weight) if kind else weight.astype(DTYPES[dtype])
    ids, bias = chosen(rows, share, count), normals(count, out, seed=2).astype(DTYPES[dtype])
    got = pf.expert_linear(*map(pf.tensor, (x, data, ids, bias)), encoding=name, activation_bits=bits).numpy()
    group = None if bits == 32 or not name else GROUPS.get(name)
    few = (3 if group else 6) * count
    tiles = kind is not None and ids.size > few and tiled(kind, bits, get_device(CPU).target)
    left = rounded(x, group, bits) if group and not tiles else x
    want = product(left, kind.decode(data) if kind else data, ids) + bias[ids].astype(float)
    halves = name == "f16" and bits == 8
    most = PIECES[bits] if tiles else HALVES if halves else SUMS
    assert error(got.astype(np.float64), want) <= most + STORED[dtype]


@pytest.mark.share(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["q4_0", "q6_k", "int4_g32", None])
def test_every_shape(name: str | None, shape: str) -> None:
    check(name, shape)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["few", "many"])
@pytest.mark.parametrize("bits", [8, 32])
def test_other_bits_of_x(shape: str, bits: int) -> None:
    for name in ("q4_0", "f16", None):
        check(name, shape, bits=bits)
    with pytest.raises(
        pf.ArgumentError, match=r"\[expert_linear\] expected activation_bits to be 8, 16 or 32 but got 4"
    ):
        check("q4_0", shape, bits=4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", ["few", "many"])
def test_sixteen_bits(dtype: str, shape: str) -> None:
    check(None, shape, dtype)
    check("q8_0", shape, dtype)


@pytest.mark.parametrize("shape", ["few", "many"])
def test_float64_keeps_its_digits(shape: str) -> None:
    rows, share, count = SHAPES[shape]
    x, stack, ids = normals(rows, 20).astype(float), normals(count, 7, 20).astype(float), chosen(rows, share, count)
    got = pf.expert_linear(pf.tensor(x), pf.tensor(stack), pf.tensor(ids)).numpy()
    assert error(got, product(x, stack, ids)) <= 1e-14


def test_what_follows_is_fused_and_no_stack_is_decoded() -> None:
    stacks = [pf.quantize(pf.ones(16, 32, 64) * n, "q4_0").data for n in (1, 2)]

    def gated(x: pf.Tensor, ids: pf.Tensor) -> pf.Tensor:
        gate, up = (pf.expert_linear(x, data, ids, encoding="q4_0") for data in stacks)
        return pf.silu(gate) * (up + 1.0)

    for rows in (1, 64):
        made = str(pf.explain(gated, pf.ones(rows, 64), pf.zeros(rows, 2, dtype=pf.int64)))
        assert "dequantize" not in made and "gather" not in made and "silu" in made
        assert made.count("encoded: lines") == 2


def test_gradients_of_many_and_few() -> None:
    """To x (twice: each row has two ids), to the stack and to the bias, as autograd of plain ops finds them."""
    for rows, count in ((3, 9), (20, 3)):
        ids = chosen(rows, 2, count)
        given = [normals(rows, 8), normals(count, 5, 8, seed=1), normals(count, 5, seed=2)]

        def gradients(plain: bool, ids: Array = ids, given: list[Array] = given) -> list[Any]:
            x, stack, bias = (pf.tensor(a, requires_grad=True) for a in given)
            at = pf.tensor(ids)
            if plain:
                y = (stack[at] * x[:, None, None]).sum(-1) + bias[at]
            else:
                y = pf.expert_linear(x, stack, at, bias)
            (y * y).sum().backward()
            return [v.grad.numpy() for v in (x, stack, bias) if v.grad is not None]

        for got, want in zip(gradients(False), gradients(True), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_gradients_reach_the_input_of_encoded_matrices() -> None:
    kind, ids = ENCODINGS["q4_0"], chosen(12, 2, 3)
    data, x = kind.encode(normals(3, 5, 64)), pf.tensor(normals(12, 64), requires_grad=True)
    pf.expert_linear(x, pf.tensor(data), pf.tensor(ids), encoding="q4_0").sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), kind.decode(data)[ids].sum((1, 2)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lines", [1, 60])
@pytest.mark.parametrize("bad", [5, -6])
def test_ids_are_checked(lines: int, bad: int) -> None:
    ids = np.zeros(lines, np.int64)
    ids[-1] = bad
    with pytest.raises(IndexError, match=rf"\[expert_linear\] expected an index in \[-5, 4\] but got {bad}"):
        pf.expert_linear(pf.ones(lines, 8), pf.ones(5, 3, 8), pf.tensor(ids)).numpy()


def test_refusals() -> None:
    x, stack, ids = pf.ones(2, 32), pf.ones(3, 4, 32), pf.tensor([0, 1])
    with pytest.raises(ShapeError, match=r"\[expert_linear\] expected x \(..., width\) and a stack .* got \(2, 32\)"):
        pf.expert_linear(x, pf.ones(3, 4, 31), ids)
    with pytest.raises(ShapeError, match=r"\[expert_linear\] expected ids \(2,\), or more axes .* but got \(3,\)"):
        pf.expert_linear(x, stack, pf.tensor([0, 1, 2]))
    with pytest.raises(DTypeError, match=r"\[expert_linear\] expected matrices of float32, as x, or an encoding"):
        pf.expert_linear(x, stack.to(pf.float16), ids)
    with pytest.raises(DTypeError, match=r"\[expert_linear\] expected bytes \(uint8\) of blocks but got float32"):
        pf.expert_linear(x, stack, ids, encoding="q4_0")
    with pytest.raises(DTypeError, match=r"\[expert_linear\] expected an index of integers but got float32"):
        pf.expert_linear(x, stack, pf.ones(2))
    with pytest.raises(ShapeError, match=r"\[expert_linear\] expected a bias \(3, 4\) of float32 but got \(4,\)"):
        pf.expert_linear(x, stack, ids, pf.ones(4))
    with pytest.raises(IndexError, match=r"\[expert_linear\] expected elements to index"):
        pf.expert_linear(x, stack[:0], ids)


@pytest.mark.slow
def test_threads_do_not_change_a_bit() -> None:
    code = (
        "import hashlib, pyflame as pf\n"
        "w = pf.quantize(pf.arange(8 * 60 * 64).reshape(8, 60, 64).sin(), 'q4_0').data\n"
        "for rows in (1, 130):\n"
        "    ids = (pf.arange(rows * 2).reshape(rows, 2) * 5) % 8\n"
        "    y = pf.expert_linear(pf.arange(rows * 64).reshape(rows, 64).cos(), w, ids, encoding='q4_0')\n"
        "    print(hashlib.sha256(y.numpy().tobytes()).hexdigest())\n"
    )
    one, three = printed_by_threads(code)
    assert one == three and len(one) == 130
