"""LRScheduler: the base of schedules. They set plain numbers in an optimiser's groups, outside of jitted functions."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.optim.optimizer import Optimizer


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for all groups, or a list of one for each."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ArgumentError(f"[{name}] expected a value for each of {groups} parameter groups but got {len(value)}")
    return list(value)


def want_optimizer(op: str, optimizer: object) -> None:
    """Raise for what is no optimiser."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"[{op}] expected an optimiser of pyflame.optim but got {type(optimizer).__name__}")


def want_above_zero(op: str, name: str, value: Any) -> None:
    """Raise for a length that is 0, negative or NaN."""
    if not value > 0:
        raise ArgumentError(f"[{op}] expected {name} above 0 but got {value}")


class LRScheduler:
    """Base of the schedules. A subclass defines `get_lr`: the learning rates at `last_epoch`, one for each group.

    `step()` comes after the optimiser's, once per epoch or per batch as the schedule is meant.

    >>> for batch in loader:
    ...     train_step(batch)
    ...     scheduler.step()
    """

    not_saved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        want_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"[{type(self).__name__}] expected 'initial_lr' in parameter group {number} to go on from epoch "
                    f"{last_epoch}; load the optimiser's state first, or start with last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """The learning rates at `last_epoch`. It may build on those that the groups have."""
        raise NotImplementedError(f"[{type(self).__name__}] expected get_lr() to be defined")

    def closed_form(self) -> list[float] | None:
        """The learning rates at `last_epoch` from `base_lrs` alone, where a schedule has such a form."""
        return None

    def get_last_lr(self) -> list[float]:
        """The learning rates that were set last.

        >>> scheduler.get_last_lr()
        [0.001]
        """
        return self._last_lr

    def step(self) -> None:
        """Go to the next epoch."""
        if self._step_count == 1 and not self.optimizer.stepped:
            warnings.warn(
                "[scheduler] step() was called before optimizer.step(), so the first learning rate is skipped; call it "
                "after",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        self.last_epoch += 1
        self._set_lr(self.get_lr())

    def _set_lr(self, rates: Sequence[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            if math.isnan(lr):
                raise ArgumentError(
                    f"[{type(self).__name__}] expected learning rates that are numbers but got NaN at epoch "
                    f"{self.last_epoch}; check the schedule's arguments"
                )
            group["lr"] = lr
        self._last_lr = self._rates()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def restart(self) -> None:
        """Go back to epoch 0, from the initial learning rates."""
        self.last_epoch = 0
        rates = self.closed_form()
        self._set_lr(self.get_lr() if rates is None else rates)

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimiser: plain values."""
        return {k: v for k, v in self.__dict__.items() if k not in self.not_saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from saved state. Load the optimiser's as well: it has the learning rates."""
        self.__dict__.update(state_dict)


class _Lambdas(LRScheduler):
    """A schedule from functions of the epoch. Functions are not saved; callable objects save their attributes."""

    not_saved = ("optimizer", "lr_lambdas")

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        want_optimizer(type(self).__name__, optimizer)
        self.lr_lambdas: list[Callable[[int], float]] = per_group(type(self).__name__, optimizer, lr_lambda)
        for fn in self.lr_lambdas:
            if not callable(fn):
                raise ArgumentTypeError(f"[{type(self).__name__}] expected a function but got {type(fn).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        saved = [None if isinstance(fn, types.FunctionType) else dict(vars(fn)) for fn in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for fn, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                vars(fn).update(saved)


class LambdaLR(_Lambdas):
    """The initial learning rate times a function of the epoch, one for all groups or one for each.

    >>> scheduler = LambdaLR(optimizer, lambda epoch: 0.95**epoch)
    """

    def get_lr(self) -> list[float]:
        return [base * fn(self.last_epoch) for base, fn in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_Lambdas):
    """The learning rate times a function of the epoch, at each epoch.

    >>> scheduler = MultiplicativeLR(optimizer, lambda epoch: 0.95)
    """

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self._rates()
        return [lr * fn(self.last_epoch) for lr, fn in zip(self._rates(), self.lr_lambdas, strict=True)]
