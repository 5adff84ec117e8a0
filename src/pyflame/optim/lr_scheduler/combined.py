"""Schedules made of schedules: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.optim.lr_scheduler.base import LRScheduler
from pyflame.optim.lr_scheduler.plateau import ReduceLROnPlateau
from pyflame.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """Several schedules of one optimiser."""

    not_saved = ("optimizer", "schedulers")

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ArgumentError(f"[{name}] expected at least one scheduler but got none")
        self.optimizer = optimizer or schedulers[0].optimizer
        for number, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(
                    f"[{name}] expected schedulers whose step takes no metric but number {number} is "
                    "ReduceLROnPlateau; step it by itself"
                )
            if scheduler.optimizer is not self.optimizer:
                raise ArgumentError(f"[{name}] expected schedulers of one optimiser but number {number} has another")
        self.schedulers = list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "schedulers"})
        for scheduler, saved in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """One schedule after the other: the next one starts, from its own epoch 0, at each milestone.

    >>> warm = LinearLR(optimizer, start_factor=0.1, total_iters=20)
    >>> scheduler = SequentialLR(optimizer, [warm, CosineAnnealingLR(optimizer, T_max=80)], milestones=[20])
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        super().__init__(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"[SequentialLR] expected {len(schedulers) - 1} milestones for {len(schedulers)} schedulers but got "
                f"{len(milestones)}"
            )
        if any(isinstance(s, _Combined) for s in self.schedulers[1:]):
            raise ArgumentError("[SequentialLR] expected schedulers made of others only at the start")
        self.milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each of them has set the rates of its own epoch 0: undo that, and let only the first one do it.
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo(self)
        first = self.schedulers[bisect_right(self.milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        number = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[number]
        if number > 0 and self.milestones[number - 1] == self.last_epoch:
            scheduler.restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler: LRScheduler) -> None:
    if isinstance(scheduler, _Combined):
        for inner in scheduler.schedulers:
            _undo(inner)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """All schedules at each step, one on top of the other.

    >>> scheduler = ChainedScheduler([ConstantLR(optimizer, 0.1, total_iters=5), ExponentialLR(optimizer, 0.9)])
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        super().__init__(schedulers, optimizer)
        self._last_lr = self._rates()

    def step(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()
        self._last_lr = self._rates()
