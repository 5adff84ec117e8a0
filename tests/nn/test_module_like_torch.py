"""nn.Module against torch's: the same methods and arguments, and programs that run with both and log the same."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyflame as pf

# Private methods that programs override or call, beside the public ones.
PRIVATE = (
    "_apply", "_load_from_state_dict", "_save_to_state_dict", "_register_state_dict_hook",
    "_register_load_state_dict_pre_hook", "_get_name", "__setstate__",
)  # fmt: skip
# `to` names its arguments here, and `forward` may have any; devices that are not ours.
OTHERWISE = {"to", "forward", "ipu", "mtia", "xpu", "T_destination", "dump_patches", "smart_apply"}
GLOBAL_HOOKS = [name for name in torch.nn.modules.module.__all__ if name.startswith("register_")]


def parameters(fn: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(fn).parameters.values()]


@pytest.mark.parametrize("name", sorted({n for n in dir(torch.nn.Module) if n[0] != "_"} - OTHERWISE) + [*PRIVATE])
def test_signatures(name: str) -> None:
    theirs, ours = getattr(torch.nn.Module, name), getattr(pf.nn.Module, name)
    if callable(theirs):
        assert parameters(ours) == parameters(theirs)


@pytest.mark.parametrize("name", GLOBAL_HOOKS)
def test_signatures_of_global_hooks(name: str) -> None:
    module = importlib.import_module("pyflame.nn.modules.module")
    assert parameters(getattr(module, name)) == parameters(getattr(torch.nn.modules.module, name))


# --- programs ---------------------------------------------------------------------------------------------------------

Log = list[Any]
Program = Callable[[Any, Log], None]
PROGRAMS: dict[str, Program] = {}


def program(fn: Program) -> Program:
    PROGRAMS[fn.__name__] = fn
    return fn


def shown(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.detach().tolist() if hasattr(value, "detach") else value.tolist()
    if isinstance(value, (tuple, list)):
        return [shown(v) for v in value]
    return {k: shown(v) for k, v in value.items()} if isinstance(value, dict) else value


def linear(lib: Any, *sizes: int, bias: bool = True) -> Any:
    layer = lib.nn.Linear(*sizes, bias=bias)
    with lib.no_grad():
        for p in layer.parameters():
            p.copy_(lib.arange(float(p.numel())).reshape(p.shape) / 4)
    return layer


@program
def state_dict_hooks(lib: Any, log: Log) -> None:
    net = lib.nn.Sequential(linear(lib, 2, 2), linear(lib, 2, 1))
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(["pre", prefix, keep]))
    handle = net[0].register_state_dict_post_hook(
        lambda m, d, prefix, about: (log.append(["post", prefix, about]), d.pop(prefix + "bias"))[:0] or None
    )
    net[1]._register_state_dict_hook(lambda m, d, prefix, about: {**d, "added": 1})
    log.append(list(net.state_dict(keep_vars=True)))
    handle.remove()
    log.append(list(net.state_dict(prefix="net.")))
    log.append(list(net[1].state_dict()))
    log.append(dict(lib.nn.Sequential(lib.nn.BatchNorm1d(2)).state_dict()._metadata))
    destination: dict[str, Any] = {}
    assert net[0].state_dict(destination=destination, prefix="p.") is destination
    log.append(list(destination))


@program
def modules_with_a_state_dict_of_their_own(lib: Any, log: Log) -> None:
    class Own(lib.nn.Sequential):  # type: ignore[misc,name-defined]
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            log.append(["own", kwargs["prefix"], sorted(kwargs)])
            found = super().state_dict(*args, **kwargs)
            found[kwargs["prefix"] + "more"] = 1
            return found

    net = lib.nn.Sequential(lib.nn.Sequential(Own(linear(lib, 2, 2)), linear(lib, 2, 1)), linear(lib, 1, 1))
    for module in net.modules():
        module.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(["pre", prefix]))
        module.register_state_dict_post_hook(lambda m, d, prefix, about: log.append(["post", prefix, len(d)]))
    net[1].state_dict = lambda destination, prefix, keep_vars: log.append(["instance", prefix, len(destination)])
    log.append(list(net.state_dict()))


@program
def a_post_hook_may_not_return(lib: Any, log: Log) -> None:
    layer = linear(lib, 2, 2)
    layer.register_state_dict_post_hook(lambda *args: {})
    try:
        layer.state_dict()
    except (RuntimeError, TypeError):
        log.append("raises")


@program
def load_hooks(lib: Any, log: Log) -> None:
    net = lib.nn.Sequential(linear(lib, 2, 2), linear(lib, 2, 1))
    state = dict(net.state_dict())
    state["old.weight"] = state.pop("1.weight")

    def rename(module: Any, values: Any, prefix: str, about: Any, strict: bool, *lists: Any) -> None:
        log.append(["rename", prefix, strict, [list(x) for x in lists], type(module).__name__])
        if prefix == "" and "old.weight" in values:
            values["1.weight"] = values.pop("old.weight")

    net.register_load_state_dict_pre_hook(rename)
    net[1]._register_load_state_dict_pre_hook(lambda values, prefix, *rest: log.append([prefix, sorted(values)]))
    net.register_load_state_dict_post_hook(lambda m, keys: log.append([type(m).__name__, list(keys.missing_keys)]))
    log.append(str(net.load_state_dict(state)))
    net[0].register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    del state["0.bias"]
    log.append(str(net.load_state_dict(state)))
    log.append(list(net.load_state_dict({}, strict=False).missing_keys))
    log.append(sorted(net.load_state_dict({"x": 1, "0.y": 2, "0.z.w": 3}, strict=False).unexpected_keys))


@program
def overridden_loading(lib: Any, log: Log) -> None:
    class Scale(lib.nn.Module):  # type: ignore[misc,name-defined]
        _version = 3

        def __init__(self) -> None:
            super().__init__()
            self.scale = lib.nn.Parameter(lib.ones(2))

        def _load_from_state_dict(
            self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any,
            unexpected_keys: Any, error_msgs: Any,
        ) -> None:  # fmt: skip
            log.append([prefix, local_metadata.get("version")])
            if prefix + "gamma" in state_dict:
                state_dict[prefix + "scale"] = state_dict.pop(prefix + "gamma")
            super()._load_from_state_dict(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
            )
            log.append(shown(self.scale))

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "gamma"] = destination.pop(prefix + "scale")

    net = lib.nn.Sequential(Scale(), Scale())
    log.append(list(net.state_dict()))
    log.append(str(net.load_state_dict({"0.gamma": lib.tensor([2.0, 3.0]), "1.scale": lib.tensor([4.0, 5.0])})))
    log.append(str(net.load_state_dict(net.state_dict())))


@program
def extra_state(lib: Any, log: Log) -> None:
    class Counter(lib.nn.Module):  # type: ignore[misc,name-defined]
        seen = 0

        def get_extra_state(self) -> Any:
            return {"seen": self.seen}

        def set_extra_state(self, state: Any) -> None:
            self.seen = state["seen"]

    one, two = (lib.nn.Sequential(Counter(), linear(lib, 1, 1)) for _ in range(2))
    one[0].seen = 5
    log.append(list(one.state_dict()))
    log.append([str(two.load_state_dict(one.state_dict())), two[0].seen])
    state = one.state_dict()
    del state["0._extra_state"]
    log.append(two.load_state_dict(state, strict=False).missing_keys)
    plain = lib.nn.Sequential(lib.nn.ReLU(), linear(lib, 1, 1))
    log.append(plain.load_state_dict(one.state_dict(), strict=False).unexpected_keys)


@program
def strict_and_assign(lib: Any, log: Log) -> None:
    layer = linear(lib, 2, 2)
    for state in ({"weight": lib.ones(2, 2)}, {"weight": lib.ones(3, 2), "bias": lib.ones(2)}, {"a": 1}):
        try:
            layer.load_state_dict(state)
        except RuntimeError as error:
            log.append([word in str(error).lower() for word in ("missing", "unexpected", "size mismatch")])
    given = {"weight": lib.ones(2, 2, dtype=lib.float64), "bias": lib.zeros(2, dtype=lib.float64)}
    layer.bias.requires_grad_(False)
    layer.load_state_dict(given)
    log.append(str(layer.weight.dtype).split(".")[1])
    layer.load_state_dict(given, assign=True)
    log.append([str(layer.weight.dtype).split(".")[1], layer.weight.requires_grad, layer.bias.requires_grad])
    given["weight"].fill_(7)
    log.append(shown(layer.weight))


@program
def forward_hooks(lib: Any, log: Log) -> None:
    class Twice(lib.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            if scale == 0:
                raise KeyError("zero")
            return x * scale

    layer, x = Twice(), lib.ones(1)
    layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True)
    layer.register_forward_pre_hook(lambda m, args: args[0] * 3, prepend=True)
    layer.register_forward_hook(lambda m, args, kwargs, out: log.append([kwargs, shown(out)]), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, out: out + 1)
    layer.register_forward_hook(lambda m, args, out: log.append(["always", shown(out)]), always_call=True)
    log.append(shown(layer(x, scale=1.0)))
    log.append([len(layer._forward_hooks), all(callable(h) for h in layer._forward_hooks.values())])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
        with pytest.raises(KeyError):
            layer(x, scale=-1.0)
    again = pickle.loads(pickle.dumps(lib.nn.ReLU()))
    handle = again.register_forward_hook(print, with_kwargs=True, always_call=True)
    handle.remove()
    log.append([len(again._forward_hooks), len(again._forward_hooks_with_kwargs)])


@program
def backward_hooks(lib: Any, log: Log) -> None:
    layer = linear(lib, 2, 2)
    layer.register_full_backward_pre_hook(lambda m, g_out: (log.append(shown(g_out)), (g_out[0] * 2,))[1])
    handle = layer.register_full_backward_hook(lambda m, g_in, g_out: log.append([shown(g_in), shown(g_out)]))
    layer.register_full_backward_hook(lambda m, g_in, g_out: (g_in[0] * 10,), prepend=True)
    x = lib.ones(1, 2, requires_grad=True)
    out = layer(x)
    handle.remove()  # those of the call are called
    out.sum().backward()
    log.append([shown(x.grad), shown(layer.weight.grad)])
    plain = linear(lib, 2, 1)
    plain.register_full_backward_hook(lambda m, g_in, g_out: log.append([shown(g_in), shown(g_out)]))
    plain(lib.ones(1, 2)).sum().backward()
    wrong = linear(lib, 2, 1)
    wrong.register_full_backward_hook(lambda m, g_in, g_out: (g_in[0], g_in[0]))
    with pytest.raises((RuntimeError, ValueError), match="got 2"):
        wrong(x).sum().backward()


@program
def global_hooks(lib: Any, log: Log) -> None:
    hooks = lib.nn.modules.module
    net = lib.nn.Sequential(linear(lib, 2, 2), lib.nn.ReLU())
    name = lambda m: type(m).__name__  # noqa: E731
    with (
        hooks.register_module_forward_pre_hook(lambda m, args: log.append(["pre", name(m)])),
        hooks.register_module_forward_hook(lambda m, args, out: log.append(["after", name(m), shown(out)])),
        hooks.register_module_full_backward_pre_hook(lambda m, g: log.append(["back", name(m), shown(g)])),
        hooks.register_module_full_backward_hook(lambda m, i, o: log.append(["backed", name(m), shown(i)])),
    ):
        net[0].register_forward_hook(lambda m, args, out: log.append("own"))
        net(lib.ones(1, 2, requires_grad=True)).sum().backward()
    count = len(log)
    net[1](lib.ones(1))
    assert len(log) == count
    with (
        hooks.register_module_parameter_registration_hook(lambda m, n, p: log.append(["parameter", n, p is None])),
        hooks.register_module_buffer_registration_hook(lambda m, n, b: log.append(["buffer", n, b is None])),
        hooks.register_module_module_registration_hook(lambda m, n, c: log.append(["module", n, name(c)])),
    ):
        lib.nn.Sequential(lib.nn.Linear(1, 1, bias=False), lib.nn.BatchNorm1d(1, affine=False))
    with hooks.register_module_parameter_registration_hook(lambda m, n, p: lib.nn.Parameter(lib.zeros(3))):
        module = lib.nn.Module()
        module.register_parameter("p", lib.nn.Parameter(lib.ones(1)))
        log.append(shown(module.p))


@program
def apply_is_what_to_calls(lib: Any, log: Log) -> None:
    class Keeps(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear(lib, 2, 2)
            self.register_buffer("table", lib.ones(2))

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            table, out = self.table.clone(), super()._apply(fn, recurse)
            self.table = table
            return out

    net = lib.nn.Sequential(Keeps())
    net[0].inner(lib.ones(1, 2)).sum().backward()
    net.double()
    kinds = [net[0].table.dtype, net[0].inner.weight.dtype, net[0].inner.weight.grad.dtype]
    log.append([str(k).split(".")[1] for k in kinds])
    net._apply(lambda t: t + 1)
    log.append([shown(net[0].inner.bias), shown(net[0].inner.bias.grad)])
    empty = net.to_empty(device="cpu")
    log.append([empty is net, list(net[0].inner.weight.shape)])


@program
def traversal(lib: Any, log: Log) -> None:
    shared = linear(lib, 2, 2)
    net = lib.nn.Sequential(shared, lib.nn.Sequential(shared))
    memo: set[Any] = set()
    log.append([n for n, _ in net.named_modules(memo, "net")])
    log.append([n for n, _ in net.named_modules(memo)])
    for unique in (True, False):
        log.append([n for n, _ in net.named_modules(remove_duplicate=unique)])
        log.append([n for n, _ in net.named_parameters("net", True, unique)])
        log.append(len(list(net.modules(unique))))


@program
def submodules(lib: Any, log: Log) -> None:
    net = lib.nn.Sequential(lib.nn.Sequential(lib.nn.ReLU()))
    net.set_submodule("0.0", lib.nn.Tanh())
    net.set_submodule("0.new", lib.nn.Tanh())
    log.append(repr(net))
    for target, strict in (("0.x", True), ("y.x", False), ("", False)):
        with pytest.raises((AttributeError, ValueError)):
            net.set_submodule(target, lib.nn.ReLU(), strict)
    with pytest.raises(ValueError):
        net.set_submodule("0", 1)


@program
def other_bases(lib: Any, log: Log) -> None:
    class Named:
        def __init__(self, name: str = "none") -> None:
            self.name = name

    class Both(lib.nn.Module, Named):  # type: ignore[misc,name-defined]
        call_super_init = True

    log.append(Both(name="x").name)
    with pytest.raises(TypeError):
        lib.nn.Module(name="x")


@program
def uninitialized(lib: Any, log: Log) -> None:
    parameter = lib.nn.parameter
    p = parameter.UninitializedParameter(dtype=lib.float64)
    log.append([repr(p), p.requires_grad, str(p.dtype).split(".")[1], parameter.is_lazy(p)])
    for use in (lambda: p + 1, lambda: p.shape, lambda: p.sum(), lambda: p.numel()):
        with pytest.raises((ValueError, RuntimeError)):
            use()
    twin = copy.deepcopy(p)
    p.materialize((2, 3))
    log.append([type(p).__name__, list(p.shape), str(p.dtype).split(".")[1], p.requires_grad, p.is_leaf, repr(twin)])
    buffer = lib.nn.UninitializedBuffer(persistent=False)
    module = lib.nn.Module()
    module.mean = buffer
    log.append([list(module._buffers), list(module.state_dict())])
    net = lib.nn.Sequential(lib.nn.LazyLinear(3), lib.nn.LazyBatchNorm1d())
    cells = list(net.parameters())
    log.append([repr(c) for c in cells])
    log.append({k: repr(v) if parameter.is_lazy(v) else shown(v) for k, v in net.state_dict().items()})
    fresh = pickle.loads(pickle.dumps(copy.deepcopy(net[0])))
    net.double()
    full = lib.nn.Sequential(linear(lib, 4, 3), lib.nn.BatchNorm1d(3)).double()
    log.append(str(net.load_state_dict(full.state_dict())))
    log.append(
        [
            net[0].has_uninitialized_params(),
            type(net[0]).__name__,
            all(map(lambda a, b: a is b, cells, net.parameters())),
        ]
    )
    x = lib.ones(2, 4, dtype=lib.float64)
    log.append([shown(net(x)) == shown(full(x)), repr(net[0])])
    fresh(x.float())
    log.append([repr(fresh), str(fresh.weight.dtype).split(".")[1]])


@program
def own_lazy_modules(lib: Any, log: Log) -> None:
    lazy = importlib.import_module(f"{lib.__name__}.nn.modules.lazy")

    class Scale(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, size: int) -> None:
            super().__init__()
            self.scale = lib.nn.Parameter(lib.ones(size))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    class LazyScale(lazy.LazyModuleMixin, Scale):  # type: ignore[misc,name-defined]
        cls_to_become = Scale

        def __init__(self) -> None:
            super().__init__(0)
            self.scale = lib.nn.UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            if self.has_uninitialized_params():
                with lib.no_grad():
                    self.scale.materialize(x.shape[-1:])
                    self.scale.fill_(2.0)

    layer = LazyScale()
    log.append([shown(layer(lib.ones(1, 3))), type(layer).__name__, len(layer._forward_pre_hooks)])


@program
def skip_init_and_stateless(lib: Any, log: Log) -> None:
    layer = lib.nn.utils.skip_init(lib.nn.Linear, 2, 3)
    log.append([list(layer.weight.shape), layer.weight.requires_grad])
    stateless = importlib.import_module(f"{lib.__name__}.nn.utils.stateless")
    state = {"weight": lib.ones(3, 2), "bias": lib.zeros(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.append(shown(stateless.functional_call(layer, state, (lib.ones(1, 2),))))


@program
def several_parametrizations(lib: Any, log: Log) -> None:
    class Exp(lib.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x * 4

        def right_inverse(self, y: Any) -> Any:
            return y / 4

    parametrize = lib.nn.utils.parametrize
    layer = linear(lib, 2, 2)
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", Exp())
    log.append([shown(layer.weight), shown(layer.parametrizations.weight.original)])
    layer.weight = lib.ones(2, 2)
    log.append([shown(layer.weight), shown(layer.parametrizations.weight.original)])
    log.append(list(layer.state_dict()))
    with pytest.raises(ValueError):
        parametrize.register_parametrization(layer, "weight", lib.nn.Flatten(0))


@program
def packed_sequences(lib: Any, log: Log) -> None:
    packed = lib.nn.utils.rnn.pack_sequence([lib.tensor([1.5, 2.0]), lib.tensor([3.0])])
    for name in ("byte", "char", "cpu", "double", "float", "half", "int", "long", "short"):
        got = getattr(packed, name)()
        log.append([type(got).__name__, str(got.data.dtype).split(".")[1], shown(got.data)])
    log.append([packed.is_cuda, packed.is_pinned()])


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    theirs: Log = []
    ours: Log = []
    PROGRAMS[name](torch, theirs)
    PROGRAMS[name](pf, ours)
    assert ours == theirs and ours


def test_a_load_that_fails_leaves_everything() -> None:
    """Also what shares memory with the module, and lazy parameters."""
    net = pf.nn.Sequential(pf.nn.Linear(2, 2), pf.nn.LazyLinear(2))
    shared = net[0].weight.detach()
    before = shared.tolist()
    with pytest.raises(RuntimeError, match="nothing was loaded"):
        net.load_state_dict({"0.weight": pf.ones(2, 2), "1.weight": pf.ones(2, 3), "1.bias": pf.ones(2)})
    assert net[0].weight.tolist() == before == shared.tolist() and net[1].has_uninitialized_params()
    net[0].weight.data.fill_(3.0)
    assert shared.tolist() == [[3.0, 3.0], [3.0, 3.0]]
