"""Averages of parameters over training, which often generalise better than the last ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.dtype import float64
from pyflame.core.errors import ArgumentError, StateDictError
from pyflame.core.state import mode, state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.modes import eval as evaluate


class WeightAverage:
    """A running average of parameters: exponential with `decay`, or of equal weights (SWA) where that is None.

    The first update takes the parameters as they are; `update()` may stand inside of a jitted step.

    >>> average = optim.WeightAverage(model.parameters(), decay=0.999)
    >>> average.update()
    >>> with average.applied():
    ...     evaluate(model)
    """

    def __init__(self, params: Iterable[Tensor], decay: float | None = 0.999) -> None:
        if decay is not None and not 0.0 <= decay <= 1.0:
            raise ArgumentError(f"[WeightAverage] expected a decay in [0, 1] but got {decay}")
        self.params = list(params)
        if not self.params:
            raise ArgumentError("[WeightAverage] expected parameters but got an empty list; pass model.parameters()")
        self.decay = decay
        self.averages = [p.detach().clone() for p in self.params]
        self._updates = tensor(0.0, dtype=float64)
        evaluate(self.averages)

    def update(self) -> None:
        """Take the parameters as they are now into the average."""
        with mode(grad_enabled=False, autocast=None):
            first = self._updates == 0.0
            part = 1.0 / (self._updates + 1.0) if self.decay is None else tensor(1.0 - self.decay, dtype=float64)
            for p, average in zip(self.params, self.averages, strict=True):
                kind = p.dtype.compute
                new, old = p.to(kind), average.to(kind)
                mean = FUNCTIONS["where"](first, new, old + (new - old) * part.to(kind))
                average._rebind(mean.to(average.dtype))
            self._updates._rebind(self._updates + 1.0)
        if state.tracer is None:
            evaluate(self.averages, self._updates)

    def copy_to_params(self) -> None:
        """Give the parameters the averaged values."""
        with mode(grad_enabled=False):
            for p, average in zip(self.params, self.averages, strict=True):
                p._rebind(average._snapshot())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within a `with` block the parameters have the averaged values; afterwards their own again."""
        own = [p._snapshot() for p in self.params]
        self.copy_to_params()
        try:
            yield
        finally:
            with mode(grad_enabled=False):
                for p, value in zip(self.params, own, strict=True):
                    p._rebind(value)

    def state_dict(self) -> dict[str, Any]:
        """The averages by position, and of how many updates they are."""
        averages = {str(i): average._snapshot() for i, average in enumerate(self.averages)}
        return {"updates": int(self._updates.item()), "averages": averages}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved average."""
        saved = {int(k): as_tensor(v) for k, v in state_dict["averages"].items()}
        want = {i: average.shape for i, average in enumerate(self.averages)}
        got = {i: value.shape for i, value in saved.items()}
        if want != got:
            raise StateDictError(f"[load_state_dict] expected averages of shapes {want} but got {got}")
        for i, average in enumerate(self.averages):
            average._rebind(saved[i]._snapshot().to(average.dtype).clone())
        self._updates.fill_(state_dict["updates"])
        evaluate(self.averages, self._updates)
