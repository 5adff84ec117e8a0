"""Checkpoints of many processes: one file with whole tensors, so that any number of processes can go on from it.

Parts are gathered one parameter at a time; the first process writes the file, whole or not at all. Each process reads
what it needs of the file, which is mapped into memory.
"""

from __future__ import annotations

import os
from typing import Any

from pyflame.collectives.ops import barrier
from pyflame.collectives.world import get_rank, is_initialized
from pyflame.core.errors import NotSupportedError
from pyflame.distributed.division import divisions_of, part_of, whole_of, whole_shape_of
from pyflame.distributed.fully_sharded import load_whole_state, whole_state
from pyflame.io.state import load, save
from pyflame.nn.module import Module
from pyflame.nn.parallel import DistributedDataParallel
from pyflame.optim.optimizer import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor

__path__: list[str] = []  # torch has files below this path, and core/torch_paths.py finds them


def _plain(model: Module) -> Module:
    """The model itself: names in the file do not depend on how it was trained."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def full_state_dict(model: Module) -> dict[str, Tensor]:
    """Whole parameters and buffers of a model that is divided in any way, by the names it would have in one process.

    Every process must call this. What it gives is an ordinary state dict: `pf.save` it from one process.

    >>> layer = pf.distributed.ColumnParallelLinear(4, 6)
    >>> pf.distributed.full_state_dict(layer)["weight"].shape
    (6, 4)
    """
    return whole_state(_plain(model))


def load_full_state_dict(model: Module, state_dict: dict[str, Tensor]) -> None:
    """Take this process's parts of whole parameters and buffers, whatever number of processes they come from.

    >>> layer = pf.distributed.ColumnParallelLinear(4, 6)
    >>> pf.distributed.load_full_state_dict(layer, nn.Linear(4, 6).state_dict())
    """
    load_whole_state(_plain(model), state_dict)


def save_checkpoint(
    path: str | os.PathLike[str], model: Module, optimizer: Optimizer | None = None, **extra: Any
) -> None:
    """Write model, optimiser and `extra` values to one file. Every process must call this; all return when it is there.

    >>> pf.distributed.save_checkpoint("run.safetensors", model, optimizer, step=3)
    """
    state: dict[str, Any] = {"model": full_state_dict(model), "extra": extra}
    if optimizer is not None:
        state["optimizer"] = _whole_optimizer(optimizer)
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
    load_full_state_dict(model, state["model"])
    if optimizer is not None:
        optimizer.load_state_dict(_own_part(state["optimizer"], optimizer))
    return dict(state["extra"])


def _params(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _whole_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """The optimiser's state with whole tensors where parameters are divided."""
    saved = optimizer.state_dict()
    for position, p in enumerate(_params(optimizer)):
        own = saved["state"].get(position, {})
        for name in _divided_values(p, own, tuple(p.shape)):
            own[name] = whole_of(p, own[name])
    return saved


def _own_part(saved: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """What this process has of a whole state."""
    states = {int(key): dict(value) for key, value in saved["state"].items()}
    for position, p in enumerate(_params(optimizer)):
        own = states.get(position, {})
        for name in _divided_values(p, own, whole_shape_of(p)):
            own[name] = part_of(p, as_tensor(own[name]))
    return {**saved, "state": states}


def _divided_values(p: Tensor, state: dict[str, Any], shape: tuple[int, ...]) -> list[str]:
    """The names of what a divided parameter's state has for each element; its other values must be single numbers."""
    if not divisions_of(p):
        return []
    named = []
    for name, value in state.items():
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if got == shape and name != "step":
            named.append(name)
        elif isinstance(value, (list, tuple, dict)) or (isinstance(value, Tensor) and value.numel() != 1):
            raise NotSupportedError(
                f"[checkpoint] expected optimiser state {name!r} of one value, or of its divided parameter's shape "
                f"{shape}, but got {got}; save optimizer.state_dict() of each process with pf.save"
            )
    return named
