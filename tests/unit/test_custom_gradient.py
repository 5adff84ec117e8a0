"""Functions with a gradient of their own."""

import gc
import weakref

import numpy as np
import pytest

import pyflame as pf


class Scale(pf.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x * y * factor, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y * ctx.factor + h, g * x * ctx.factor + h, None


def leaves():
    return (pf.tensor(v, requires_grad=True) for v in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]))


@pytest.mark.parametrize("used", [(1, 1), (1, 0), (0, 1)])
def test_results_share_one_backward(used):
    x, y = leaves()
    a, b = Scale.apply(x, y, 2.0)
    (a * used[0] + b * (3 * used[1])).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * used[0] * y.numpy() + 3 * used[1])
    np.testing.assert_allclose(y.grad.numpy(), 2 * used[0] * x.numpy() + 3 * used[1])


def test_second_derivative_through_saved_inputs():
    x, y = leaves()
    a, _ = Scale.apply(x, y, 2.0)
    (gx,) = pf.autograd.grad(a.sum(), x, create_graph=True)
    (gx * gx).sum().backward()  # (2y)^2 -> 8y
    np.testing.assert_allclose(y.grad.numpy(), 8 * y.numpy())


def test_custom_gradient_replaces_the_rule():
    @pf.custom_gradient
    def clipped(x):
        return x * 1, lambda g: g.clamp(-1, 1)

    x = pf.tensor([2.0, 3.0], requires_grad=True)
    (clipped(x) * pf.tensor([5.0, -0.5])).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1.0, -0.5])


def test_inside_jit():
    x, y = leaves()

    @pf.jit
    def gradient():
        a, b = Scale.apply(x, y, 2.0)
        return pf.autograd.grad((a + b).sum(), x)[0]

    for _ in range(2):
        np.testing.assert_allclose(gradient().numpy(), 2 * y.numpy() + 1)


def test_not_recorded_without_gradients():
    x, y = leaves()
    with pf.no_grad():
        assert not Scale.apply(x, y, 2.0)[0].requires_grad
    assert not Scale.apply(x.detach(), y.detach(), 2.0)[0].requires_grad


def test_errors_name_the_function():
    @pf.custom_gradient
    def wrong_count(x, y):
        return x + y, lambda g: g

    @pf.custom_gradient
    def wrong_shape(x):
        return x * 1, lambda g: g.sum()

    @pf.custom_gradient
    def no_backward(x):
        return x

    x, y = leaves()
    with pytest.raises(pf.GradientError, match=r"\[wrong_count\] expected one gradient per argument \(2\)"):
        wrong_count(x, y).sum().backward()
    with pytest.raises(pf.ShapeError, match=r"\[wrong_shape\] expected gradient 0 of shape \(3,\)"):
        wrong_shape(x).sum().backward()
    with pytest.raises(pf.GradientError, match=r"\[custom_gradient\] expected no_backward to return"):
        no_backward(x)


class Exp(pf.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp(), x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g * y + h * 2


def test_derivatives_of_any_order_through_saved_results():
    x = pf.tensor([0.5, -1.0], requires_grad=True)
    y, z = Exp.apply(x)
    got = y * y + z
    for factor in (2, 4, 8):
        (got,) = pf.autograd.grad(got.sum(), x, create_graph=True)
        np.testing.assert_allclose(
            got.detach().numpy(), factor * np.exp(2 * x.detach().numpy()) + 2 * (factor == 2), rtol=1e-6
        )


def test_what_is_saved_of_results_is_let_go_of():
    x = pf.ones(3, requires_grad=True)
    y = Exp.apply(x)[0]
    (first,) = pf.autograd.grad(y.sum(), x, create_graph=True)
    tape = weakref.ref(y._tape.parents[0])
    enabled = gc.isenabled()
    gc.disable()
    try:
        del y, first
        assert tape() is None
    finally:
        if enabled:
            gc.enable()


class Doubled(pf.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_arguments_that_are_changed_in_place():
    leaf = pf.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = leaf * 5
    part = x[1:]
    y = Doubled.apply(part)
    assert y is part
    (x * pf.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.tolist() == [5, 20, 30] and leaf.grad.tolist() == [5, 100, 1000]
    with pytest.raises(RuntimeError, match="leaf"):
        Doubled.apply(leaf)
    plain = pf.ones(2)
    assert Doubled.apply(plain) is plain and plain.tolist() == [2, 2]
