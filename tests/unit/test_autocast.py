"""pf.autocast: casts by each op's class."""

import numpy as np
import pytest
import torch

import pyflame as pf


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_follow_the_class(dtype):
    low = getattr(pf, dtype)
    x, w = pf.randn(4, 8), pf.randn(8, 8)
    with pf.autocast(low):
        h = pf.linear(x, w)
        assert h.dtype is low  # "low"
        assert pf.linear(x, w, pf.randn(8)).dtype is low
        assert pf.conv2d(pf.randn(1, 2, 4, 4), pf.randn(2, 2, 3, 3)).dtype is low
        assert pf.softmax(h, -1).dtype is pf.float32  # "high"
        assert pf.layer_norm(h, (8,)).dtype is pf.float32
        assert h.mean().dtype is pf.float32
        assert pf.mse_loss(h, h).dtype is pf.float32
        assert pf.relu(h).dtype is low  # follows its input
        assert (x.double() @ w.double()).dtype is pf.float64  # never narrowed
        with pf.autocast(enabled=False):
            assert pf.linear(x, w).dtype is pf.float32
    assert pf.linear(x, w).dtype is pf.float32


def test_as_decorator_and_with_a_device_first():
    @pf.autocast("cpu", dtype=pf.float16)
    def f(x):
        return x @ x

    assert f(pf.ones(2, 2)).dtype is pf.float16


def test_other_dtypes_are_refused():
    with pytest.raises(pf.DTypeError, match=r"\[autocast\] expected bfloat16 or float16 but got int32"):
        pf.autocast(pf.int32)


@pytest.mark.slow
def test_gradients_match_torch():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in ((16, 32), (64, 32), (8, 64))]
    target = rng.integers(0, 8, 16)

    def loss(lib, functional, x, w, v, t):
        h = functional.gelu(functional.linear(x, w))
        return functional.cross_entropy(functional.linear(h, v), t)

    ours = [pf.tensor(a, requires_grad=True) for a in arrays]
    with pf.autocast(pf.bfloat16):
        value = loss(pf, pf, *ours, pf.tensor(target))
    value.backward()
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    with torch.autocast("cpu", torch.bfloat16):
        expected = loss(torch, torch.nn.functional, *theirs, torch.tensor(target))
    expected.backward()
    assert value.dtype is pf.float32
    np.testing.assert_allclose(value.item(), expected.item(), rtol=2e-2)
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad.dtype is pf.float32
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=0.05, atol=0.02 * b.grad.abs().max().item())


def test_evaluating_inside_decomposes_in_the_planned_dtypes():
    q = pf.randn(1, 2, 5, 8)
    plain = pf.scaled_dot_product_attention(q, q, q).numpy()
    with pf.autocast(pf.bfloat16):
        cast = pf.scaled_dot_product_attention(q, q, q)
        late = pf.softmax(q, -1).numpy()
    assert cast.dtype is pf.bfloat16
    np.testing.assert_allclose(cast.float().numpy(), plain, atol=0.03)
    np.testing.assert_allclose(late.sum(-1), 1, rtol=1e-5)


def test_jit_traces_each_mode():
    f = pf.jit(lambda x: x @ x)
    x = pf.ones(3, 3)
    assert f(x).dtype is pf.float32
    with pf.autocast():
        assert f(x).dtype is pf.bfloat16
    assert f(x).dtype is pf.float32
    assert f.traces == 2


def test_writes_take_the_widest_dtype() -> None:
    """What a product gives is 16-bit, what it is written into need not be."""
    x, index = pf.ones(2, 3), pf.zeros(1, 3, dtype=pf.int64)
    with pf.autocast():
        low = pf.ones(1, 2) @ pf.ones(2, 3)
        written = [
            pf.scatter(x, 0, index, low),
            pf.scatter_add(x, 0, index, low),
            pf.scatter_reduce(x, 0, index, low, "amax"),
            pf.index_add(x, 0, pf.tensor([1]), low),
            pf.index_copy(x, 0, pf.tensor([1]), low),
            pf.masked_scatter(x, x > 2.0, low),
        ]
        assert pf.scatter_add(low, 0, index, x).dtype is pf.float32
    assert low.dtype is pf.bfloat16
    assert all(w.dtype is pf.float32 for w in written)
