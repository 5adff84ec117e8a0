"""pf.checkpoint: the same gradients from less memory."""

import numpy as np
import pytest

import pyflame as pf
from pyflame.transform.jit import jit


def layers(count=4, width=64):
    pf.manual_seed(0)
    return [(pf.randn(width, width) * 0.1).requires_grad_() for _ in range(count)]


def block(x, w):
    return x + pf.dropout(pf.gelu(pf.layer_norm(x, (x.shape[-1],)) @ w), 0.1) @ w.T


def gradients(weights, x, run, **kept):
    pf.manual_seed(7)
    y = x
    for w in weights:
        y = run(lambda y, w=w: block(y, w), y)
    (y * y).mean().backward()
    out = [t.grad.numpy().copy() for t in [x, *weights]]
    for t in [x, *weights]:
        t.grad = None
    return out


@pytest.mark.slow
def test_gradients_and_masks_are_the_same():
    weights = layers()
    x = pf.randn(32, 64, requires_grad=True)
    plain = gradients(weights, x, lambda f, y: f(y))
    again = gradients(weights, x, pf.checkpoint)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_nested():
    weights = layers(2)
    x = pf.randn(8, 64, requires_grad=True)
    plain = gradients(weights, x, lambda f, y: f(y))
    nested = gradients(weights, x, lambda f, y: pf.checkpoint(lambda y: pf.checkpoint(f, y), y))
    for a, b in zip(plain, nested, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_second_derivatives():
    x, w = pf.randn(4, 5, requires_grad=True), pf.randn(5, 5, requires_grad=True)

    def penalty(run):
        (g,) = pf.autograd.grad(run(lambda x: pf.tanh(x @ w).exp(), x).sum(), x, create_graph=True)
        (g * g).sum().backward()
        out = [x.grad.numpy().copy(), w.grad.numpy().copy()]
        x.grad = w.grad = None
        return out

    for a, b in zip(penalty(lambda f, x: f(x)), penalty(pf.checkpoint), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.slow
def test_arena_shrinks():
    weights = layers(8)
    x = pf.randn(256, 64)
    pf.eval(x, weights)

    def arena(run):
        def step(x):
            y = x
            for w in weights:
                y = run(lambda y, w=w: block(y, w), y)
            return pf.autograd.grad((y * y).mean(), weights)

        traced, _ = jit(step).find((x,), {})
        return traced.plan.arena_bytes

    plain, less = arena(lambda f, y: f(y)), arena(pf.checkpoint)
    assert less < 0.6 * plain


def test_assignments_happen_once():
    seen = pf.zeros(())
    w = pf.randn(3, 3, requires_grad=True)

    def counting(x):
        with pf.no_grad():
            seen.add_(1)
        return pf.exp(x @ w)

    pf.checkpoint(counting, pf.ones(2, 3)).sum().backward()
    assert seen.item() == 1
    assert w.grad is not None


def test_several_arguments_and_results():
    a, b = pf.randn(3, requires_grad=True), pf.randn(3, requires_grad=True)

    def pair(a, *, other):
        return {"product": a * other, "fixed": pf.arange(3)}

    out = pf.checkpoint(pair, a, other=b)
    assert not out["fixed"].requires_grad
    out["product"].sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), b.numpy())


def test_second_derivatives_reach_gradients_that_are_added_up():
    x = pf.tensor(np.array([0.5, -1.5, 2.0]), requires_grad=True)

    def second(run):
        y = pf.sin(x) * 2.0
        z = run(lambda v: pf.exp(v).sum() * v, y)  # y has two readers, and the function reads it twice
        (g,) = pf.autograd.grad((y * z).sum(), x, create_graph=True)
        return pf.autograd.grad((g * g).sum(), x)[0].numpy()

    np.testing.assert_allclose(second(pf.checkpoint), second(lambda f, v: f(v)), rtol=1e-12)
