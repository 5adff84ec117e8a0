"""A plan bound to torch's memory: it reads arguments where they lie and writes results into tensors of torch's.

Dynamo's guards fix what a plan relies on, so a call makes no tensors of ours: it collects addresses and starts the
launches. On a GPU they go to torch's current stream, so that its order is the order of everybody's work: nothing waits,
and torch's allocator may give memory away as usual, for work that comes behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch

from pyflame.bridge.torch.crossing import DISGUISED, torch_dtype_of
from pyflame.core.dtype import DType, uint8
from pyflame.core.shape import contiguous_strides, inverse
from pyflame.engine.devices import cpu
from pyflame.transform.direct import Direct, Result

LARGE = 128 << 10  # bytes from where malloc asks the system for pages, which cost more than our pool's do

Order = tuple[int, ...]
Maker = Callable[[], torch.Tensor]


class _Exported:
    """Lets NumPy see a block of the CPU's pool, and keeps it."""

    def __init__(self, block: Any, interface: dict[str, Any]) -> None:
        self.block = block
        self.__array_interface__ = {**interface, "data": (block.address, False)}


def _maker(shape: Sequence[int], strides: Sequence[int], dtype: DType, device: torch.device) -> Maker:
    """Makes tensors of this layout."""
    kind, nbytes = torch_dtype_of(dtype), prod(shape) * dtype.itemsize
    shape, strides = tuple(shape), tuple(strides)
    if device.type != "cpu" or nbytes < LARGE:
        quick = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None)  # inductor's own
        if quick is not None:
            return partial(quick, shape, strides, kind)
        return partial(torch.empty_strided, shape, strides, dtype=kind, device=device)
    disguise = DISGUISED.get(dtype)
    interface = {
        "version": 3,
        "shape": shape,
        "strides": tuple(s * dtype.itemsize for s in strides),
        "typestr": np.dtype(disguise or dtype.numpy).str,
    }

    def pooled() -> torch.Tensor:
        made = torch.from_numpy(np.asarray(_Exported(cpu().allocate(nbytes), interface)))
        return made if disguise is None else made.view(kind)

    return pooled


class Bound:
    """A plan and how to make its results. `orders`: of each result, the axes by which the plan's lie in torch's."""

    def __init__(self, plan: Direct, orders: Sequence[Order | None], device: torch.device) -> None:
        self.plan = plan
        whole: dict[int, int] = {}  # memory -> the result that is all of it
        for number, result in enumerate(plan.results):
            if _is_whole(result, plan):
                whole.setdefault(result.slot, number)
        self.makers = [
            self._whole(plan.results[whole[slot]].meta, orders[whole[slot]], device)
            if slot in whole
            else _maker((size,), (1,), uint8, device)
            for slot, size in enumerate(plan.sizes)
        ]
        # of each result: the memory that it is, or how to copy it
        self._results = [
            (r.slot, None) if whole.get(r.slot) == n else (r.slot, (r, orders[n])) for n, r in enumerate(plan.results)
        ]

    @property
    def slots(self) -> list[int] | None:
        """Of each result the memory that it is; None: some are copied out of it."""
        slots = [slot for slot, copied in self._results if copied is None]
        return slots if len(slots) == len(self._results) else None

    @staticmethod
    def _whole(meta: Any, order: Order | None, device: torch.device) -> Maker:
        """Makes a result: row-major in the plan's order of axes, seen in torch's."""
        strides = contiguous_strides(meta.shape)
        back = range(len(strides)) if order is None else inverse(order)
        return _maker([meta.shape[a] for a in back], [strides[a] for a in back], meta.dtype, device)

    def run(self, addresses: Sequence[int], leaves: list[Any]) -> list[torch.Tensor]:
        """Run it on arguments at these addresses."""
        memory = [make() for make in self.makers]
        self.plan.run(addresses, [m.data_ptr() for m in memory], leaves)
        return [memory[slot] if copied is None else _copied(*copied, memory, leaves) for slot, copied in self._results]


def _is_whole(result: Result, plan: Direct) -> bool:
    """Whether a result is all of a piece of memory."""
    nbytes = prod(result.meta.shape) * result.meta.dtype.itemsize
    return (
        result.argument is None and not result.offset and result.strides is None and nbytes == plan.sizes[result.slot]
    )


def _copied(result: Result, order: Order | None, memory: list[torch.Tensor], leaves: list[Any]) -> torch.Tensor:
    """A result that is a part of something else, or an argument: torch may write to either."""
    source = memory[result.slot] if result.argument is None else leaves[result.argument]
    kind = torch_dtype_of(result.meta.dtype)
    if source.dtype is not kind:
        source = source.view(kind)
    shape = result.meta.shape
    strides = contiguous_strides(shape) if result.strides is None else result.strides
    first = source.storage_offset() + result.offset // kind.itemsize
    flipped = [axis for axis, stride in enumerate(strides) if stride < 0]  # which torch's strides cannot say
    first += sum(strides[axis] * max(shape[axis] - 1, 0) for axis in flipped)
    view = source.as_strided(shape, [abs(s) for s in strides], first)
    out = view.flip(flipped).contiguous() if flipped else view.clone(memory_format=torch.contiguous_format)
    return out.permute(inverse(order)) if order else out
