"""Schedules on half a cosine: annealing, warm restarts, and warm-up followed by annealing."""

from __future__ import annotations

import math

from pyflame.core.errors import ArgumentError
from pyflame.optim.lr_scheduler.base import LRScheduler, want_above_zero
from pyflame.optim.optimizer import Optimizer


def _between(low: float, high: float, part: float) -> float:
    """From `high` at 0 to `low` at 1, on half a cosine."""
    return low + (high - low) * (1 + math.cos(math.pi * part)) / 2


class CosineAnnealingLR(LRScheduler):
    """From the initial learning rate to `eta_min` in `T_max` epochs, and back again.

    >>> scheduler = CosineAnnealingLR(optimizer, T_max=100)
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        want_above_zero("CosineAnnealingLR", "T_max", T_max)
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        # Builds on the rates as they are, so that it can be chained with other schedules.
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self.closed_form()
        pairs = zip(self.base_lrs, self._rates(), strict=True)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # at the bottom there is nothing to scale
            return [lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2 for base, lr in pairs]
        now, before = (1 + math.cos(math.pi * e / self.T_max) for e in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (lr - self.eta_min) + self.eta_min for lr in self._rates()]

    def closed_form(self) -> list[float]:
        return [_between(self.eta_min, base, self.last_epoch / self.T_max) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the initial learning rate to `eta_min` again and again: in T_0 epochs, then T_0 * T_mult, and so on.

    `step` takes a fraction of an epoch as well, as in `scheduler.step(epoch + batch / batches)`.

    >>> scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=10, T_mult=2)
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentError(
                    f"[CosineAnnealingWarmRestarts] expected a whole number of at least 1 as {name} but got {value}"
                )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [_between(self.eta_min, base, self.T_cur / self.T_i) for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to this one."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._go_to(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        self._set_lr(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ArgumentError(f"[step] expected an epoch of at least 0 but got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch
        if epoch < self.T_0:
            return
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        # The cycles before the n-th take T_0 * (T_mult^n - 1) / (T_mult - 1) epochs.
        n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
        self.T_i = self.T_0 * self.T_mult**n

    def restart(self) -> None:
        self.step(0)


class WarmupCosine(LRScheduler):
    """A linear warm-up, then half a cosine down to `min_lr`: what most transformers are trained with.

    lr * (step + 1) / (warmup_steps + 1) for the first `warmup_steps` steps, so none of them is lost at a rate of zero;
    then from lr to min_lr, which is reached at `total_steps` and kept.

    >>> scheduler = WarmupCosine(optimizer, warmup_steps=100, total_steps=10_000)
    """

    def __init__(
        self, optimizer: Optimizer, warmup_steps: int, total_steps: int, min_lr: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not 0 <= warmup_steps < total_steps:
            raise ArgumentError(
                f"[WarmupCosine] expected 0 <= warmup_steps < total_steps but got {warmup_steps} and {total_steps}"
            )
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.min_lr = min_lr
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step, warm = self.last_epoch, self.warmup_steps
        if step < warm:
            return [base * (step + 1) / (warm + 1) for base in self.base_lrs]
        part = min(1.0, (step - warm) / (self.total_steps - warm))
        return [_between(self.min_lr, base, part) for base in self.base_lrs]
