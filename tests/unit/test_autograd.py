"""Backward, gradients of functions, recording modes, hooks, and what happens to the tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch


def leaf(*values: Any, dtype: Any = None) -> pf.Tensor:
    return pf.tensor(list(values), requires_grad=True, dtype=dtype)


# --- backward ---------------------------------------------------------------------------------------------------------


def test_gradients_accumulate() -> None:
    x = leaf(1.0, 2.0)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6, 12]
    x.grad = None
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert not x.grad.requires_grad


def test_a_value_used_many_times() -> None:
    x = leaf(2.0)
    y = x * x
    (y * y + y).backward()
    assert x.grad.tolist() == [4 * 8 + 2 * 2]


def test_backward_with_a_gradient() -> None:
    x = leaf(1.0, 2.0)
    (x * x).backward(pf.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]
    with pytest.raises(pf.GradientError, match="one element"):
        (x * x).backward()
    with pytest.raises(pf.ShapeError, match="gradient of shape"):
        (x * x).backward(pf.ones(3))
    with pytest.raises(pf.ArgumentError, match="tensor as gradient"):
        (x * x).backward(2.0)  # type: ignore[arg-type]


def test_nothing_to_differentiate() -> None:
    with pytest.raises(pf.GradientError, match="requires_grad_"):
        pf.ones(1).backward()
    x = leaf(1.0)
    with pytest.raises(pf.GradientError, match="requires_grad_"):
        (x > 0).backward()
    x.backward()
    assert x.grad.tolist() == [1]


def test_the_tape_is_freed() -> None:
    x = leaf(3.0)
    y = x * x
    y.backward()
    with pytest.raises(pf.GradientError, match="retain_graph=True"):
        y.backward()
    z = x * x
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.tolist() == [18]


def test_broadcasting_is_undone() -> None:
    x, y, s = pf.ones(3, 1, requires_grad=True), pf.ones(4, requires_grad=True), pf.tensor(2.0, requires_grad=True)
    (x * y * s).sum().backward()
    assert x.grad.tolist() == [[8]] * 3
    assert y.grad.tolist() == [6] * 4
    assert s.grad.item() == 12
    assert s.grad.shape == ()


def test_gradient_through_casts_and_views() -> None:
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x.reshape(2, 2).T[1:].to(pf.float64) * pf.tensor([10.0, 20.0], dtype=pf.float64)
    y.sum().backward()
    assert x.grad.tolist() == [0, 10, 0, 20]
    assert x.grad.dtype is pf.float32
    h = pf.tensor([1.0, 2.0], dtype=pf.bfloat16, requires_grad=True)
    (h.float() * 3.0).sum().backward()
    assert h.grad.dtype is pf.bfloat16


@needs_torch
def test_against_torch() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))

    def f(lib: Any, x: Any, w: Any) -> Any:
        return (lib.tanh(x @ w) * lib.exp(-(x @ w))).sum()

    x, w = pf.tensor(a, requires_grad=True), pf.tensor(b, requires_grad=True)
    f(pf, x, w).backward()
    tx, tw = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    f(torch, tx, tw).backward()
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(w.grad.numpy(), tw.grad.numpy(), rtol=1e-12)


# --- detach and shared values -----------------------------------------------------------------------------------------


def test_detach_stops_the_gradient_though_the_value_is_shared() -> None:
    x = leaf(3.0)
    (x * x.detach()).backward()
    assert x.grad.tolist() == [3]
    d = x.detach()
    assert not d.requires_grad
    assert np.shares_memory(d.numpy(), x.numpy())
    d.requires_grad_()
    x.grad = None
    (x * x * d).backward()
    assert (x.grad.tolist(), d.grad.tolist()) == ([18], [9])


def test_ops_that_change_nothing_do_not_leak_the_tape() -> None:
    x = leaf(3.0)
    with pf.no_grad():
        same = x.reshape(1)
        (piece,) = x.split(1)
    assert not same.requires_grad
    (x * same * piece).backward()
    assert x.grad.tolist() == [9]
    y = pf.tensor([3.0])
    twin = y.reshape(1)
    y.requires_grad_()
    (y * twin).backward()
    assert y.grad.tolist() == [3]


def test_detach_in_place() -> None:
    y = leaf(1.0) * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad


# --- in place ---------------------------------------------------------------------------------------------------------


def test_a_leaf_is_not_changed_while_it_is_recorded() -> None:
    x = leaf(1.0, 2.0)
    for change in (lambda: x.add_(1), lambda: x.__setitem__(0, 5.0), lambda: x.zero_(), lambda: x.__imul__(2)):
        with pytest.raises(pf.GradientError, match="no_grad"):
            change()
    with pf.no_grad():
        x -= 0.5
        x.mul_(2)
    assert x.tolist() == [1, 3]
    assert x.is_leaf
    assert x.requires_grad
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 6]


def test_in_place_on_a_result_is_recorded() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    before = y * 1
    y *= x
    y += 1
    y[0] = 0.0
    y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [0, 8]  # y = 2 x^2 + 1, its first element overwritten
    x.grad = None
    before.sum().backward()  # keeps the old value and its tape
    assert x.grad.tolist() == [2, 2]


def test_in_place_with_a_recorded_value() -> None:
    w = leaf(2.0)
    buffer = pf.zeros(3)
    buffer += w
    buffer[1] = w * w
    buffer.sum().backward()
    assert w.grad.tolist() == [2 + 4]


def test_in_place_without_recording_keeps_the_tape() -> None:
    x = leaf(3.0)
    y = x * 2
    with pf.no_grad():
        y += 100
    assert y.requires_grad
    y.backward()
    assert x.grad.tolist() == [2]


def test_data() -> None:
    x = leaf(1.0)
    x.data = pf.tensor([5.0])
    assert x.tolist() == [5]
    assert x.requires_grad
    assert not x.data.requires_grad
    with pytest.raises(pf.GradientError, match="floating-point"):
        x.data = pf.tensor([5])


# --- modes ------------------------------------------------------------------------------------------------------------


def test_recording_modes() -> None:
    x = leaf(1.0)
    with pf.no_grad():
        assert not (x * 2).requires_grad
        with pf.enable_grad():
            assert (x * 2).requires_grad
        assert not pf.is_grad_enabled()
    assert pf.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), pf.no_grad():
        raise ZeroDivisionError
    assert pf.is_grad_enabled()


def test_recording_modes_as_decorators() -> None:
    @pf.no_grad()
    def a(x: pf.Tensor) -> pf.Tensor:
        return x * 2

    @pf.no_grad
    def b(x: pf.Tensor) -> pf.Tensor:
        return a(x)

    @pf.set_grad_enabled(False)
    def c(x: pf.Tensor) -> pf.Tensor:
        return x * 2

    @pf.enable_grad()
    def d(x: pf.Tensor) -> pf.Tensor:
        return x * 2

    x = leaf(1.0)
    assert [f(x).requires_grad for f in (a, b, c, d)] == [False, False, False, True]
    assert b.__name__ == "b"
    assert pf.is_grad_enabled()
    with pytest.raises(pf.ArgumentError, match="pauses"):

        @pf.no_grad()
        async def coroutine() -> Any:
            return 1


def test_set_grad_enabled() -> None:
    pf.set_grad_enabled(False)
    assert not pf.is_grad_enabled()
    pf.set_grad_enabled(True)
    with pf.set_grad_enabled(False):
        assert not pf.is_grad_enabled()
    assert pf.is_grad_enabled()


def test_requires_grad_setter() -> None:
    x = pf.ones(2)
    x.requires_grad = True
    assert x.requires_grad_(False).requires_grad is False
    with pytest.raises(pf.GradientError, match="detach"):
        (leaf(1.0) * 2).requires_grad_(False)
    with pytest.raises(pf.GradientError, match="floating-point"):
        pf.arange(3).requires_grad_()


def test_eager_mode_gives_the_same() -> None:
    def f(x: pf.Tensor) -> pf.Tensor:
        return (pf.tanh(x) * x).sum()

    x, y = leaf(0.5, 1.5), leaf(0.5, 1.5)
    f(x).backward()
    with pf.eager():
        f(y).backward()
        assert (y * 2)._node.op.name == "leaf"
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6)


# --- pf.autograd.grad -------------------------------------------------------------------------------------------------


def test_grad_of_tensors() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    z = x * y
    gx, gy = pf.grad((z * z).sum(), [x, y], retain_graph=True)
    assert gx.tolist() == [18, 64]
    assert gy.tolist() == [6, 32]
    assert x.grad is None
    (gz,) = pf.autograd.grad((z * z).sum(), z)  # not a leaf
    assert gz.tolist() == [6, 16]


def test_grad_of_several_outputs() -> None:
    x = leaf(1.0, 2.0)
    (g,) = pf.grad([x * 2, (x * x).sum()], x, [pf.tensor([1.0, 10.0]), None])
    assert g.tolist() == [4, 24]
    with pytest.raises(pf.ArgumentError, match="one gradient per output"):
        pf.grad([x * 2], x, [None, None])


def test_grad_of_unused_inputs() -> None:
    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(pf.GradientError, match="allow_unused"):
        pf.grad(x * 2, [x, y])
    assert pf.grad(x * 2, [x, y], allow_unused=True)[1] is None
    with pytest.raises(pf.GradientError, match="number 0"):
        pf.grad(x * 2, pf.ones(1))


def test_second_and_third_derivatives() -> None:
    x = leaf(2.0)
    y = x * x * x * x
    (first,) = pf.grad(y, x, create_graph=True)
    (second,) = pf.grad(first, x, create_graph=True)
    (third,) = pf.grad(second, x)
    assert [first.item(), second.item(), third.item()] == [32, 48, 48]


@needs_torch
def test_backward_of_a_gradient_penalty() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, -1.0)
    (g,) = pf.grad((pf.exp(x * w)).sum(), x, create_graph=True)
    (g * g).sum().backward()
    tx, tw = (torch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, -1.0]))
    (tg,) = torch.autograd.grad(torch.exp(tx * tw).sum(), tx, create_graph=True)
    (tg * tg).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), tw.grad.numpy(), rtol=1e-5)


def test_gradient_of_the_incoming_gradient() -> None:
    """The double-backward trick: the product J v is linear in v, so its gradient for v is J^T."""
    x, v = leaf(1.0, 2.0), leaf(1.0, 1.0)
    (g,) = pf.grad(x * x, x, v, create_graph=True)
    (back,) = pf.grad(g, v, pf.tensor([1.0, 1.0]))
    assert back.tolist() == [2, 4]


def test_backward_with_create_graph() -> None:
    x = leaf(2.0)
    (x * x * x).backward(create_graph=True)
    assert x.grad.item() == 12
    g = x.grad
    x.grad = None
    g.backward()
    assert x.grad.item() == 12  # 6 x


def test_backward_of_many() -> None:
    x = leaf(1.0, 2.0)
    pf.autograd.backward([(x * x).sum(), x], [None, pf.ones(2)])
    assert x.grad.tolist() == [3, 5]


# --- gradients of functions -------------------------------------------------------------------------------------------


def test_grad_of_a_function() -> None:
    f = pf.grad(lambda x, y: (x * y).sum())
    assert f(pf.tensor([1.0, 2.0]), pf.tensor([3.0, 4.0])).tolist() == [3, 4]
    both = pf.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(pf.ones(2), pf.full((2,), 3.0))
    assert [g.tolist() for g in both] == [[3, 3], [1, 1]]
    assert pf.grad(lambda x, y: (x * y).sum(), argnums=-1)(pf.ones(2), pf.ones(2)).tolist() == [1, 1]
    assert pf.grad(lambda x: x * x)(3.0).item() == 6
    assert pf.grad(lambda x: x * x)(3).item() == 6
    x = pf.ones(2)
    value, g = pf.value_and_grad(lambda x: (x * x).sum())(x)
    assert (value.item(), g.tolist()) == (2, [2, 2])
    assert not value.requires_grad
    assert not g.requires_grad
    assert not x.requires_grad


def test_grad_of_trees() -> None:
    params = {"w": pf.tensor([1.0, 2.0]), "layers": [pf.tensor(3.0), (pf.tensor(4.0),)], "unused": pf.ones(2)}

    def loss(p: Any, scale: float) -> pf.Tensor:
        return (p["w"] * p["layers"][0] * p["layers"][1][0]).sum() * scale

    g = pf.grad(loss)(params, 2.0)
    assert g["w"].tolist() == [24, 24]
    assert g["layers"][0].item() == 24
    assert g["layers"][1][0].item() == 18
    assert g["unused"].tolist() == [0, 0]


def test_has_aux() -> None:
    value, g = pf.value_and_grad(lambda x: ((x * x).sum(), "extra"), has_aux=True)(pf.ones(2))
    assert value[1] == "extra"
    assert value[0].item() == 2
    assert g.tolist() == [2, 2]
    g, extra = pf.grad(lambda x: ((x * x).sum(), "extra"), has_aux=True)(pf.ones(2))
    assert extra == "extra"


@needs_torch
def test_nested_grad() -> None:
    cube = lambda x: x * x * x  # noqa: E731
    assert pf.grad(pf.grad(pf.grad(cube)))(2.0).item() == 6
    # the inner function depends on the outer argument only by closure
    outer = pf.grad(lambda w: pf.grad(lambda x: (w * x * x).sum())(pf.tensor([1.0, 2.0])).sum())
    assert outer(pf.tensor(5.0)).item() == 6
    # Hessian-vector product against torch
    v = pf.tensor([1.0, -1.0])
    f = lambda x: pf.exp(x[0] * x[1])  # noqa: E731
    hvp = pf.grad(lambda x: (pf.grad(f)(x) * v).sum())(pf.tensor([0.5, 2.0]))
    want = torch.autograd.functional.hvp(
        lambda x: torch.exp(x[0] * x[1]), torch.tensor([0.5, 2.0]), torch.tensor([1.0, -1.0])
    )[1]
    np.testing.assert_allclose(hvp.numpy(), want.numpy(), rtol=1e-5)


def test_grad_of_a_function_of_recorded_tensors() -> None:
    x = leaf(2.0)
    g = pf.grad(lambda y: (y * y * y).sum())(x)
    assert g.requires_grad
    g.backward()
    assert x.grad.item() == 12
    assert pf.is_grad_enabled()
    with pf.no_grad():
        assert pf.grad(lambda y: y * y)(2.0).item() == 4


def test_bad_functions() -> None:
    with pytest.raises(pf.GradientError, match="one floating-point number"):
        pf.grad(lambda x: x * 2)(pf.ones(2))
    with pytest.raises(pf.GradientError, match="int64"):
        pf.grad(lambda x: x.sum())(pf.arange(3))
    with pytest.raises(pf.ArgumentError, match="argnums"):
        pf.grad(lambda x: x, argnums=2)(pf.ones(1))
    with pytest.raises(pf.ArgumentError, match="function"):
        pf.value_and_grad(3)  # type: ignore[arg-type]


def test_gradients_inside_jit() -> None:
    f = pf.jit(pf.value_and_grad(lambda x: (x * x.detach() * x).sum()))
    for values in ([1.0, 2.0], [3.0, 4.0]):
        value, g = f(pf.tensor(values))
        assert value.item() == sum(v**3 for v in values)
        assert g.tolist() == [2 * v * v for v in values]
    assert f.traces == 1


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_hooks() -> None:
    x = leaf(1.0)
    seen: list[float] = []
    handle = x.register_hook(lambda g: seen.append(g.item()))
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.backward()
    assert seen == [20]
    assert x.grad.tolist() == [20]
    handle.remove()
    (x * 1).backward()
    assert seen == [20]
    z = x * 2
    z.register_hook(lambda g: pf.ones(7))
    with pytest.raises(pf.GradientError, match="shape"):
        z.backward()
    with pytest.raises(pf.GradientError, match="requires grad"):
        pf.ones(1).register_hook(lambda g: None)


def test_retain_grad() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [2, 8]
    assert (x * 2).grad is None
    x.retain_grad()


# --- depth and threads ------------------------------------------------------------------------------------------------


def test_a_deep_tape_needs_no_recursion() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(5000):
        y = y + x
    y.backward()
    assert x.grad.tolist() == [5001]


def test_gradients_from_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(n: int) -> float:
        x = leaf(float(n))
        (x * x + x).backward()
        return float(x.grad.item())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(16))) == [2.0 * n + 1 for n in range(16)]


@pytest.mark.parametrize("lib", [pf, pytest.param(torch, marks=needs_torch)], ids=["pyflame", "torch"])
def test_gradients_accumulate_in_place(lib: Any) -> None:
    """Whoever holds a gradient sees the sum: programs keep them all in one buffer."""
    x = lib.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    held = x.grad
    (x * 3).sum().backward()
    assert held is x.grad and held.tolist() == [5.0] * 3
    flat, layer = lib.zeros(6), lib.nn.Linear(2, 2)
    layer.weight.grad, layer.bias.grad = flat[:4].view(2, 2), flat[4:]
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.1)
    for clear in (optimizer.zero_grad, layer.zero_grad):
        layer(lib.ones(3, 2)).sum().backward()
        assert flat.tolist() == [3.0] * 6
        clear(set_to_none=False)
        assert flat.tolist() == [0.0] * 6
    y = lib.ones(2, requires_grad=True)
    (y**3).sum().backward(create_graph=True)
    before = y.grad
    (y**2).sum().backward(create_graph=True)
    assert before.tolist() == [3.0, 3.0] and y.grad.tolist() == [5.0, 5.0]
