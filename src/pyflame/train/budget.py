"""A run that lasts for a time instead of a number of steps."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from pyflame.core.errors import ArgumentError
from pyflame.train.callbacks import Callback

if TYPE_CHECKING:
    from pyflame.train.trainer import Trainer


class TimeBudget(Callback):
    """End a run after `seconds`, with a learning rate that fits the time, whatever the speed of the machine.

    The time runs from the end of the first step, which also plans and compiles. The learning rate rises to `lr` over
    `warmup` steps and falls with the time that has gone by, to `final * lr` at the end. The trainer's `max_steps`
    becomes the step at which the time will be up at the present speed. A resumed run has the whole time again.

    >>> Trainer(model, optimizer, train_data=loader, max_epochs=100, callbacks=[TimeBudget(60.0, lr=1e-3)])
    """

    def __init__(self, seconds: float, lr: float, *, warmup: int = 20, final: float = 0.05) -> None:
        if not (seconds > 0 and math.isfinite(seconds)):
            raise ArgumentError(f"[TimeBudget] expected a time above 0 seconds but got {seconds}")
        self.seconds = seconds
        self.lr = lr
        self.warmup = warmup
        self.final = final
        self._begun = 0.0
        self._before = 0  # steps of earlier runs

    def on_fit_start(self, trainer: Trainer) -> None:
        self._before = trainer.step
        self._set(trainer, 0.0)

    def on_step_end(self, trainer: Trainer) -> None:
        now = time.monotonic()
        done = trainer.step - self._before
        if done == 1:
            self._begun = now
        gone = now - self._begun
        if gone >= self.seconds:
            trainer.stop(f"{self.seconds:.3g} seconds are over")
        elif done > 1:
            left = math.ceil((self.seconds - gone) / gone * (done - 1))
            trainer.max_steps = trainer.step + max(1, left)
        self._set(trainer, gone / self.seconds)

    def _set(self, trainer: Trainer, gone: float) -> None:
        rising = min(1.0, (trainer.step - self._before + 1) / self.warmup)
        falling = 1.0 - (1.0 - self.final) * min(1.0, gone)
        for group in trainer.optimizer.param_groups:
            group["lr"] = self.lr * rising * falling
