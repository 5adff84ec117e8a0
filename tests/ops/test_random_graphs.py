"""Random graphs: what the compiler fuses must equal what NumPy computes op by op."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyflame as pf
from pyflame.engine import reference
from pyflame.ir.graph import topological

SHAPES = [
    (),
    (1,),
    (5,),
    (12,),
    (3, 4),
    (1, 4),
    (3, 1),
    (2, 3, 4),
    (4, 3, 2),
    (7, 1, 5),
    (2, 6),
    (6, 2),
    (4, 6),
    (3, 8),
]
UNARY = ["tanh", "relu", "neg", "square", "sigmoid", "abs"]
BINARY = ["add", "sub", "mul", "maximum"]


def _views(data: st.DataObject, x: pf.Tensor) -> pf.Tensor:
    """One movement op with random arguments."""
    kind = data.draw(st.sampled_from(["reshape", "permute", "slice", "expand"]))
    if kind == "reshape":
        fitting = [s for s in SHAPES if prod(s) == x.numel()] or [x.shape]
        return x.reshape(data.draw(st.sampled_from(fitting)))
    if kind == "permute":
        return x.permute(tuple(data.draw(st.permutations(range(x.ndim)))))
    if kind == "expand":
        return x.reshape(1, *x.shape).expand(2, *x.shape) if x.ndim < 4 else x
    if x.ndim == 0:
        return x
    axis = data.draw(st.integers(0, x.ndim - 1))
    start = data.draw(st.integers(0, x.shape[axis] - 1))
    step = data.draw(st.sampled_from([1, 2, -1]))
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, None, step)
    return x[tuple(index)]


def _step(data: st.DataObject, pool: list[pf.Tensor]) -> pf.Tensor:
    x = data.draw(st.sampled_from(pool))
    kind = data.draw(
        st.sampled_from(
            [
                "unary",
                "unary",
                "binary",
                "binary",
                "view",
                "view",
                "reduce",
                "matmul",
                "softmax",
                "cast",
                "take",
                "cat",
                "assign",
            ]
        )
    )
    if kind == "unary":
        return getattr(pf, data.draw(st.sampled_from(UNARY)))(x)
    if kind == "binary":
        others = [y for y in pool if _broadcasts(x.shape, y.shape)]
        return getattr(pf, data.draw(st.sampled_from(BINARY)))(x, data.draw(st.sampled_from(others)))
    if kind == "view":
        return _views(data, x)
    if kind == "cast":
        return x.to(pf.float32).to(pf.float64)
    if x.ndim == 0:
        return x * 2.0
    axis = data.draw(st.integers(0, x.ndim - 1))
    if kind == "reduce":
        fn = data.draw(st.sampled_from([pf.sum, pf.max, pf.mean]))
        return fn(x, axis, data.draw(st.booleans()))
    if kind == "softmax":
        return pf.softmax(x, axis=axis)
    if kind == "take":
        index = data.draw(st.lists(st.integers(-x.shape[axis], x.shape[axis] - 1), min_size=1, max_size=4))
        return pf.index_select(x, axis, pf.tensor(np.array(index)) % x.shape[axis])
    if kind == "cat":
        return pf.cat([x, x * 0.5], axis)
    if kind == "assign":
        y = x.clone()
        y[data.draw(st.integers(0, x.shape[0] - 1))] = 0.25
        return y
    if x.ndim < 2:
        return x * 0.5
    return x @ x.permute(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) * 0.1


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(a, b)) < 5000
    except ValueError:
        return False


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_fused_equals_unfused(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    pool = [pf.tensor(rng.standard_normal(data.draw(st.sampled_from(SHAPES)))) for _ in range(3)]
    for _ in range(data.draw(st.integers(2, 14))):
        y = _step(data, pool)
        if y.numel() < 5000:
            pool.append(y)
    outputs = [t for t in pool[-3:] if t._node.op.kind != "leaf"]
    if not outputs:
        return
    nodes = [t._node for t in outputs]
    wanted = reference.compute(topological(nodes))
    expected = [np.array(wanted[n]) for n in nodes]
    del pool, wanted
    pf.eval(*outputs)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-7)
