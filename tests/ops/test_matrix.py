"""Matrix products: every broadcasting rule, einsum equations, how many products a gradient takes, and bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyflame as pf
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from tests.plans import plan_of

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def products(draw: Any) -> tuple[Any, Any]:
    """Two arrays that matmul takes: batch axes of which some are 1 or missing, strided and transposed layouts."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    m, k, n = (draw(st.sampled_from([0, 1, 2, 3, 5, 17, 40])) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=3))

    def operand(rows: int, columns: int) -> Any:
        kept = batch[draw(st.integers(0, len(batch))) :]
        shape = (*(size if draw(st.booleans()) else 1 for size in kept), rows, columns)
        layout = draw(st.sampled_from(["plain", "transposed", "sliced"]))
        if layout == "transposed":
            return rng.standard_normal(shape[::-1]).transpose()
        return (
            rng.standard_normal((*shape[:-1], 2 * columns))[..., ::2]
            if layout == "sliced"
            else rng.standard_normal(shape)
        )

    x, y = operand(m, k), operand(k, n)
    x = x[..., 0, :] if m and draw(st.booleans()) and x.ndim == 2 else x
    return x, y[..., 0] if n and draw(st.booleans()) and y.ndim == 2 else y


def view(array: Any) -> pf.Tensor:
    """A tensor in the memory order of the array."""
    order = tuple(np.argsort([-s for s in array.strides], kind="stable"))
    return pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(tuple(int(a) for a in np.argsort(order)))


@pytest.mark.slow
@SETTINGS
@given(products())
def test_matmul(case: Any) -> None:
    x, y = case
    np.testing.assert_allclose((view(x) @ view(y)).numpy(), x @ y, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("m", [1, 9, 40])
def test_matmul_of_integers_wraps(dtype: Any, m: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 100, shape).astype(dtype.numpy) for shape in ((m, 70), (70, 33)))
    got = pf.tensor(x) @ pf.tensor(y)
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), (x.astype(np.int64) @ y.astype(np.int64)).astype(dtype.numpy))


def test_gradients_of_linear_are_one_product_each() -> None:
    """x (B, T, K) with one weight: dx is (B*T, N) @ (N, K) and dw is (N, B*T) @ (B*T, K), stored as the weight is."""
    x, w = (pf.tensor(np.ones(s, np.float32)).requires_grad_() for s in ((4, 5, 6), (3, 6)))
    pf.linear(x, w).backward(pf.tensor(np.ones((4, 5, 3), np.float32)))
    plan = plan_of(x.grad, w.grad)
    assert [launch.implementation for launch in plan.launches] == ["gemm", "gemm"]
    assert sorted(launch.output for launch in plan.launches) == [(3, 6), (4, 5, 6)]
    np.testing.assert_array_equal(w.grad.numpy(), np.full((3, 6), 20.0))


def test_batch_axes_become_rows_with_a_fused_epilogue() -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((3, 1, 7, 8), (8, 33), (33,)))
    y = pf.relu(pf.tensor(x) @ pf.tensor(w) + pf.tensor(b))
    assert len(plan_of(y).launches) == 1
    np.testing.assert_allclose(y.numpy(), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-5)


@st.composite
def equations(draw: Any) -> tuple[str, list[Any]]:
    sizes = {label: draw(st.integers(1, 4)) for label in "abcde"}
    terms = draw(st.lists(st.text("abcde", max_size=4), min_size=1, max_size=3))
    known = sorted(set("".join(terms)))
    output = draw(st.permutations(known))[: draw(st.integers(0, len(known)))]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([sizes[label] for label in term]) for term in terms]
    arrow = f"->{''.join(output)}" if draw(st.booleans()) else ""
    return ",".join(terms) + arrow, arrays


@pytest.mark.slow
@SETTINGS
@given(equations())
def test_einsum(case: Any) -> None:
    equation, arrays = case
    got = pf.einsum(equation, *[pf.tensor(a) for a in arrays]).numpy()
    np.testing.assert_allclose(got, np.einsum(equation, *arrays), rtol=1e-10, atol=1e-12, err_msg=equation)


BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ShapeError, r"\(2, 3\) @ \(4, 5\)", lambda: pf.ones(2, 3) @ pf.ones(4, 5)),
    (ShapeError, "at least one axis", lambda: pf.matmul(pf.ones(()), pf.ones(3))),
    (ShapeError, "broadcast", lambda: pf.ones(2, 3, 4) @ pf.ones(3, 4, 5)),
    (DTypeError, "numbers to add up", lambda: pf.ones(2, 2).to(pf.bool_) @ pf.ones(2, 2).to(pf.bool_)),
    (DTypeError, "a tensor as y", lambda: pf.matmul(pf.ones(2, 2), 3)),
    (ShapeError, "3 axes", lambda: pf.bmm(pf.ones(2, 2), pf.ones(2, 2))),
    (ShapeError, "as many matrices", lambda: pf.bmm(pf.ones(1, 2, 2), pf.ones(3, 2, 2))),
    (ShapeError, r"weight \(out, in\)", lambda: pf.linear(pf.ones(2, 3), pf.ones(4, 5))),
    (ShapeError, r"bias of shape \(4,\)", lambda: pf.linear(pf.ones(2, 3), pf.ones(4, 3), pf.ones(3))),
    (ShapeError, "1 axes", lambda: pf.outer(pf.ones(2, 2), pf.ones(2))),
    (ShapeError, "equal size", lambda: pf.tensordot(pf.ones(2, 3), pf.ones(2, 3), 1)),
    (ArgumentError, "2 operands", lambda: pf.einsum("ij,jk->ik", pf.ones(2, 2))),
    (ArgumentError, "each index of the result once", lambda: pf.einsum("ij->k", pf.ones(2, 2))),
    (ArgumentError, "expected letters", lambda: pf.einsum("i1->i", pf.ones(2, 2))),
    (ShapeError, "one size for index 'j'", lambda: pf.einsum("ij,jk", pf.ones(2, 3), pf.ones(4, 5))),
    (ShapeError, "3 axes", lambda: pf.einsum("ijk", pf.ones(2, 2))),
    (DTypeError, "an equation", lambda: pf.einsum(pf.ones(2, 2), "ij")),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD)
def test_errors_name_what_is_wrong(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=words):
        call()


def test_matmul_of_many_batch_axes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1, 2, 1, 2, 1, 2, 3, 4)), rng.standard_normal((1, 2, 1, 2, 1, 2, 1, 4, 5))
    a, b = pf.tensor(x, requires_grad=True), pf.tensor(y, requires_grad=True)
    out = a @ b
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-12)
    out.sum().backward()
    np.testing.assert_allclose(a.grad.numpy().sum(), (np.ones_like(x @ y) @ y.swapaxes(-1, -2)).sum(), rtol=1e-10)
