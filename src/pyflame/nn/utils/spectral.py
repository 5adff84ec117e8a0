"""Spectral normalisation: a weight divided by its largest singular value, which power iteration estimates."""

from __future__ import annotations

from typing import Any, TypeVar

from pyflame.core.errors import ArgumentError
from pyflame.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from pyflame.nn.functional.activations import normalize
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad

M = TypeVar("M", bound=Module)


def default_dim(module: Module) -> int:
    """The axis of a layer's outputs in its weight."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """(outputs, everything else)."""
    first = dim % weight.ndim
    if first:
        weight = F["permute"](weight, (first, *(a for a in range(weight.ndim) if a != first)))
    return weight.flatten(1)


def unit(length: int, like: Tensor, eps: float) -> Tensor:
    """A random direction."""
    return normalize(like.detach().new_empty(length).normal_(), dim=0, eps=eps)


def iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float) -> None:
    """Turn u and v towards the largest singular vectors: v by u, then u by v."""
    with no_grad():
        for _ in range(count):
            v.copy_(normalize(matrix.T @ u, dim=0, eps=eps))
            u.copy_(normalize(matrix @ v, dim=0, eps=eps))


def sigma_of(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u · (W v). The vectors count as constants."""
    return F["dot"](u.detach(), matrix @ v.detach())


class _Hook:
    """Computes the weight before each forward; in training after some iterations."""

    def __init__(self, name: str, count: int, dim: int, eps: float) -> None:
        self.name, self.count, self.dim, self.eps = name, count, dim, eps

    def __call__(self, module: Module, args: Any) -> None:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if module.training:
            iterate(matrix, u, v, self.count, self.eps)
        setattr(module, self.name, weight / sigma_of(matrix, u, v))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divide a weight by its largest singular value before each forward. The weight itself is `weight_orig`.

    `nn.utils.parametrizations.spectral_norm` is the newer way.

    >>> sorted(nn.utils.spectral_norm(nn.Linear(2, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"[spectral_norm] expected n_power_iterations of at least 1 but got {n_power_iterations}")
    weight = module._parameters.get(name)
    if weight is None:
        raise ArgumentError(f"[spectral_norm] expected a parameter as {name!r} but the module has none")
    axis = default_dim(module) if dim is None else dim
    matrix = as_matrix(weight.detach(), axis)
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", unit(matrix.shape[0], weight, eps))
    module.register_buffer(f"{name}_v", unit(matrix.shape[1], weight, eps))
    setattr(module, name, weight.detach())
    module.register_forward_pre_hook(_Hook(name, n_power_iterations, axis, eps))
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the weight a plain parameter again, of the value it has.

    >>> sorted(nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 3))).state_dict())
    ['bias', 'weight']
    """
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, _Hook) and hook.name == name:
            weight, u, v = (getattr(module, f"{name}_{part}") for part in ("orig", "u", "v"))
            with no_grad():
                value = weight / sigma_of(as_matrix(weight, hook.dim), u, v)
            module.__dict__.pop(name)
            del module._parameters[f"{name}_orig"], module._buffers[f"{name}_u"], module._buffers[f"{name}_v"]
            module.register_parameter(name, Parameter(value))
            del module._forward_pre_hooks[number]
            return module
    raise ArgumentError(f"[remove_spectral_norm] expected a spectral_norm of {name!r} but {module} has none")
