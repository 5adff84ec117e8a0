"""torch.autograd's functional, gradcheck and Function against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pyflame.autograd.function import once_differentiable
from pyflame.autograd.functional import hessian, jacobian, vjp
from pyflame.autograd.gradcheck import GradcheckError
from pyflame.autograd.variable import Variable

import pyflame as pf

X, Y = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([1.0, 2.0, 3.0])


def args(lib: Any) -> tuple[Any, Any]:
    return lib.tensor(X), lib.tensor(Y)


def two(lib: Any) -> Callable[..., Any]:
    return lambda x, y: (lib.sin(x) * y.sum(), (x * x).sum() + y.prod(), lib.ones(2, dtype=lib.float64))


def number(lib: Any) -> Callable[..., Any]:
    return lambda x, y: lib.sin(x).prod() * (y**3).sum()


def partly(lib: Any) -> Callable[..., Any]:
    return lambda x, y: (x**2).sum()


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "jacobian": lambda lib, f: f.jacobian(two(lib), args(lib)),
    "jacobian of one": lambda lib, f: f.jacobian(lib.sin, lib.tensor(X)),
    "jacobian of a number": lambda lib, f: f.jacobian(lambda x: x**2, lib.tensor(3.0)),
    "jacobian, empty": lambda lib, f: f.jacobian(lambda x: x * 2, lib.zeros(3), vectorize=True),
    "jacobian, vectorized": lambda lib, f: f.jacobian(two(lib), args(lib), vectorize=True),
    "jacobian, forward": lambda lib, f: f.jacobian(two(lib), args(lib), vectorize=True, strategy="forward-mode"),
    "jacobian, unused": lambda lib, f: f.jacobian(partly(lib), args(lib)),
    "hessian": lambda lib, f: f.hessian(number(lib), args(lib)),
    "hessian of one": lambda lib, f: f.hessian(lambda x: (x**3).sum(), lib.tensor(Y)),
    "hessian of (1,)": lambda lib, f: f.hessian(lambda x: (x**3).sum().reshape(1), lib.tensor(Y)),
    "hessian, unused": lambda lib, f: f.hessian(partly(lib), args(lib)),
    "hessian, forward": lambda lib, f: f.hessian(
        number(lib), args(lib), vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "vjp": lambda lib, f: f.vjp(two(lib), args(lib), (lib.tensor(X), lib.tensor(2.0).double(), lib.tensor(Y[:2]))),
    "vjp of a number": lambda lib, f: f.vjp(number(lib), args(lib)),
    "vjp, unused": lambda lib, f: f.vjp(partly(lib), args(lib)),
    "jvp": lambda lib, f: f.jvp(two(lib), args(lib), args(lib)),
    "jvp by a number": lambda lib, f: f.jvp(lambda x: (x**2, x * lib.tensor(Y)), lib.tensor(3.0).double()),
    "vhp": lambda lib, f: f.vhp(number(lib), args(lib), args(lib)),
    "vhp, unused": lambda lib, f: f.vhp(partly(lib), args(lib), args(lib)),
    "hvp": lambda lib, f: f.hvp(number(lib), args(lib), args(lib)),
    "hvp by a number": lambda lib, f: f.hvp(lambda x: x**3, lib.tensor(2.0)),
}


def values(result: Any) -> Any:
    if isinstance(result, (tuple, list)):  # torch's forward mode gives lists
        return tuple(values(r) for r in result)
    assert isinstance(result, torch.Tensor) or not result.requires_grad
    return tuple(result.shape), result.tolist()


def same(got: Any, want: Any) -> None:
    if (isinstance(want[0], tuple) and want[0] and isinstance(want[0][0], tuple)) or isinstance(want[-1], tuple):
        assert isinstance(got, tuple) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    assert got[0] == want[0]
    np.testing.assert_allclose(got[1], want[1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_against_torch(case: str) -> None:
    got, want = (values(CASES[case](lib, lib.autograd.functional)) for lib in (pf, torch))
    same(got, want)


GRAPHS: dict[str, Callable[[Any, Any], Any]] = {
    "jacobian": lambda f, x: f.jacobian(lambda v: (v**3).sum(1), x, create_graph=True).square().sum(),
    "hessian": lambda f, x: f.hessian(lambda v: (v**4).sum(), x, create_graph=True).square().sum(),
    "vjp": lambda f, x: f.vjp(lambda v: v**3, x, x, create_graph=True)[1].square().sum(),
    "jvp": lambda f, x: f.jvp(lambda v: v**3, x, x, create_graph=True)[1].square().sum(),
    "vhp": lambda f, x: f.vhp(lambda v: (v**4).sum(), x, x, create_graph=True)[1].sum(),
    "hvp": lambda f, x: f.hvp(lambda v: (v**4).sum(), x, x, create_graph=True)[1].sum(),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_create_graph(case: str) -> None:
    found = []
    for lib in (pf, torch):
        x = lib.tensor(X, requires_grad=True)
        GRAPHS[case](lib.autograd.functional, x).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


STRICT: dict[str, Callable[[Any, Any], Any]] = {
    "jacobian": lambda lib, f: f.jacobian(partly(lib), args(lib), strict=True),
    "jacobian of a constant": lambda lib, f: f.jacobian(lambda x: lib.ones(2), lib.tensor(Y), strict=True),
    "hessian": lambda lib, f: f.hessian(lambda x: x.sum(), lib.tensor(Y), strict=True),
    "vjp": lambda lib, f: f.vjp(partly(lib), args(lib), strict=True),
    "jvp": lambda lib, f: f.jvp(lambda x: (x, lib.ones(1)), lib.tensor(Y), lib.tensor(Y), strict=True),
    "vhp": lambda lib, f: f.vhp(partly(lib), args(lib), args(lib), strict=True),
    "hvp": lambda lib, f: f.hvp(partly(lib), args(lib), args(lib), strict=True),
    "v is missing": lambda lib, f: f.vjp(lib.sin, lib.tensor(Y)),
    "v does not fit": lambda lib, f: f.jvp(lib.sin, lib.tensor(Y), lib.ones(2)),
    "no tensor": lambda lib, f: f.vjp(lib.sin, 3.0),
    "not one number": lambda lib, f: f.hessian(lib.sin, lib.tensor(Y)),
    "not one number, vhp": lambda lib, f: f.vhp(lib.sin, lib.tensor(Y), lib.tensor(Y)),
}


@pytest.mark.parametrize("case", STRICT)
def test_refusals(case: str) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        STRICT[case](torch, torch.autograd.functional)
    with pytest.raises((pf.GradientError, pf.ShapeError, TypeError), match=r"^\[\w+\] expected"):
        STRICT[case](pf, pf.autograd.functional)


def test_strategies() -> None:
    with pytest.raises(pf.ArgumentError, match="'reverse-mode' or 'forward-mode' but got 'other'"):
        jacobian(pf.sin, pf.tensor(Y), strategy="other")
    with pytest.raises(pf.NotSupportedError, match="strict=False"):
        hessian(lambda x: (x**2).sum(), pf.tensor(Y), strict=True, outer_jacobian_strategy="forward-mode")
    with pf.no_grad():
        assert not vjp(pf.sin, pf.tensor(Y), pf.tensor(Y))[1].requires_grad


# --- gradcheck --------------------------------------------------------------------------------------------------------


def wrong(lib: Any) -> type:
    class Wrong(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0] * 2.5

    return Wrong


def leaf(lib: Any, value: Any) -> Any:
    return lib.tensor(value, requires_grad=True)


CHECKS: dict[str, tuple[bool, Callable[[Any], Any], Any]] = {
    "sine": (True, lambda lib: lib.sin, X),
    "product": (True, lambda lib: lambda x: (x @ x, x.sum()), X),
    "complex": (True, lambda lib: lambda z: z * z.conj() + z**2, X + 0.5j),
    "complex to real": (True, lambda lib: lambda z: z.abs(), X + 0.5j),
    "real to complex": (True, lambda lib: lambda x: lib.polar(x, x * 2), X),
    "a number": (True, lambda lib: lib.exp, np.array(0.5)),
    "wrong": (False, lambda lib: wrong(lib).apply, Y),
    "detached": (False, lambda lib: lambda x: x * x.detach(), Y),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKS)
def test_gradcheck(case: str) -> None:
    right, make, value = CHECKS[case]
    for lib in (pf, torch):
        fn, x = make(lib), leaf(lib, value)
        assert lib.autograd.gradcheck(fn, (x,), raise_exception=False) is right
        if case != "wrong":
            assert lib.autograd.gradgradcheck(fn, x, raise_exception=False) is right
    if not right:
        with pytest.raises(GradcheckError, match="gradients of result 0 by input 0 to be those of differences"):
            pf.autograd.gradcheck(make(pf), [leaf(pf, value)])


def test_gradcheck_of_several_inputs_and_options() -> None:
    def fn(a: Any, n: int, b: Any) -> Any:
        return a * n + b.sum()

    assert pf.autograd.gradcheck(fn, (leaf(pf, X), 3, leaf(pf, Y)), eps=1e-5, fast_mode=True)
    assert pf.autograd.gradcheck(fn, (leaf(pf, X), 3, pf.zeros(0)))
    with pytest.warns(UserWarning, match="input 0 is float32"):
        pf.autograd.gradcheck(pf.sin, leaf(pf, np.float32(0.5)), eps=1e-2, atol=1e-2)
    with pytest.raises(pf.ArgumentError, match="requires grad"):
        pf.autograd.gradcheck(pf.sin, pf.ones(2))
    with pytest.raises(pf.NotSupportedError, match="check_forward_ad=False"):
        pf.autograd.gradcheck(pf.sin, leaf(pf, Y), check_forward_ad=True)
    with pytest.raises(TypeError, match="did you mean 'fast_mode'"):
        pf.autograd.gradcheck(pf.sin, leaf(pf, Y), fast_mod=True)


# --- Function ---------------------------------------------------------------------------------------------------------


def several(lib: Any, materialize: bool, seen: list[Any]) -> type:
    class Several(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2, x.argsort(), x * 3, x * 5

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[2])
            ctx.set_materialize_grads(materialize)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            seen.append([None if g is None else g.tolist() for g in gradients])
            return gradients[0] * 2 * ctx.saved_tensors[0]

    return Several


@pytest.mark.parametrize("materialize", [True, False])
def test_functions_with_contexts_set_up(materialize: bool) -> None:
    found: list[Any] = []
    for lib in (pf, torch):
        x, seen = leaf(lib, Y), []  # type: ignore[var-annotated]
        out = several(lib, materialize, seen).apply(x)  # type: ignore[attr-defined]
        out[0].sum().backward()
        found.append((seen, x.grad.tolist(), [t.requires_grad for t in out]))
    assert found[0] == found[1]


def test_once_differentiable() -> None:
    for lib, once in ((pf, once_differentiable), (torch, torch.autograd.function.once_differentiable)):

        class Square(lib.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0]

        x = leaf(lib, Y)
        (g,) = lib.autograd.grad(Square.apply(x).sum() * x.sum(), x, create_graph=True)
        np.testing.assert_allclose(g.detach().numpy(), 2 * Y * Y.sum() + (Y * Y).sum())
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()


def test_variables_are_tensors() -> None:
    assert isinstance(Variable(pf.ones(2)), pf.Tensor) and isinstance(pf.ones(1), Variable)
    assert not isinstance(np.ones(1), Variable) and pf.autograd.inference_mode is pf.inference_mode


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_grad_leaves_alone_what_is_not_on_the_way(library: Any) -> None:
    """What the inputs were made of is neither freed nor shown to hooks."""
    x = library.ones(2, requires_grad=True)
    seen: list[Any] = []
    x.register_hook(seen.append)
    y = (x * x).exp()
    first = library.autograd.grad((y * y).sum(), y, only_inputs=True)[0]
    assert not seen
    second = library.autograd.grad(y.sum(), x)[0]
    assert len(seen) == 1
    np.testing.assert_allclose(first.numpy(), [2 * np.e] * 2, rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), [2 * np.e] * 2, rtol=1e-5)
    with pytest.raises(RuntimeError, match=r"retain_graph=True"):
        library.autograd.grad(y.sum(), x, allow_unused=True)


def test_gradients_in_batches_and_of_what_is_unused() -> None:
    found = []
    for library in (pf, torch):
        x, unused = library.tensor([1.0, 2.0, 3.0]).requires_grad_(), library.ones(2).requires_grad_()
        y, z = x**3, x.sum()
        grad = library.autograd.grad
        batched = grad(y, x, library.eye(3), create_graph=True, is_grads_batched=True)[0]
        second = grad(batched.sum(), x, retain_graph=True)[0]
        both = grad((y, z), (x, unused), (library.eye(3)[:2], library.ones(2)), True, False, True, True, True)
        filled = grad(y, (x, unused), library.ones(2, 3), True, is_grads_batched=True, materialize_grads=True)
        alone = grad(z, (unused, x), materialize_grads=True)
        found.append([None if t is None else t.tolist() for t in (batched, second, *both, *filled, *alone)])
        with pytest.raises(ValueError, match="allow_unused"):
            grad(z, unused, allow_unused=False, materialize_grads=True)
    assert found[0] == found[1]
    for starts in (None, pf.ones(()), pf.ones(0, 3)):
        with pytest.raises(pf.ShapeError, match="first axes"):
            pf.autograd.grad(y, x, starts, is_grads_batched=True)
