"""Subclasses of Tensor, objects like tensors, torch.overrides and torch.library: programs that run with torch, too."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.tensor import overrides

LIBRARIES = [pytest.param(torch, id="torch"), pytest.param(pf, id="pyflame")]
pytestmark = pytest.mark.parametrize("lib", LIBRARIES)


@pytest.fixture(autouse=True)
def _no_classes_left() -> Any:
    yield
    overrides.CLASSES.clear()


class Picklable(pf.Tensor):
    pass


def test_results_are_of_the_subclass(lib: Any) -> None:
    class Named(lib.Tensor):  # type: ignore[misc,name-defined]
        pass

    x = lib.ones(2, 2).as_subclass(Named)
    made = {
        "x + 1": x + 1,
        "1 - x": 1 - x,
        "plain + x": lib.ones(2, 2) + x,
        "x @ plain": x @ lib.ones(2, 2),
        "x[0]": x[0],
        "x > 0": x > 0,
        "x.T": x.T,
        "-x": -x,
        "abs(x)": abs(x),
        "x.sum()": x.sum(),
        "x.view": x.view(4),
        "x.to": x.to(lib.float64),
        "x.clone": x.clone(),
        "x.detach": x.detach(),
        "lib.exp": lib.exp(x),
        "lib.cat": lib.cat([lib.ones(1, 2), x]),
        "lib.where": lib.where(x > 0, x, lib.zeros(2, 2)),
        "F.relu": lib.nn.functional.relu(x),
        "F.linear": lib.nn.functional.linear(x, lib.ones(3, 2)),
        "zeros_like": lib.zeros_like(x),
        "max": x.max(0)[0],
        "chunk": x.chunk(2)[1],
        "x.add_": x.add_(1),
        "einsum": lib.einsum("ij->ji", x),
    }
    assert {name: type(value).__name__ for name, value in made.items()} == dict.fromkeys(made, "Named")
    assert (x == 2).all() and type(lib.ones(2) + 1) is lib.Tensor
    assert type(lib.nn.Linear(2, 2)(lib.ones(1, 2))) is lib.Tensor  # parameters have nothing to say


def test_gradients_flow_and_memory_is_shared(lib: Any) -> None:
    class Named(lib.Tensor):  # type: ignore[misc,name-defined]
        pass

    x = lib.ones(2, requires_grad=True)
    (x.as_subclass(Named) * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    plain = lib.zeros(2)
    named = lib.Tensor._make_subclass(Named, plain)
    named.add_(1)
    assert plain.tolist() == [1.0, 1.0] and not named.requires_grad
    assert lib.Tensor._make_subclass(Named, plain, True).requires_grad


def test_new_and_init(lib: Any) -> None:
    class Meta(lib.Tensor):  # type: ignore[misc,name-defined]
        @staticmethod
        def __new__(cls: Any, x: Any, meta: str, *args: Any, **kwargs: Any) -> Any:
            return super().__new__(cls, x, *args, **kwargs)

        def __init__(self, x: Any, meta: str) -> None:
            super().__init__()
            self.meta = meta

    x = Meta(lib.tensor([1.0, 2.0]), "seconds")
    assert (x.tolist(), x.meta, type(x + 1)) == ([1.0, 2.0], "seconds", Meta)
    assert Meta([3.0], "m").tolist() == [3.0]
    assert lib.Tensor([1.0]).tolist() == [1.0] and lib.nn.Parameter(lib.ones(1)).tolist() == [1.0]


def test_torch_function(lib: Any) -> None:
    log: list[str] = []

    class Logged(lib.Tensor):  # type: ignore[misc,name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(func.__name__)
            assert types == (Logged,)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2).as_subclass(Logged)
    log.clear()
    lib.sin(x), x.cos(), lib.stack([x, x]), lib.sum(x, dim=0), lib.nn.functional.gelu(x)
    assert log == ["sin", "cos", "stack", "sum", "gelu"]
    with lib._C.DisableTorchFunctionSubclass():
        assert type(lib.exp(x)) is lib.Tensor
    assert len(log) == 5


def test_a_weight_that_linear_treats_apart(lib: Any) -> None:
    class Quantised(lib.nn.Parameter):  # type: ignore[misc,name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is lib.nn.functional.linear:
                return "quantised"
            with lib._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    layer = lib.nn.Linear(2, 3, bias=False)
    weight = lib.Tensor._make_subclass(Quantised, lib.ones(3, 2))
    assert lib.nn.functional.linear(lib.ones(1, 2), weight) == "quantised"
    assert type(lib.relu(weight)) is lib.Tensor and layer(lib.ones(1, 2)).shape == (1, 3)


def test_objects_like_tensors(lib: Any) -> None:
    class Diagonal:
        def __init__(self, size: int, value: float) -> None:
            self.size_, self.value = size, value

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.__name__ == "mean":
                return args[0].value / args[0].size_
            if func.__name__ in ("add", "matmul", "cat", "relu"):
                return func.__name__, [type(a).__name__ for a in args]
            return NotImplemented

    d = Diagonal(5, 2.0)
    overridden = importlib.import_module(f"{lib.__name__}.overrides")
    assert lib.mean(d) == 0.4
    assert lib.add(lib.ones(2), d) == ("add", ["Tensor", "Diagonal"])
    assert lib.matmul(d, lib.ones(2)) == ("matmul", ["Diagonal", "Tensor"])
    assert lib.cat([d, d])[0] == "cat" and lib.nn.functional.relu(d)[0] == "relu"
    assert (lib.ones(2) + d)[1] == ["Tensor", "Diagonal"]
    for fn in (lib.sin, lib.nn.functional.gelu):
        with pytest.raises(TypeError):
            fn(d)
    assert overridden.is_tensor_like(d) and overridden.is_tensor_like(lib.ones(1)) and not overridden.is_tensor_like(1)
    assert overridden.has_torch_function((1, d)) and not overridden.has_torch_function((lib.ones(1), 2))
    assert overridden.has_torch_function_unary(d) and overridden.has_torch_function_variadic(1, d)


def test_functions_of_a_program(lib: Any) -> None:
    overridden = importlib.import_module(f"{lib.__name__}.overrides")

    def double(x: Any, by: float = 2.0) -> Any:
        if overridden.has_torch_function((x,)):
            return overridden.handle_torch_function(double, (x,), x, by=by)
        return x * by

    class Base:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return [cls.__name__, func.__name__, len(types), kwargs] if func is double else NotImplemented

    class Derived(Base):
        pass

    assert double(lib.ones(1)).tolist() == [2.0]
    assert double(Derived(), by=3.0) == ["Derived", "double", 1, {"by": 3.0}]
    both = overridden.handle_torch_function(double, (Base(), Derived()), 1)
    assert both == ["Derived", "double", 2, {}]
    with pytest.raises(TypeError):
        overridden.handle_torch_function(lib.sin, (Base(),), 1)
    wrapped = overridden.wrap_torch_function(lambda x: (x,))(lambda x: x + 1)
    assert wrapped(1) == 2


def test_classes_that_nobody_holds_go(lib: Any) -> None:
    def made(n: int) -> Any:
        return weakref.ref(type(f"Made{n}", (lib.Tensor,), {}))

    found = [made(n) for n in range(10)]
    gc.collect()
    assert [cls() for cls in found] == [None] * 10
    if lib is pf:
        assert not overrides.CLASSES


def test_copies(lib: Any) -> None:
    if lib is torch:
        pytest.skip("torch's want a new_empty of the class")
    x = pf.ones(2).as_subclass(Picklable)
    x.name_ = ["x"]  # type: ignore[attr-defined]
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(twin) is Picklable and twin.name_ == ["x"] and twin.name_ is not x.name_
        twin.zero_()
        assert x.tolist() == [1.0, 1.0]


def test_custom_op(lib: Any) -> None:
    name = f"tests_{lib.__name__}"
    calls: list[str] = []

    @lib.library.custom_op(f"{name}::sine", mutates_args=(), schema="(Tensor x, float scale=1.0) -> Tensor")
    def sine(x: Any, scale: float = 1.0) -> Any:
        calls.append("kernel")
        return lib.tensor(np.sin(x.detach().numpy()) * scale)

    @lib.library.register_fake(f"{name}::sine")
    def _(x: Any, scale: float = 1.0) -> Any:
        return lib.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.scale = inputs[1]
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.scale, None

    x = lib.tensor([0.5, 1.0], requires_grad=True)
    with pytest.raises(RuntimeError):
        sine(x).sum().backward()
    lib.library.register_autograd(f"{name}::sine", backward, setup_context=setup)
    for out in (sine(x, 2.0), getattr(lib.ops, name).sine(x, scale=2.0), getattr(lib.ops, name).sine.default(x, 2.0)):
        x.grad = None
        out.sum().backward()
        np.testing.assert_allclose(out.detach().numpy(), np.sin([0.5, 1.0]) * 2, rtol=1e-6)
        np.testing.assert_allclose(x.grad.numpy(), np.cos([0.5, 1.0]) * 2, rtol=1e-6)
    assert calls == ["kernel"] * 4
    with pytest.raises((ValueError, RuntimeError)):
        lib.library.custom_op("nocolons", lambda x: x, mutates_args=())
    if lib is pf:
        assert sine(pf.ones(3, device="null:gfx942")).device == "null:gfx942" and len(calls) == 4
        with pytest.raises(pf.PyFlameError, match="did you mean"):
            pf.library.register_fake(f"{name}::sin")
