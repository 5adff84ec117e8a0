"""torch.utils._foreach_utils by its path: what optimisers written elsewhere use before the `_foreach_` functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.tensor import Tensor

Grouped = tuple[list[list[Tensor | None]], list[int]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Any, Any], Grouped]:
    """Lists of equal length, divided by the device and dtype of the first one's tensors, with their places in it."""
    groups: dict[tuple[Any, Any], Grouped] = {}
    for index, row in enumerate(zip(*tensorlistlist, strict=True)):
        if (first := row[0]) is None:
            continue
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in row], []))
        for values, value in zip(lists, row, strict=True):
            values.append(value)
        if with_indices:
            indices.append(index)
    return groups
