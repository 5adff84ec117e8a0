"""What a backward walk builds: gradients that fill parts of one tensor, and ops that stay one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.ir import F
from tests.needs import needs_torch, torch
from tests.plans import plan_of

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
