"""State dicts: the values of a module by name, in PyTorch's names and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyflame.core.errors import ArgumentTypeError, StateDictError
from pyflame.nn.parameter import replace, settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.gradients import no_grad

if TYPE_CHECKING:
    from pyflame.nn.module import Module


class IncompatibleKeys(NamedTuple):
    """Names that the module has and the dict has not, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def entries(module: Module, prefix: str = "") -> Iterator[tuple[str, Tensor, bool]]:
    """(name, cell, may be missing in a file) of all that is saved, in the order of PyTorch. Tied cells come twice."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter, False
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, buffer, name in module._optional_state
    for name, child in module._modules.items():
        if child is not None:
            yield from entries(child, f"{prefix}{name}.")


def read(name: str, value: Any) -> Tensor:
    """A value of a state dict as a tensor: ours, NumPy's, or one of a library that shares memory (torch)."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic, int, float, bool, list, tuple)):
        return tensor(value)
    if hasattr(value, "__dlpack__"):
        # torch hands out neither what has a tape nor what lies on a GPU
        value = value.detach() if hasattr(value, "detach") else value
        return tensor(value.cpu() if hasattr(value, "cpu") else value)
    if hasattr(value, "__array__"):
        return tensor(np.asarray(value))
    raise ArgumentTypeError(
        f"[load_state_dict] expected a tensor or an array as {name!r} but got {type(value).__name__}"
    )


def load(module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """Copy the values into the module's cells: all of them, or none if any does not fit."""
    if not isinstance(state_dict, Mapping):
        raise ArgumentTypeError(
            f"[load_state_dict] expected a dict of names and tensors but got {type(state_dict).__name__}"
        )
    wanted = list(entries(module))
    names = {name for name, _, _ in wanted}
    missing = [name for name, _, optional in wanted if name not in state_dict and not optional]
    unexpected = [name for name in state_dict if name not in names]
    pairs = [(name, cell, read(name, state_dict[name])) for name, cell, _ in wanted if name in state_dict]
    problems = [
        f"size mismatch for {name}: the dict has shape {value.shape}, the module {cell.shape}"
        for name, cell, value in pairs
        if value.shape != cell.shape
    ]
    way_out = "leave out the names of other sizes" if problems else "pass strict=False to load the names that fit"
    if strict and unexpected:
        problems.insert(0, f"unexpected key(s): {', '.join(map(repr, unexpected))}")
    if strict and missing:
        problems.insert(0, f"missing key(s): {', '.join(map(repr, missing))}")
    if problems:
        listed = "\n  ".join(problems)
        raise StateDictError(
            f"[load_state_dict] expected a state dict of {type(module).__name__} but got one that does not fit:\n"
            f"  {listed}\nnothing was loaded; {way_out}"
        )
    for _, cell, value in pairs:
        if assign:
            replace(cell, value)
        else:
            with no_grad():
                cell.copy_(value)
    settle(cell for _, cell, _ in pairs)
    return IncompatibleKeys(missing, unexpected)
