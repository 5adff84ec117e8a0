"""GradScaler: keeps float16 gradients from vanishing, and drops steps in which they overflow.

The scale, the count of good steps and whether a gradient overflowed are tensors, and a step is dropped by a `where` in
the graph that computes it. So all of it may stand inside of one jitted function; nothing is read back by the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from enum import Enum
from typing import Any

from pyflame.core.dtype import bool_, float16, float32, float64, int32
from pyflame.core.errors import ArgumentError, ArgumentTypeError, GradientError, StateDictError, TraceError, type_name
from pyflame.core.state import mode, state
from pyflame.optim.optimizer import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.clip import gradients_of
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate


class _Stage(Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Record:
    """How far this iteration is for one optimiser, and whether its gradients overflowed."""

    def __init__(self, device: object) -> None:
        self.stage = _Stage.READY
        self.trace: weakref.ref[Any] | None = None  # the trace in which it came so far
        with mode(tracer=None):
            self.overflow = tensor(False, dtype=bool_, device=device)

    def reach(self, stage: _Stage) -> None:
        self.stage = stage
        self.trace = None if state.tracer is None else weakref.ref(state.tracer)

    def here(self) -> bool:
        """Whether the stage was reached in the function that is being traced now, or all of it is outside of jit."""
        if self.trace is None or state.tracer is None:
            return self.trace is None and state.tracer is None
        return self.trace() is state.tracer


class GradScaler:
    """Scales the loss, unscales the gradients, and skips steps with NaN or infinite ones, as in PyTorch.

    >>> scaler = optim.GradScaler()
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    """

    def __init__(
        self,
        device: object = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1.0:
            raise ArgumentError(f"[GradScaler] expected a growth_factor above 1 but got {growth_factor}")
        if backoff_factor >= 1.0:
            raise ArgumentError(f"[GradScaler] expected a backoff_factor below 1 but got {backoff_factor}")
        self._enabled = enabled
        self._device = device
        self._scale = tensor(init_scale, dtype=float32, device=device)
        self._good_steps = tensor(0, dtype=int32, device=device)
        self._growth_factor = tensor(growth_factor, dtype=float64, device=device)
        self._backoff_factor = tensor(backoff_factor, dtype=float64, device=device)
        self._growth_interval = tensor(growth_interval, dtype=int32, device=device)
        self._records: weakref.WeakKeyDictionary[Optimizer, _Record] = weakref.WeakKeyDictionary()

    # --- one iteration ----------------------------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A loss times the scale; also lists and tuples of losses.

        >>> scaler.scale(loss).backward()
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = [self.scale(o) for o in outputs]
            return tuple(scaled) if isinstance(outputs, tuple) else scaled
        raise ArgumentTypeError(f"[scale] expected a tensor or a list of tensors but got {type_name(outputs)}")

    @no_grad()
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, to clip or look at them before `step`, which does it otherwise.

        >>> scaler.unscale_(optimizer)
        >>> norm = optim.clip_grad_norm_(model.parameters(), 1.0)
        """
        if not self._enabled:
            return
        record = self._record("unscale_", optimizer)
        if record.stage is not _Stage.READY:
            raise GradientError(
                f"[unscale_] expected one call per iteration, before step, but it is {record.stage.name.lower()} "
                "already; call update() at the end of the iteration"
            )
        inverse = (1.0 / self._scale.to(float64)).to(float32)
        finite: list[Tensor] = []
        for g in gradients_of([p for group in optimizer.param_groups for p in group["params"]]):
            if g.dtype is float16:
                raise ArgumentError(
                    "[unscale_] expected gradients of 32 bits but got float16: small ones would vanish again; keep the "
                    "parameters in float32 and use pf.autocast"
                )
            finite.append(FUNCTIONS["all"](FUNCTIONS["isfinite"](g)))
            kind = g.dtype.compute
            g._rebind((g.to(kind) * inverse.to(kind)).to(g.dtype))
        if finite:
            record.overflow._rebind(~FUNCTIONS["all"](FUNCTIONS["stack"](finite)))
        record.reach(_Stage.UNSCALED)

    def step(self, optimizer: Optimizer) -> Any:
        """`optimizer.step()`, but nothing changes if a gradient is NaN or infinite.

        >>> scaler.step(optimizer)
        """
        if not self._enabled:
            return optimizer.step()
        record = self._record("step", optimizer)
        if record.stage is _Stage.STEPPED:
            raise GradientError(
                "[step] expected one call per optimiser and iteration but got two; call update() before"
            )
        if record.stage is _Stage.READY:
            self.unscale_(optimizer)
        out = optimizer.step(skip=record.overflow)
        record.reach(_Stage.STEPPED)
        return out

    @no_grad()
    def update(self, new_scale: float | Tensor | None = None) -> None:
        """End an iteration: a smaller scale after an overflow, a larger one after `growth_interval` good steps.

        >>> scaler.step(optimizer)
        >>> scaler.update()
        """
        if not self._enabled:
            return
        if state.tracer is not None:
            state.tracer.guard(self, "optimizers")
        where = FUNCTIONS["where"]
        if new_scale is not None:
            self._scale._rebind(
                (new_scale if isinstance(new_scale, Tensor) else tensor(new_scale)).reshape(()).to(float32)
            )
        elif not self._records:
            raise GradientError("[update] expected step(optimizer) before but there was none")
        else:
            overflow = FUNCTIONS["any"](FUNCTIONS["stack"]([r.overflow for r in self._records.values()]))
            good = self._good_steps + 1
            due = good == self._growth_interval
            wide = self._scale.to(float64)
            grown = (wide * self._growth_factor).to(float32)
            kept = where(FUNCTIONS["logical_and"](due, FUNCTIONS["isfinite"](grown)), grown, self._scale)
            scale = where(overflow, (wide * self._backoff_factor).to(float32), kept)
            self._good_steps._rebind(where(FUNCTIONS["logical_or"](overflow, due), 0, good).to(int32))
            self._scale._rebind(scale)
        for record in self._records.values():
            record.overflow._rebind(record.overflow & False)
            record.reach(_Stage.READY)
        if state.tracer is None:
            evaluate(self._scale, self._good_steps, [r.overflow for r in self._records.values()])

    @property
    def optimizers(self) -> int:
        """How many optimisers this scaler looks after."""
        return len(self._records)

    def _record(self, op: str, optimizer: Optimizer) -> _Record:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"[{op}] expected an optimiser of pyflame.optim but got {type(optimizer).__name__}")
        record = self._records.get(optimizer)
        if record is None:
            record = self._records[optimizer] = _Record(self._device)
        if record.stage is not _Stage.READY and not record.here():
            raise TraceError(
                f"[{op}] expected unscale_, step and update in one function but a jitted one ended, or failed, in "
                "between; move them together, or call update() to start over"
            )
        return record

    # --- options and state ------------------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale as a number; 1.0 where scaling is disabled."""
        return float(self._scale.item()) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether this scaler does anything."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """By how much the scale grows."""
        return float(self._growth_factor.item())

    def set_growth_factor(self, new_factor: float) -> None:
        """Let the scale grow by another factor."""
        self._growth_factor.fill_(new_factor)

    def get_backoff_factor(self) -> float:
        """By how much the scale shrinks after an overflow."""
        return float(self._backoff_factor.item())

    def set_backoff_factor(self, new_factor: float) -> None:
        """Let the scale shrink by another factor after an overflow."""
        self._backoff_factor.fill_(new_factor)

    def get_growth_interval(self) -> int:
        """How many good steps in a row let the scale grow."""
        return int(self._growth_interval.item())

    def set_growth_interval(self, new_interval: int) -> None:
        """Let the scale grow after another number of good steps."""
        self._growth_interval.fill_(new_interval)

    def __getstate__(self) -> dict[str, Any]:
        """What copy.deepcopy and pickle take, between iterations."""
        if any(record.stage is not _Stage.READY for record in self._records.values()):
            raise StateDictError(
                "[GradScaler] expected to be copied between iterations but one is under way; call update() first"
            )
        return {k: v for k, v in self.__dict__.items() if k != "_records"}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self._records = weakref.WeakKeyDictionary()

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counts as plain numbers, as in PyTorch; empty where scaling is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.get_growth_factor(),
            "backoff_factor": self.get_backoff_factor(),
            "growth_interval": self.get_growth_interval(),
            "_growth_tracker": int(self._good_steps.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from saved state, of this scaler or of PyTorch's."""
        if not self._enabled:
            return
        if not state_dict:
            raise StateDictError(
                "[load_state_dict] expected a scaler's state but got an empty dict; was it saved by a disabled scaler?"
            )
        self._scale.fill_(state_dict["scale"])
        self._good_steps.fill_(state_dict["_growth_tracker"])
        self.set_growth_factor(state_dict["growth_factor"])
        self.set_backoff_factor(state_dict["backoff_factor"])
        self.set_growth_interval(state_dict["growth_interval"])
