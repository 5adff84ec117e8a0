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


@pytest.mark.slow
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


def _seen(lib: Any, body: Any) -> list[Any]:
    """The functions that __torch_function__ of a subclass is given while a function of tensors of it runs."""
    seen: list[Any] = []

    class Seen(lib.Tensor):  # type: ignore[misc,name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(Seen)
    whole = lib.tensor([[1, 2], [3, 4]]).as_subclass(Seen)
    seen.clear()
    body(lib, x, whole)
    return seen


METHODS = {
    "x + 1": "add", "1 + x": "add", "x - 1": "sub", "1 - x": "__rsub__", "x * 2": "mul", "2 * x": "mul", "x / 2": "div",
    "2 / x": "__rdiv__", "x // 2": "__floordiv__", "2 // x": "__rfloordiv__", "x % 2": "remainder", "2 % x": "__rmod__",
    "x ** 2": "__pow__", "2 ** x": "__rpow__", "x @ x": "matmul", "-x": "neg", "+x": "positive", "abs(x)": "abs",
    "~i": "__invert__", "i & 1": "__and__", "1 & i": "bitwise_and", "i | 1": "__or__", "i ^ 1": "__xor__",
    "i << 1": "__lshift__", "1 << i": "__rlshift__", "i >> 1": "__rshift__", "x == x": "__eq__", "x != x": "ne",
    "x < x": "lt", "x <= x": "le", "x > x": "gt", "x >= x": "ge", "L.ones(2, 2) - x": "sub", "L.ones(2, 2) < x": "gt",
    "x[0]": "__getitem__", "x[0, 1:]": "__getitem__", "L.ones(4)[i[0]]": "__getitem__", "len(x)": "__len__",
    "1.0 in x": "__contains__", "repr(x)": "__repr__", "str(x)": "__repr__", "f'{x}'": "__format__",
    "x.float()": "float", "x.int()": "int", "x.is_contiguous()": "is_contiguous", "x.type(L.float64)": "type",
    "x.numel()": "numel", "x.nelement()": "numel", "x.size()": "size", "x.stride()": "stride", "x.sum()": "sum",
    "x.max(0)": "max", "x.to(L.float64)": "to", "x.view(4)": "view",
    "x.masked_fill(L.ones(2, 2) > 0, 0.)": "masked_fill",
    "x.add_(1)": "add_", "x.mul_(2)": "mul_", "x.zero_()": "zero_", "x.copy_(x)": "copy_", "x.absolute()": "absolute",
    "x.greater_(1)": "greater_", "x.detach()": "detach", "x.tolist()": "tolist", "x.numpy()": "numpy",
    "x.is_nonzero": None, "hash(x)": None, "L.Tensor.add(x, 1)": "add", "x.__add__(1)": "add",
}  # fmt: skip


@pytest.mark.parametrize("expression", METHODS)
def test_methods_that_are_handed_over(lib: Any, expression: str) -> None:
    seen = _seen(lib, lambda L, x, i: eval(expression, {"L": L, "x": x, "i": i}))
    wanted = METHODS[expression]
    if "i[0]" in expression:
        seen.pop(0)
    assert seen == ([] if wanted is None else [getattr(lib.Tensor, wanted)]), [f.__name__ for f in seen]
    named = "pow" if wanted == "__pow__" else wanted
    assert [f.__name__ for f in seen] == ([] if wanted is None else [named])


def test_more_is_handed_over_in_order(lib: Any) -> None:
    def body(L: Any, x: Any, i: Any) -> None:
        list(x), bool(x[0, 0]), float(x[0, 0]), int(i[0, 0]), reversed(x)
        x[0] = 1.0
        y = x
        y += 1
        y -= 1
        y *= 2
        y /= 2
        y //= 1
        y %= 7
        y **= 2
        i[0] &= 1

    names = [f.__name__ for f in _seen(lib, body)]
    assert names == [
        "dim", "unbind", "__len__", "__getitem__", "__bool__", "__getitem__", "__float__", "__getitem__", "__int__",
        "__reversed__", "__setitem__", "add_", "sub_", "mul_", "div_", "floor_divide_", "remainder_", "pow_",
        "__getitem__", "__iand__", "__setitem__",
    ]  # fmt: skip


ATTRIBUTES = (
    "shape", "dtype", "device", "ndim", "T", "mT", "real", "grad", "requires_grad", "is_leaf", "data", "is_cuda",
    "layout", "itemsize", "grad_fn",
)  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_that_are_handed_over(lib: Any, name: str) -> None:
    (getter,) = _seen(lib, lambda L, x, i: getattr(x, name))
    assert getter == getattr(lib.Tensor, name).__get__ and getter.__name__ == "__get__"
    overridden = importlib.import_module(f"{lib.__name__}.overrides")
    assert overridden.is_tensor_method_or_property(getter)
    assert overridden.resolve_name(getter) == f"{lib.__name__}.Tensor.{name}.__get__"


