"""Modules as functions of their parameters: torch.func's functional_call and stack_module_state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyflame.core.errors import ArgumentError, ArgumentTypeError, suggest, type_name
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS

State = dict[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What a module gives with other parameters and buffers, named as in `named_parameters()`; it keeps its own.

    A parameter that has several names is replaced under all of them, unless `tie_weights` is False. With `strict` all
    parameters and buffers must be given.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> pf.func.functional_call(layer, {"weight": pf.tensor([[1.0, 2.0]])}, pf.ones(2))
    tensor([3.])
    """
    dicts = (
        [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, Mapping) else parameter_and_buffer_dicts
    )
    given: State = {}
    for part in dicts:
        for name in part:
            if name in given:
                raise ArgumentError(f"[functional_call] expected each name once but got {name!r} twice")
        given |= part
    places = _places(module)
    _check(places, given, strict)
    with _replaced(places, given, tie_weights):
        return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))


Places = dict[str, tuple[dict[str, Any], str]]


def _places(module: Module) -> Places:
    """Name -> the dict and the key under which a module holds it; every name of a shared one."""
    found: Places = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for group in (part._parameters, part._buffers):
            for key, value in group.items():
                if value is not None:
                    found[f"{prefix}.{key}" if prefix else key] = (group, key)
    return found


def _check(places: Places, given: State, strict: bool) -> None:
    for name, value in given.items():
        if name not in places:
            raise ArgumentError(
                f"[functional_call] expected names of parameters and buffers but got {name!r}{suggest(name, places)}"
            )
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"[functional_call] expected a tensor as {name!r} but got {type_name(value)}")
    left = sorted(places.keys() - given.keys())
    if strict and left:
        raise ArgumentError(
            f"[functional_call] expected all parameters and buffers, since strict, but {left} are missing"
        )


@contextmanager
def _replaced(places: Places, given: State, tie_weights: bool) -> Iterator[None]:
    """Tensors in the places of a module's own. What the module assigns to its buffers meanwhile goes to those given."""
    values = {id(group[key]): given[name] for name, (group, key) in places.items() if name in given}
    held = {name: group[key] for name, (group, key) in places.items()}
    try:
        for name, (group, key) in places.items():
            if name in given:
                group[key] = given[name]
            elif tie_weights and id(held[name]) in values:
                group[key] = values[id(held[name])]
        yield
    finally:
        for name, (group, key) in places.items():
            group[key] = held[name]


def stack_module_state(models: Sequence[Module]) -> tuple[State, State]:
    """The parameters and the buffers of modules of one kind, stacked along a new first axis, as leaves of their own.

    >>> params, buffers = pf.func.stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> params["weight"].shape
    (4, 3, 2)
    """
    if not models:
        raise ArgumentError("[stack_module_state] expected at least one module but got none")
    if len({(type(m), m.training) for m in models}) > 1:
        raise ArgumentError("[stack_module_state] expected modules of one class, all in train or all in eval mode")
    params = {
        name: _stacked(name, [dict(m.named_parameters()) for m in models]) for name, _ in models[0].named_parameters()
    }
    buffers = {name: _stacked(name, [dict(m.named_buffers()) for m in models]) for name, _ in models[0].named_buffers()}
    return params, buffers


def _stacked(name: str, states: list[dict[str, Any]]) -> Tensor:
    parts = [state[name] for state in states]
    stacked: Tensor = FUNCTIONS["stack"]([p.detach() for p in parts])
    return stacked.requires_grad_(parts[0].requires_grad)
