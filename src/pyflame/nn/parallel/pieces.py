"""A model on several devices of one process, piece by piece: parts of a batch, copies of a module, results together.

All of it is on the tape: gradients come back to the tensors and to the module that were given.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from pyflame.core.errors import ArgumentError, type_name
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.devices import device as on_device


def _named(device: Any) -> Any:
    """A device; a number is that of a GPU."""
    return f"cuda:{device}" if isinstance(device, int) and not isinstance(device, bool) else device


def _rebuilt(like: Any, parts: Any) -> Any:
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """For each device a part of the tensors along an axis, within lists, tuples and dicts; what is no tensor goes to
    all. There are fewer parts than devices where a batch is too small.

    >>> [part.shape for part in nn.parallel.scatter(pf.ones(3, 2), ["cpu", "cpu"])]
    [(2, 2), (1, 2)]
    """
    if isinstance(inputs, Tensor):
        chunks = inputs.chunk(len(target_gpus), dim)
        return tuple(c.to(device=_named(d)) for c, d in zip(chunks, target_gpus, strict=False))
    if isinstance(inputs, (tuple, list)) and inputs:
        parts = zip(*(scatter(value, target_gpus, dim) for value in inputs), strict=False)
        return [_rebuilt(inputs, part) for part in parts]
    if isinstance(inputs, dict) and inputs:
        parts = zip(*(scatter(value, target_gpus, dim) for value in inputs.values()), strict=False)
        return [type(inputs)(zip(inputs, part, strict=True)) for part in parts]
    return [inputs for _ in target_gpus]


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Results of several devices as one, on one device: tensors joined along an axis, single numbers as a vector.

    >>> nn.parallel.gather([pf.ones(2), pf.zeros(1)], "cpu")
    tensor([1., 1., 0.])
    """
    first, target = outputs[0], _named(target_device)
    if isinstance(first, Tensor):
        if all(t.ndim == 0 for t in outputs):
            warnings.warn("[gather] single numbers were gathered: they are given as a vector", stacklevel=2)
            return F["stack"]([t.to(device=target) for t in outputs])
        return F["cat"]([t.to(device=target) for t in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(set(out) != set(first) for out in outputs):
            raise ArgumentError("[gather] expected dicts with the same keys from all devices")
        return type(first)((key, gather([out[key] for out in outputs], target_device, dim)) for key in first)
    if isinstance(first, (tuple, list)):
        parts = (gather(column, target_device, dim) for column in zip(*outputs, strict=True))
        return _rebuilt(first, parts)
    raise ArgumentError(f"[gather] expected tensors, lists, tuples or dicts but got {type_name(first)}")


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of a module for each device. Their weights are computed from the module's, so gradients come back to it,
    unless `detach`; they are no parameters of their own.

    >>> layer = nn.Linear(2, 1)
    >>> nn.parallel.replicate(layer, ["cpu"])[0](pf.ones(1, 2)).sum().backward()
    >>> layer.bias.grad
    tensor([1.])
    """
    return [_replica(network, _named(d), detach) for d in devices]


def _replica(network: Module, device: Any, detach: bool) -> Module:
    moved: dict[int, Tensor] = {}  # weights that are shared stay so
    made: dict[int, Module] = {}

    def there(t: Tensor) -> Tensor:
        if id(t) not in moved:
            value = t.to(device=device)
            moved[id(t)] = value.detach() if detach else value.clone()
        return moved[id(t)]

    for module in network.modules():
        copy = made[id(module)] = type(module).__new__(type(module))
        own = dict(vars(module))
        own["_parameters"] = {name: None for name, p in module._parameters.items() if p is None}
        own["_buffers"] = {name: b if b is None else b.to(device=device) for name, b in module._buffers.items()}
        own.update({name: there(p) for name, p in module._parameters.items() if p is not None})
        vars(copy).update(own)
    for module in network.modules():
        children = {name: None if m is None else made[id(m)] for name, m in module._modules.items()}
        vars(made[id(module)])["_modules"] = children
    return made[id(network)]


def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """modules[i](*inputs[i], **kwargs_tup[i]) for each i. Calls build graphs only: devices work side by side when the
    results are asked for.

    >>> nn.parallel.parallel_apply([pf.sin, pf.exp], [pf.zeros(1), pf.zeros(1)])
    [tensor([0.]), tensor([1.])]
    """
    count = len(modules)
    named = [dict[str, Any]() for _ in modules] if kwargs_tup is None else list(kwargs_tup)
    places: list[Any] = [None] * count if devices is None else list(devices)
    if not len(inputs) == len(named) == len(places) == count:
        raise ArgumentError(
            f"[parallel_apply] expected inputs, kwargs and devices for {count} modules but got {len(inputs)}, "
            f"{len(named)} and {len(places)}"
        )
    results = []
    for module, given, kwargs, place in zip(modules, inputs, named, places, strict=True):
        with nullcontext() if place is None else on_device(_named(place)):
            results.append(module(*(given if isinstance(given, (list, tuple)) else (given,)), **kwargs))
    return results
