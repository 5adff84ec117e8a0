"""Backward, gradients of functions, recording modes, hooks, and what happens to the tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.ir import F
from tests.needs import needs_torch, torch
from tests.plans import plan_of


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


# --- gradients that fill parts of one tensor --------------------------------------------------------------------------


def cut_up(x):
    """Every way of reading parts: disjoint and complete, interleaved, one by one, overlapping, incomplete."""
    q, k, v = x.reshape(4, 3, 2, 5).permute(1, 0, 2, 3).unbind(0)
    steps = sum((x[:, i] * (i + 1)).tanh().sum() for i in range(6))
    return ((q * k).exp() + v.sin()).sum() + (x[:, ::2] * x[:, 1::2]).sum() + steps + (x[:, 1:3] * x[:, 2:4]).sum()


@needs_torch
def test_parts_add_up_like_torch():
    a = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    x, t = pf.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    cut_up(x).backward()
    cut_up(t).backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@needs_torch
def test_parts_add_up_in_second_derivatives():
    a = np.random.default_rng(0).standard_normal((4, 6, 5)) * 0.3
    x, t = pf.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    (g,) = pf.autograd.grad(cut_up(x), x, create_graph=True)
    (h,) = torch.autograd.grad(cut_up(t), t, create_graph=True)
    (g * g).sum().backward()
    (h * h).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-6)


def test_pieces_of_a_whole_are_written_once():
    x = pf.ones(3, 100, requires_grad=True)
    a, b, c = x.unbind(0)
    (a * b.exp() * c.sin()).sum().backward()
    launches = plan_of(x.grad).launches  # one per piece: no zeros below, no sums above
    assert len(launches) == 3 and all(launch.output == (3, 100) for launch in launches)


@needs_torch
@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_second_derivatives_of_products_with_zeros(name):
    values = np.array([[1.5, 0.0, 2.0], [2.0, 3.0, 4.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    weights = np.arange(1.0, 13.0).reshape(4, 3)

    def second(lib):
        x, w = lib.tensor(values), lib.tensor(weights)
        x.requires_grad_()
        out = getattr(lib, name)(x, 1)
        (g,) = lib.autograd.grad((out * w[:, : out.ndim * 2 - 1].reshape(out.shape)).sum(), x, create_graph=True)
        return lib.autograd.grad((g * w).sum(), x)[0].numpy()

    np.testing.assert_allclose(second(pf), second(torch), rtol=1e-12)


@needs_torch
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_second_derivatives_of_sums_of_equal_numbers(name):
    def second(lib):
        x, y = (lib.tensor(v) for v in ([1.0, -2.0, 3.0], [1.0, 5.0, 3.0]))
        x.requires_grad_()
        (g,) = lib.autograd.grad(getattr(lib, name)(y, x).sum(), x, create_graph=True)
        return lib.autograd.grad(g.sum(), x)[0].numpy()

    np.testing.assert_allclose(second(pf), second(torch), rtol=1e-5)


@needs_torch
@pytest.mark.parametrize(
    ("fn", "values"),
    [
        (lambda m, x: m.norm(x, p=2, dim=1), [[0.0, 0.0], [3.0, 4.0]]),
        (lambda m, x: m.norm(x, p=2, dim=1), [[], []]),
        (lambda m, x: m.atan2(x[0], x[1]), [[0.0, 1.0], [0.0, 2.0]]),
    ],
)
def test_second_derivatives_beside_a_norm_of_zero(fn, values):
    """What scales a gradient that is 0 by convention has a derivative: a gradient penalty of one such row is no NaN."""

    def second(lib):
        x, s = lib.tensor(values, dtype=lib.float64), lib.tensor(2.0, dtype=lib.float64)
        x.requires_grad_(), s.requires_grad_()
        (g,) = lib.autograd.grad((fn(lib, x) * s).sum(), x, create_graph=True)
        return lib.autograd.grad((g * (lib.arange(g.numel()).reshape(g.shape) + 1.0)).sum(), s)[0].item()

    assert second(pf) == pytest.approx(second(torch), rel=1e-12)


# --- ops that stay one node -------------------------------------------------------------------------------------------


def test_a_call_of_a_layer_is_one_node_also_when_it_is_recorded() -> None:
    x, w, b = pf.ones(3, requires_grad=True), pf.ones(2, 3, requires_grad=True), pf.ones(2)
    node = pf.linear(x, w, b)._node
    assert (node.op.name, node.srcs) == ("linear", (x._node, w._node, b._node))
    assert (x * 1).argmax()._node.op.name == "first_extreme"


def test_no_gradient_is_built_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    w = pf.ones(2, 3, requires_grad=True)
    out = pf.linear(pf.ones(4, 3), w).sum()

    def product(*args: Any) -> Any:
        raise AssertionError("the gradient of x")

    monkeypatch.setattr(F, "matmul", product, raising=False)
    out.backward()
    monkeypatch.undo()
    assert w.grad.tolist() == [[4.0] * 3] * 2


@needs_torch
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_second_derivatives_of_a_layer(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (shape, (5, 4), (5,))]

    def penalty(t: Any) -> list[Any]:
        x, w, b = leaves = [t.tensor(a, requires_grad=True) for a in arrays]
        soft = t.softmax(t.relu(t.nn.functional.linear(x, w, b)), -1)
        first = t.autograd.grad((soft**3).sum(), leaves, create_graph=True)
        sum((g * g).sum() for g in first).backward()
        return [*(g.detach().numpy() for g in first), *(leaf.grad.numpy() for leaf in leaves)]

    for ours, theirs in zip(penalty(pf), penalty(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_operators_record_what_stands_between() -> None:
    """An op that is one Node is recorded without a recorder, but not where an operand is cast first."""
    a = pf.tensor([1.0, 2.0], requires_grad=True)
    b = pf.tensor([3.0, 4.0], dtype=pf.float64, requires_grad=True)
    whole = pf.tensor([2, 3])
    for product in (lambda: a * b, lambda: b * a):
        a.grad = b.grad = None
        product().sum().backward()
        assert a.grad is not None and b.grad is not None
        assert (a.grad.dtype, b.grad.dtype) == (pf.float32, pf.float64)
        assert (a.grad.tolist(), b.grad.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    for fn, want in (
        (lambda: a * a, [2.0, 4.0]), (lambda: whole * a, [2.0, 3.0]), (lambda: a - 1, [1.0, 1.0]),
        (lambda: 1 - a, [-1.0, -1.0]), (lambda: a.detach() * a, [1.0, 2.0]), (lambda: pf.relu(a), [1.0, 1.0]),
        (lambda: pf.cat([a, a.detach()]), [1.0, 1.0]), (lambda: pf.where(whole > 2, a, 0.0), [0.0, 1.0]),
    ):  # fmt: skip
        a.grad = None
        fn().sum().backward()
        assert a.grad is not None and a.grad.tolist() == want
    assert not (a > 1).requires_grad and not a.to(pf.int64).requires_grad
    with pf.no_grad():
        assert not (a * 2).requires_grad and not pf.relu(a).requires_grad
