"""From items to a batch: equal leaves are stacked, whatever they are nested in."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import DTypeError, ShapeError
from pyflame.data.memory import empty, host_array, host_leaf
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.dlpack import array_from_dlpack
from pyflame.tensor.modes import eval as evaluate

np_str_obj_array_pattern = re.compile("[SaUO]")  # kinds of arrays that are not numbers; programs import it from PyTorch


def default_collate(batch: Sequence[Any]) -> Any:
    """A list of items as one batch: tensors, arrays and numbers are stacked along a new first axis.

    Dicts, lists, tuples, namedtuples and dataclasses keep their structure (a tuple becomes a list, as in PyTorch);
    strings and bytes stay as they are. Python floats become float64, ints int64, bools bool.

    >>> default_collate([{"x": np.ones(2), "y": 1}, {"x": np.zeros(2), "y": 2}])["y"]
    tensor([1, 2])
    """
    if not isinstance(batch, Sequence) or not batch:
        raise DTypeError(f"[default_collate] expected a list of at least one item but got {batch!r}")
    return _collate(batch, "")


def _collate(batch: Sequence[Any], path: str) -> Any:
    first = batch[0]
    if isinstance(first, Tensor):
        _same(batch, Tensor, path)
        if any(t.requires_grad for t in batch):
            return FUNCTIONS["stack"](list(batch), 0)
        evaluate([t for t in batch if host_leaf(t) is None])
        return _stack([host_array(t) for t in batch], path)
    if isinstance(first, np.ndarray):
        _same(batch, np.ndarray, path)
        return _stack(batch, path)
    if isinstance(first, (bool, int, float)) and not isinstance(first, np.generic):
        return _numbers(batch, path)
    if isinstance(first, np.generic) and first.dtype.kind in "biufV":
        return _stack([np.asarray(v) for v in batch], path)
    if hasattr(first, "__dlpack__"):
        _same(batch, type(first), path)
        return _stack([array_from_dlpack(v) for v in batch], path)
    if isinstance(first, (str, bytes)):
        return batch
    return _nested(batch, first, path)


def _same(batch: Sequence[Any], kind: type, path: str) -> None:
    for number, item in enumerate(batch):
        if not isinstance(item, kind):
            raise DTypeError(
                f"[default_collate] expected items of one kind{_at(path)} but item 0 is {type(batch[0]).__name__} and "
                f"item {number} is {type(item).__name__}; give a collate_fn"
            )


def _nested(batch: Sequence[Any], first: Any, path: str) -> Any:
    def part(values: Sequence[Any], name: object) -> Any:
        return _collate(values, f"{path}[{name!r}]")

    if isinstance(first, Mapping):
        _same(batch, Mapping, path)
        for item in batch:
            if item.keys() != first.keys():
                raise ShapeError(
                    f"[default_collate] expected dicts of equal keys{_at(path)} but got {list(first)} and {list(item)}"
                )
        return like(first, {key: part([item[key] for item in batch], key) for key in first})
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        _same(batch, type(first), path)
        return convert_fields(first, lambda name: part([getattr(item, name) for item in batch], name))
    if isinstance(first, Sequence):
        _same(batch, Sequence, path)
        if any(len(item) != len(first) for item in batch):
            raise ShapeError(
                f"[default_collate] expected sequences of equal length{_at(path)} but got lengths "
                f"{sorted({len(item) for item in batch})}; pad them, or give a collate_fn"
            )
        return _sequence(first, [part(v, number) for number, v in enumerate(zip(*batch, strict=True))])
    raise DTypeError(
        "[default_collate] expected tensors, arrays, numbers, strings, dicts, sequences or dataclasses but got "
        f"{type(first).__name__}{_at(path)}; give a collate_fn"
    )


def convert_fields(item: Any, value: Callable[[str], Any]) -> Any:
    """A copy of a dataclass with another value in each field, frozen or not."""
    out = copy.copy(item)
    for field in dataclasses.fields(item):
        object.__setattr__(out, field.name, value(field.name))
    return out


def _sequence(first: Any, parts: list[Any]) -> Any:
    return parts if type(first) is tuple else like(first, parts)


def like(first: Any, parts: Any) -> Any:
    """The parts in a container of the first one's type; in a plain one where that type is made in another way."""
    if hasattr(first, "_fields"):
        return type(first)(*parts)
    if isinstance(first, MutableMapping):
        out = copy.copy(first)
        out.update(parts)
        return out
    try:
        return type(first)(parts)
    except TypeError:  # such as range
        return parts


def _numbers(batch: Sequence[Any], path: str) -> Tensor:
    kind: Any = np.bool_
    for value in batch:
        if isinstance(value, (float, np.floating)):
            kind = np.float64
            break
        if not isinstance(value, (bool, np.bool_)):
            kind = np.int64
    try:
        out = empty((len(batch),), kind)
        out[...] = batch
        return from_numpy(out)
    except (TypeError, ValueError, OverflowError) as error:
        raise DTypeError(f"[default_collate] expected numbers of 64 bits{_at(path)} but got {error}") from None


def _stack(arrays: Sequence[np.ndarray[Any, Any]], path: str) -> Tensor:
    first = arrays[0]
    for number, array in enumerate(arrays):
        if array.shape != first.shape:
            raise ShapeError(
                f"[default_collate] expected items of equal shape{_at(path)} but item 0 has {first.shape} and item "
                f"{number} has {array.shape}; pad or crop them, or give a collate_fn"
            )
    dtype = first.dtype if all(a.dtype == first.dtype for a in arrays) else np.result_type(*arrays)
    return from_numpy(np.stack(arrays, out=empty((len(arrays), *first.shape), dtype)))


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def default_convert(item: Any) -> Any:
    """One item with its arrays as tensors: what a loader without batching (`batch_size=None`) does.

    >>> default_convert((np.ones(2), "label"))
    [tensor([1., 1.], dtype=pyflame.float64), 'label']
    """
    if isinstance(item, np.ndarray) or (isinstance(item, np.generic) and item.dtype.kind in "biufV"):
        array = np.asarray(item)
        return from_numpy(array) if array.dtype.kind not in "SUO" else item
    if isinstance(item, Mapping):
        return like(item, {key: default_convert(value) for key, value in item.items()})
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return convert_fields(item, lambda name: default_convert(getattr(item, name)))
    if isinstance(item, (list, tuple)):
        return _sequence(item, [default_convert(value) for value in item])
    return item