def test_attributes_that_are_set(lib: Any) -> None:
    def body(L: Any, x: Any, i: Any) -> None:
        x.requires_grad = True
        x.grad = L.ones(2, 2)
        del x.grad

    seen = _seen(lib, body)
    grad = lib.Tensor.grad
    assert seen == [lib.Tensor.requires_grad.__set__, grad.__set__, grad.__delete__]


def test_gradients_are_no_tensors_of_the_subclass(lib: Any) -> None:
    class Named(lib.Tensor):  # type: ignore[misc,name-defined]
        pass

    x = lib.ones(2).as_subclass(Named).requires_grad_()
    (x * 3).sum().backward()
    assert type(x.grad) is lib.Tensor and type(x.data) is Named and type(x[0]._base) is not Named
    assert [type(row).__name__ for row in lib.ones(2, 2).as_subclass(Named)] == ["Named", "Named"]


FUNCTIONS = (
    "add", "absolute", "cat", "stack", "where", "relu", "softmax", "einsum", "split", "unsafe_chunk", "t_copy", "ger",
    "nn.functional.relu", "nn.functional.softmax", "nn.functional.linear", "nn.functional.pad", "nn.functional.gelu",
    "linalg.norm", "linalg.inv", "fft.fft", "special.erf", "special.entr",
)  # fmt: skip
ARGUMENTS = {
    "add": "x, 1", "cat": "[x, x]", "stack": "[x, x]", "where": "L.ones(2, 2) > 0, x, 0", "softmax": "x, -1",
    "einsum": "'ij->ji', x", "split": "x, 1", "unsafe_chunk": "x, 2", "nn.functional.softmax": "x, -1",
    "nn.functional.linear": "x, x", "nn.functional.pad": "x, (1, 1)", "ger": "x.sum(0), x.sum(0)",
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_handed_over(lib: Any, name: str) -> None:
    call = f"L.{name}({ARGUMENTS.get(name, 'x')})"
    *_, last = _seen(lib, lambda L, x, i: eval(call, {"L": L, "x": x}))
    function = lib
    for part in name.split("."):
        function = getattr(function, part)
    assert last is function
    room, _, short = name.rpartition(".")
    assert last.__name__ == (f"{room}_{short}" if room in ("linalg", "fft", "special") else short)


def test_names_of_functions(lib: Any) -> None:
    overridden = importlib.import_module(f"{lib.__name__}.overrides")
    names = {
        lib.add: "add",
        lib.Tensor.add: "Tensor.add",
        lib.Tensor.__rsub__: "Tensor.__rsub__",
        lib.nn.functional.relu: "nn.functional.relu",
        lib.linalg.norm: "linalg.norm",
        lib.Tensor.grad.__set__: "Tensor.grad.__set__",
    }
    assert {overridden.resolve_name(f): n for f, n in names.items()} == {
        f"{lib.__name__}.{n}": n for n in names.values()
    }
    assert [overridden.is_tensor_method_or_property(f) for f in names] == [False, True, True, False, False, False]
    rooms = overridden.get_overridable_functions()
    assert lib.add in rooms[lib] and lib.Tensor.add in rooms[lib.Tensor] and lib.add not in rooms[lib.Tensor]
    assert lib.nn.functional.relu in rooms[lib.nn.functional] and lib.linalg.inv in rooms[lib.linalg]
    ignored = overridden.get_ignored_functions()
    assert lib.is_tensor in ignored and lib.tensor in ignored and lib.add not in ignored
    stand_in = overridden.get_testing_overrides()[lib.nn.functional.relu]
    assert stand_in(lib.ones(2)) == -1
    with pytest.raises(TypeError):
        stand_in()


def test_modes(lib: Any) -> None:
    overridden = importlib.import_module(f"{lib.__name__}.overrides")
    log: list[str] = []

    class Log(overridden.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __init__(self, tag: str = "") -> None:
            super().__init__()
            self.tag = tag

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(self.tag + func.__name__)
            return func(*args, **(kwargs or {}))

    class Named(lib.Tensor):  # type: ignore[misc,name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append("class " + func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    for _ in range(12):  # until calls are made in C
        lib.ones(2) * 3
    linear, named = lib.nn.Linear(2, 2), lib.ones(2).as_subclass(Named)
    log.clear()
    with Log() as mode:
        assert isinstance(mode, Log)
        x = lib.ones(2) * 3
        lib.tensor([1.0]), lib.relu(x), x.add_(1), x.sum(), linear(x), x[0], lib.zeros(2)
    assert log == ["ones", "mul", "tensor", "relu", "add_", "sum", "linear", "__getitem__", "zeros"]
    log.clear()
    x * 3, lib.ones(2)
    assert not log
    with Log("outer "), Log("inner "):
        lib.ones(2)
        with lib._C.DisableTorchFunction():
            lib.ones(2)
        with lib._C.DisableTorchFunctionSubclass():
            named + 1
    assert log == ["inner ones", "outer ones", "inner add", "outer add"]
    log.clear()
    with Log():
        assert type(named + 1) is Named
        assert overridden.has_torch_function((1,))
    assert log == ["add", "class add"]
    with overridden.BaseTorchFunctionMode():
        assert (x * 2).tolist() == (x + x).tolist()
    with pytest.raises(ZeroDivisionError), Log():
        raise ZeroDivisionError
    log.clear()
    lib.ones(2)
    assert not log


def test_modes_that_answer(lib: Any) -> None:
    overridden = importlib.import_module(f"{lib.__name__}.overrides")

    class Double(overridden.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in (lib.ones, lib.zeros):
                kwargs["dtype"] = lib.float64
            return NotImplemented if func is lib.sin else func(*args, **kwargs)

    class Unfinished(overridden.TorchFunctionMode):  # type: ignore[misc,name-defined]
        pass

    with Double():
        assert lib.ones(2).dtype is lib.float64 and lib.zeros(2).dtype is lib.float64
        with pytest.raises(TypeError):
            lib.sin(lib.ones(2))
    assert lib.ones(2).dtype is lib.float32
    with pytest.raises(NotImplementedError), Unfinished():
        lib.ones(2)


def test_a_dispatch_mode_says_that_it_is_not_there(lib: Any) -> None:
    if lib is torch:
        pytest.skip("torch has it")
    modes = importlib.import_module("pyflame.utils._python_dispatch")

    class Mine(modes.TorchDispatchMode):  # type: ignore[misc,name-defined]
        pass

    with pytest.raises(pf.NotSupportedError, match="TorchFunctionMode"):
        Mine()


def test_views_know_their_base(lib: Any) -> None:
    x = lib.zeros(2, 3)
    row = x[0]
    assert x._base is None and not x._is_view()
    assert row._base is x and row[1:]._base is x and row._is_view() and x.T._is_view()
    assert x.clone()._base is None and not x.detach()._is_view() and x.data._base is None
    base = x.detach()
    assert base[0]._base is base


def test_ops_of_compiled_libraries(lib: Any) -> None:
    """As torchvision: it loads its library, does without if that fails, and registers fake functions in any case."""
    with pytest.raises(OSError):
        lib.ops.load_library("/no/such/library.so")
    if lib is not pf:
        return
    pf.library.register_fake("tests_compiled::twice")(lambda x: pf.empty_like(x))
    assert not hasattr(pf.ops, "tests_compiled")
    twice = pf.library.custom_op("tests_compiled::twice", lambda x: pf.tensor(x.numpy() * 2), mutates_args=())
    assert twice(pf.ones(2)).tolist() == [2, 2]
    assert twice(pf.ones(3, device="null:gfx942")).shape == (3,)


def test_as_subclass_is_not_asked(lib: Any) -> None:
    """A class may come back to plain tensors by it from within, as MONAI's MetaTensor.clone does."""

    class Kept(lib.Tensor):  # type: ignore[misc, name-defined]
        def clone(self) -> Any:
            return self.as_subclass(lib.Tensor).clone()

    x = lib.ones(2).as_subclass(Kept)
    assert type(x.as_subclass(lib.Tensor)) is lib.Tensor and type(x.clone()) is lib.Tensor


def test_new_with_arguments_of_its_own(lib: Any) -> None:
    """geoopt's tensors: `__init__` gets the same arguments, and has nothing to do with them."""

    class On(lib.Tensor):  # type: ignore[misc, name-defined]
        def __new__(cls, data: Any, manifold: str = "flat") -> Any:
            made = lib.Tensor._make_subclass(cls, data, data.requires_grad)
            made.manifold = manifold
            return made

    class Weight(On, lib.nn.Parameter):  # type: ignore[misc, name-defined]
        def __new__(cls, data: Any, manifold: str = "flat", requires_grad: bool = True) -> Any:
            made = On._make_subclass(cls, On(data, manifold=manifold), requires_grad)
            made.manifold = manifold
            return made

    w = Weight(lib.ones(2), manifold="ball")
    assert (w.manifold, w.requires_grad, w.tolist(), isinstance(w, lib.nn.Parameter)) == (
        "ball",
        True,
        [1.0, 1.0],
        True,
    )


def test_type_of_the_class_is_the_default_dtype(lib: Any) -> None:
    assert (lib.arange(2) > 0).type(lib.Tensor).dtype is lib.float32
