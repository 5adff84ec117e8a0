"""Batches in page-locked memory, from which copies to a GPU run while the program goes on (`pin_memory=True`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.state import state
from pyflame.data.collate import convert_fields, like
from pyflame.data.memory import host_leaf
from pyflame.engine.devices import get_device
from pyflame.engine.value import to_numpy
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy

if TYPE_CHECKING:
    from pyflame.engine.devices import GpuDevice


class Pinning:
    """Memory of a device's pinned pool. It returns there when no tensor holds it and the copies from it are done."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An uninitialised array for a part of a batch."""
        return self._device.pinned_empty(shape, dtype)

    def pin(self, batch: Any) -> Any:
        """The same batch with its tensors in pinned memory. Those that are there already, or computed, are left."""
        if isinstance(batch, Tensor):
            return self._tensor(batch)
        if isinstance(batch, Mapping):
            parts = {key: self.pin(value) for key, value in batch.items()}
            return batch if all(parts[key] is batch[key] for key in parts) else like(batch, parts)
        if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
            return convert_fields(batch, lambda name: self.pin(getattr(batch, name)))
        if isinstance(batch, (list, tuple)):
            items = [self.pin(value) for value in batch]
            return batch if all(a is b for a, b in zip(items, batch, strict=True)) else like(batch, items)
        return batch

    def _tensor(self, tensor: Tensor) -> Tensor:
        leaf = None if tensor.requires_grad else host_leaf(tensor)
        if leaf is None or not leaf.meta.nbytes:
            return tensor
        meta, value = leaf.meta, leaf.data
        if value.strides is None and self._device.is_pinned(value.address, meta.nbytes):
            return tensor
        out = self.empty(meta.shape, meta.dtype.numpy)
        out[...] = to_numpy(value, meta.shape, meta.dtype)
        return from_numpy(out)


def pinning() -> Pinning | None:
    """Pinned memory of the current device. The CPU has none and needs none."""
    device = get_device(state.device)
    return None if device.gpu is None else Pinning(device.gpu)


def pin_memory(data: Any, device: Any = None) -> Any:
    """A batch with its tensors in page-locked memory of the current GPU; the same one where there is none."""
    memory = pinning()
    return data if memory is None else memory.pin(data)
