"""Layers of torch.nn as the layers of the same name in pyflame.nn.

torch's layers keep the arguments they were made with as attributes, and ours have the same arguments, so most need no
rule. The copied state dict is the proof: other names or shapes are an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from pyflame import nn
from pyflame.bridge.torch.crossing import copied, dtype_of
from pyflame.core.errors import StateDictError

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


class NotByClass(Exception):
    """Why a module cannot be converted by its class."""


def by_class(module: torch.nn.Module) -> tuple[nn.Module | None, str]:
    """The module as ours, or None and why not."""
    try:
        made = _made(module)
    except NotByClass as why:
        return None, str(why)
    _copy_state(made, module)
    return made, ""


def _made(module: torch.nn.Module) -> nn.Module:
    kind = type(module)
    ours = getattr(nn, kind.__name__, None)
    if not kind.__module__.startswith("torch.nn.modules.") or not isinstance(ours, type):
        raise NotByClass(f"{kind.__module__}.{kind.__name__} is no layer of torch.nn that pyflame.nn has")
    if _has_hooks(module):
        raise NotByClass(f"{kind.__name__} has hooks or parametrizations")
    if kind.__name__ in _CONTAINERS:
        children = {name: _made(child) for name, child in module.named_children()}
        return ours(children) if kind.__name__ == "ModuleDict" else _filled(ours, list(children.values()))
    special = _SPECIAL.get(kind.__name__)
    return ours(**(special(module) if special else _arguments(module, ours)))  # type: ignore[no-any-return]


def _filled(ours: type, children: list[nn.Module]) -> nn.Module:
    return ours(*children) if ours is nn.Sequential else ours(children)


def _has_hooks(module: torch.nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, hasattr(module, "parametrizations")))


def _arguments(module: torch.nn.Module, ours: type) -> dict[str, Any]:
    """What the layer was made with, read off its attributes."""
    found: dict[str, Any] = {}
    names = [*inspect.signature(type(module).__init__).parameters][1:]
    for name in names:
        if name in ("device", "dtype", "args", "kwargs") or name.startswith("_") or not hasattr(module, name):
            continue
        value = getattr(module, name)
        if name == "bias" and not isinstance(value, bool):
            value = value is not None
        found[name] = value
    known = inspect.signature(ours).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    unknown = [n for n in found if n not in known and not takes_all]
    if unknown:
        raise NotByClass(f"pyflame.nn.{ours.__name__} has no argument {unknown[0]!r}")
    return found


def _attention_arguments(module: Any) -> dict[str, Any]:
    return {
        "embed_dim": module.embed_dim,
        "num_heads": module.num_heads,
        "dropout": module.dropout,
        "bias": module.in_proj_bias is not None,
        "add_bias_kv": module.bias_k is not None,
        "add_zero_attn": module.add_zero_attn,
        "kdim": module.kdim,
        "vdim": module.vdim,
        "batch_first": module.batch_first,
    }


def _recurrent_arguments(module: Any) -> dict[str, Any]:
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    found = {name: getattr(module, name) for name in names}
    if type(module) is torch.nn.RNN:
        found["nonlinearity"] = module.nonlinearity
    if getattr(module, "proj_size", 0):
        found["proj_size"] = module.proj_size
    return found


def _prelu_arguments(module: Any) -> dict[str, Any]:
    return {"num_parameters": module.num_parameters}


_SPECIAL: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MultiheadAttention": _attention_arguments,
    "RNN": _recurrent_arguments,
    "LSTM": _recurrent_arguments,
    "GRU": _recurrent_arguments,
    "PReLU": _prelu_arguments,
}


def _copy_state(ours: nn.Module, module: torch.nn.Module) -> None:
    """Values, dtypes, which parameters are trained, and the mode."""
    theirs = module.state_dict()
    mine = ours.state_dict()
    if [*theirs] != [*mine] and sorted(theirs) != sorted(mine):
        raise StateDictError(f"[convert] expected the names {sorted(theirs)} but pyflame.nn has {sorted(mine)}")
    kinds = {t.dtype for t in theirs.values() if t.is_floating_point()}
    if len(kinds) == 1:
        ours.to(dtype_of(kinds.pop()))
    ours.load_state_dict({name: copied(t) for name, t in theirs.items()})
    trained = dict(module.named_parameters())
    for name, parameter in ours.named_parameters():
        parameter.requires_grad_(trained[name].requires_grad)
    modes = dict(module.named_modules())
    for name, part in ours.named_modules():
        if name in modes:
            part.training = modes[name].training
