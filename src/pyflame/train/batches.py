"""What a batch is: a tensor, a tuple or list of inputs with the target last, or a dict with the target under a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, ArgumentTypeError, type_name
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.transform.tree import flatten, is_tensor, rebuild


def is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def prepared(batch: Any, device: object) -> Any:
    """The batch with arrays as tensors, on the device."""
    leaves: list[Any] = []
    flatten(batch, leaves, is_array)
    if device is None and all(isinstance(v, Tensor) for v in leaves):
        return batch
    return rebuild(batch, is_array, iter([as_tensor(v, device=device) for v in leaves]))


def items_in(batch: Any) -> int:
    """The length of the first axis of the first tensor."""
    leaves: list[Tensor] = []
    flatten(batch, leaves, is_tensor)
    if not leaves:
        raise ArgumentTypeError(f"[Trainer] expected batches with tensors but got {type_name(batch)}")
    return leaves[0].shape[0] if leaves[0].ndim else 1


def length_of(data: Any) -> int | None:
    """How many batches there are; None if the data does not know, as a loader of a stream."""
    try:
        return len(data)
    except TypeError:
        return None


def call(model: Any, inputs: Any) -> Any:
    """The model with these inputs: positional from a tuple or list, by name from a dict."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def split(batch: Any, target_key: str) -> tuple[Any, Any]:
    """(inputs, target) of a batch."""
    if isinstance(batch, dict):
        if target_key not in batch:
            raise ArgumentError(
                f"[Trainer] expected the target under {target_key!r} in a batch but got {', '.join(map(str, batch))}; "
                "name it with target_key="
            )
        return {k: v for k, v in batch.items() if k != target_key}, batch[target_key]
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return tuple(batch[:-1]), batch[-1]
    raise ArgumentTypeError(
        f"[Trainer] expected batches of inputs and a target, (x, y) or a dict, but got {type(batch).__name__}; without "
        "loss_fn the model gets the whole batch and returns the loss"
    )


def computed(model: Any, loss_fn: Any, batch: Any, target_key: str) -> tuple[Any, Any, Any]:
    """(loss, prediction, target) of a batch. Without a loss function the model gives the first, or the first two."""
    if loss_fn is None:
        out = call(model, batch)
        loss, prediction = out if isinstance(out, tuple) else (out, None)
        return loss, prediction, None
    inputs, target = split(batch, target_key)
    prediction = call(model, inputs)
    return loss_fn(prediction, target), prediction, target


def joined(parts: Sequence[Any]) -> Any:
    """Predictions of several batches as one: tensors are put together along their first axis."""
    first: list[Tensor] = []
    flatten(parts[0], first, is_tensor)
    columns: list[list[Tensor]] = [[] for _ in first]
    for part in parts:
        leaves: list[Tensor] = []
        flatten(part, leaves, is_tensor)
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    return rebuild(parts[0], is_tensor, iter([FUNCTIONS["cat"](column) for column in columns]))
