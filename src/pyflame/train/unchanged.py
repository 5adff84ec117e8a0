"""A trial run that leaves no trace: what objects hold is copied to the host before it and put back afterwards.

Copies lie outside of a device's pool, so that what a trial takes of it can be measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentTypeError
from pyflame.nn import Module
from pyflame.optim import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate
from pyflame.train.random_state import RandomState
from pyflame.transform.tree import flatten, is_tensor, rebuild

Restore = Callable[[], object]


@contextlib.contextmanager
def unchanged(objects: Iterable[Any], weights: bool = True) -> Iterator[None]:
    """Put back afterwards what modules, optimisers and other objects with state_dict hold, and the state of the random
    generators. Gradients are set aside meanwhile. `weights=False`: parameters and optimisers do not change.

    >>> with unchanged([model, optimizer]):
    ...     train_step(batch)
    """
    restores = [_random()]
    for value in objects:
        restores += _kept(value, weights)
    try:
        yield
    finally:
        for restore in reversed(restores):  # what two objects share is as it was before the first was looked at
            restore()


def _random() -> Restore:
    generators = RandomState(host=True)
    saved = generators.state_dict()
    return lambda: generators.load_state_dict(saved)


def _kept(value: Any, weights: bool) -> list[Restore]:
    if isinstance(value, Module):
        cells = [*value.buffers(), *(p for p in value.parameters() if weights and p.requires_grad)]
        return [_cells(cells), _gradients(list(value.parameters())), _modes(value)]
    if isinstance(value, Optimizer):
        params = [p for group in value.param_groups for p in group["params"]]
        held = [_cells(params), _state(value)] if weights else []
        return [*held, _gradients(params), _stepped(value)]
    if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
        raise ArgumentTypeError(
            f"[find_batch_size] expected objects with state_dict and load_state_dict to keep but got "
            f"{type(value).__name__}"
        )
    return [_state(value)]


def _cells(cells: list[Tensor]) -> Restore:
    """Tensors by their values, each in its own cell: views and jitted functions go on seeing them there."""
    saved = [np.array(cell.numpy()) for cell in cells]

    def restore() -> None:
        with no_grad():
            for cell, value in zip(cells, saved, strict=True):
                meta = cell._node.meta
                cell._rebind(as_tensor(value, device=meta.device if meta.committed else None).clone())
        evaluate(cells)

    return restore


def _state(value: Any) -> Restore:
    held = value.state_dict()
    tensors: list[Tensor] = []
    flatten(held, tensors, is_tensor)
    saved = rebuild(held, is_tensor, iter([np.array(t.numpy()) for t in tensors]))
    return lambda: value.load_state_dict(saved)


def _gradients(params: list[Tensor]) -> Restore:
    saved = [(p, p.grad) for p in params]
    for p in params:
        p.grad = None

    def restore() -> None:
        for p, grad in saved:
            if grad is not None or p.grad is not None:
                p.grad = grad

    return restore


def _modes(module: Module) -> Restore:
    saved = [(part, part.training) for part in module.modules()]

    def restore() -> None:
        for part, training in saved:
            part.training = training

    return restore


def _stepped(optimizer: Optimizer) -> Restore:
    saved = optimizer.stepped

    def restore() -> None:
        optimizer.stepped = saved

    return restore
