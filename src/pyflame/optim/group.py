"""ParamGroup: the hyperparameters of some parameters, as plain numbers and as tensors that a jitted step reads.

A user sees a dict of plain values, as in PyTorch. A tensor that is given for one of them is read before each step, so
that it may change; what the rule does not know stays as it is, as does all that an optimiser with a step of its own
keeps here. What an update rule needs of them (`1 - beta1`, `1 - lr * decay`) is computed on the host in doubles
when a value changes, and lives in 0-d tensors: a jitted step takes those as data, so a schedule never traces it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from pyflame.core.dtype import DType
from pyflame.core.errors import TraceError
from pyflame.core.state import mode, state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor


def plain(value: Any) -> Any:
    """A hyperparameter as plain numbers: tensors of one element become floats."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return type(value)(plain(v) for v in value)
    return value


class ParamGroup(dict[str, Any]):
    """A dict of `params` and hyperparameters. Changing a value takes effect at the next step, jitted or not.

    >>> optimizer.param_groups[0]["lr"] = 1e-4
    """

    def __init__(
        self,
        values: dict[str, Any],
        scalars: Callable[[dict[str, Any]], dict[str, float]],
        changed: Callable[[ParamGroup], None],
        numbers: Container[str],
    ) -> None:
        """`numbers`: the keys whose values are read as plain numbers."""
        self._numbers = numbers
        self._tensors: dict[str, Any] = {}  # what was given for such a key, where it was a tensor or held some
        super().__init__({k: self._stored(k, v) for k, v in values.items()})
        self.steps: Tensor | None = None  # how many updates each parameter has had, where the rule counts them
        self._scalars = scalars
        self._changed = changed
        self._values = scalars(self)
        self._cells: dict[tuple[str, DType], Tensor] = {}

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a copy is a plain dict, as PyTorch's groups are: the optimiser is not copied along

    def scalar(self, name: str, dtype: DType) -> Tensor:
        """One of the numbers that `scalars` derives from this group, as a 0-d tensor that follows it."""
        cell = self._cells.get((name, dtype))
        if cell is None:
            with mode(tracer=None):  # made while tracing, but there before: the trace takes it as state
                cell = self._cells[name, dtype] = tensor(self._values[name], dtype=dtype)
        return cell

    def _stored(self, key: str, value: Any) -> Any:
        self._tensors.pop(key, None)
        number = plain(value) if key in self._numbers else value
        if number is not value:
            self._tensors[key] = value
        return number

    def follow(self) -> None:
        """Read the tensors that were given for numbers again."""
        new = {key: plain(value) for key, value in self._tensors.items()}
        if any(self[key] != value for key, value in new.items()):
            super().update(new)
            self._refresh()

    def _refresh(self) -> None:
        self._changed(self)
        before, self._values = self._values, self._scalars(self)
        for (name, dtype), cell in self._cells.items():
            if self._values[name] != before[name]:
                cell._rebind(tensor(self._values[name], dtype=dtype))

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change values, as dict.update."""
        if state.tracer is not None:
            raise TraceError(
                "[optim] expected hyperparameters to change outside of a jitted function, since inside they would "
                "change once, while it is traced; set them, or call scheduler.step(), after the jitted step"
            )
        for key, value in dict(*args, **kwargs).items():
            listed = isinstance(self.get(key), tuple) and isinstance(value, list)  # JSON has no tuples
            super().__setitem__(key, self._stored(key, tuple(value) if listed else value))
        self._refresh()

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set if it is not there."""
        if key not in self:
            self[key] = default
        return self[key]
