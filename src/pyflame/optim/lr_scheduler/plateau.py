"""ReduceLROnPlateau: a smaller learning rate when a metric stops getting better."""

from __future__ import annotations

from typing import SupportsFloat

from pyflame.core.errors import ArgumentError
from pyflame.optim.lr_scheduler.base import LRScheduler, per_group, want_optimizer
from pyflame.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric was no better than its best for more than `patience` epochs.

    Better means by `threshold`: relative to the best ("rel") or absolute ("abs"). `cooldown` epochs after a reduction
    are not counted; rates end at `min_lr`, and changes below `eps` are not made.

    >>> scheduler = ReduceLROnPlateau(optimizer, patience=3)
    >>> scheduler.step(validation_loss)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        want_optimizer("ReduceLROnPlateau", optimizer)
        if not factor < 1.0:
            raise ArgumentError(f"[ReduceLROnPlateau] expected a factor below 1 but got {factor}")
        if mode not in ("min", "max"):
            raise ArgumentError(f"[ReduceLROnPlateau] expected 'min' or 'max' as mode but got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f"[ReduceLROnPlateau] expected 'rel' or 'abs' as threshold_mode but got {threshold_mode!r}"
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.eps = eps
        self.last_epoch = 0
        self.best = float("inf") if mode == "min" else float("-inf")
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = self._rates()

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction was made not long ago."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            bar = self.best * (1.0 + sign * self.threshold)
        else:
            bar = self.best + sign * self.threshold
        return value * sign > bar * sign

    def step(self, metrics: SupportsFloat) -> None:  # type: ignore[override]  # as in PyTorch: it needs the metric
        """End an epoch with this metric: a number, or a tensor of one element."""
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            lr = max(group["lr"] * self.factor, least)
            if group["lr"] - lr > self.eps:
                group["lr"] = lr
