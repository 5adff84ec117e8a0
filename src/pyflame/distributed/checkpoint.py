"""Checkpoints of many processes: one file with whole tensors, so that any number of processes can go on from it.

Parts are gathered one wrapper at a time; the first process writes the file, whole or not at all. Each process reads
what it needs of the file, which is mapped into memory.
"""

from __future__ import annotations

import os
from typing import Any

from pyflame.collectives.ops import barrier
from pyflame.collectives.world import get_rank, is_initialized
from pyflame.core.errors import NotSupportedError
from pyflame.distributed.fully_sharded import FullyShardedDataParallel, divided, load_whole_state, whole_state
from pyflame.distributed.tensor_parallel import ParallelLayer
from pyflame.io.state import load, save
from pyflame.nn.module import Module
from pyflame.nn.parallel import DistributedDataParallel
from pyflame.optim.optimizer import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor

# By the id of a parameter's part: the wrapper that divides it, and the shape of the whole.
Divided = dict[int, tuple[FullyShardedDataParallel, tuple[int, ...]]]


def _plain(model: Module) -> Module:
    """The model itself: names in the file do not depend on how it was trained."""
    model = model.module if isinstance(model, DistributedDataParallel) else model
    for name, part in model.named_modules():
        if isinstance(part, ParallelLayer) and part.many:
            raise NotSupportedError(
                f"[checkpoint] expected layers that are whole or wrapped but {name!r} is divided by itself; save "
                "model.state_dict() of each process with pf.save"
            )
    return model


def save_checkpoint(
    path: str | os.PathLike[str], model: Module, optimizer: Optimizer | None = None, **extra: Any
) -> None:
    """Write model, optimiser and `extra` values to one file. Every process must call this; all return when it is there.

    >>> pf.distributed.save_checkpoint("run.safetensors", model, optimizer, step=3)
    """
    plain = _plain(model)
    state: dict[str, Any] = {"model": whole_state(plain), "extra": extra}
    if optimizer is not None:
        state["optimizer"] = _whole_optimizer(optimizer, _divided(plain))
    if not is_initialized() or get_rank() == 0:
        save(state, path)
    if is_initialized():
        barrier()


def load_checkpoint(path: str | os.PathLike[str], model: Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Go on from what save_checkpoint wrote, on any number of processes and under any wrapper. Gives the extra values.

    >>> pf.distributed.load_checkpoint("run.safetensors", model, optimizer)
    {'step': 3}
    """
    state = load(path)
    plain = _plain(model)
    load_whole_state(plain, state["model"])
    if optimizer is not None:
        optimizer.load_state_dict(_own_part(state["optimizer"], optimizer, _divided(plain)))
    return dict(state["extra"])


def _divided(model: Module) -> Divided:
    found: Divided = {}
    for cell, unit in divided(model).values():
        if unit is not None:
            shapes = dict(zip(map(id, unit.parts()), unit.shapes.values(), strict=True))
            found[id(cell)] = (unit, shapes[id(cell)])
    return found


def _params(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _whole_optimizer(optimizer: Optimizer, parts: Divided) -> dict[str, Any]:
    """The optimiser's state with whole tensors where parameters are divided."""
    saved = optimizer.state_dict()
    for position, p in enumerate(_params(optimizer)):
        if id(p) in parts:
            unit, shape = parts[id(p)]
            for name, value in saved["state"].get(position, {}).items():
                if name != "step" and value.shape == p.shape:
                    saved["state"][position][name] = unit.whole([value], [shape])[0]
    return saved


def _own_part(saved: dict[str, Any], optimizer: Optimizer, parts: Divided) -> dict[str, Any]:
    """What this process has of a whole state."""
    states = {int(key): dict(value) for key, value in saved["state"].items()}
    for position, p in enumerate(_params(optimizer)):
        if id(p) in parts:
            unit, shape = parts[id(p)]
            for name, value in states.get(position, {}).items():
                if name != "step" and tuple(value.shape) == shape:
                    states[position][name] = unit.part(as_tensor(value))
    return {**saved, "state": states}
