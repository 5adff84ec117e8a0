"""Weight normalisation: a weight as a length `g` and a direction `v`, w = g * v / |v|."""

from __future__ import annotations

from typing import Any, TypeVar

from pyflame.core.errors import ArgumentError
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad

M = TypeVar("M", bound=Module)


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The norms of the slices along an axis, which keep their axes; of all elements for None or -1."""
    if dim is None or dim == -1:
        return F["norm"](v)
    axis = dim % v.ndim
    return (v * v).sum(tuple(a for a in range(v.ndim) if a != axis), keepdims=True).sqrt()


def weight_of(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """g * v / |v|."""
    return v * (g / norm_except(v, dim))


class _Hook:
    """Computes the weight before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def __call__(self, module: Module, args: Any) -> None:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        setattr(module, self.name, weight_of(g, v, self.dim))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learn a weight's length and direction apart, as `weight_g` and `weight_v`. The weight is made before each
    forward. `nn.utils.parametrizations.weight_norm` is the newer way.

    >>> sorted(dict(nn.utils.weight_norm(nn.Linear(2, 3)).named_parameters()))
    ['bias', 'weight_g', 'weight_v']
    """
    if any(isinstance(hook, _Hook) and hook.name == name for hook in module._forward_pre_hooks.values()):
        raise ArgumentError(f"[weight_norm] expected one weight_norm for {name!r} but it has one already")
    weight = module._parameters[name]
    if weight is None:
        raise ArgumentError(f"[weight_norm] expected a parameter as {name!r} but it is None")
    del module._parameters[name]
    with no_grad():
        length = norm_except(weight, dim)
    module.register_parameter(f"{name}_g", Parameter(length))
    module.register_parameter(f"{name}_v", Parameter(weight))
    hook = _Hook(name, dim)
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the weight a plain parameter again.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    >>> sorted(dict(layer.named_parameters()))
    ['bias', 'weight']
    """
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, _Hook) and hook.name == name:
            with no_grad():
                hook(module, ())
            weight = module.__dict__.pop(name)
            for part in ("_g", "_v"):
                del module._parameters[name + part]
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[number]
            return module
    raise ArgumentError(f"[remove_weight_norm] expected a weight_norm of {name!r} but {module} has none")
