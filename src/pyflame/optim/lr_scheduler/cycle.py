"""Schedules that raise and lower the learning rate, and momentum against it."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.optim.lr_scheduler.base import LRScheduler, per_group, want_above_zero, want_optimizer
from pyflame.optim.optimizer import Optimizer


def _momentum_key(op: str, optimizer: Optimizer) -> str:
    """What momentum is called in an optimiser."""
    for key in ("betas", "momentum"):
        if key in optimizer.defaults:
            return key
    raise ArgumentError(
        f"[{op}] expected an optimiser with momentum or betas but got {type(optimizer).__name__}; pass "
        "cycle_momentum=False"
    )


def _set_momentum(group: Any, key: str, value: float) -> None:
    group[key] = (value, *group["betas"][1:]) if key == "betas" else value


class OneCycleLR(LRScheduler):
    """One rise from max_lr / div_factor to max_lr and one fall far below; momentum moves the other way.

    Call `step` after every batch. The length is `total_steps`, or epochs * steps_per_epoch.

    >>> scheduler = OneCycleLR(optimizer, max_lr=0.01, total_steps=1000)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        want_optimizer("OneCycleLR", optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, but got neither")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ArgumentError(f"[OneCycleLR] expected a whole number of steps above 0 but got {total_steps}")
        if not 0.0 <= pct_start <= 1.0:
            raise ArgumentError(f"[OneCycleLR] expected pct_start in [0, 1] but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"[OneCycleLR] expected 'cos' or 'linear' as anneal_strategy but got {anneal_strategy!r}"
            )
        want_above_zero("OneCycleLR", "div_factor", div_factor)
        want_above_zero("OneCycleLR", "final_div_factor", final_div_factor)
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        # Each phase: its last step, and the keys of learning rate and momentum between which it moves.
        up = [float(pct_start * total_steps) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"]
        if three_phase:
            self.phases: list[list[Any]] = [
                up,
                [float(2 * pct_start * total_steps) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"],
                [total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"],
            ]
        else:
            self.phases = [up, [total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"]]
        key = _momentum_key("OneCycleLR", optimizer) if cycle_momentum else ""
        self.momentum_key = key
        if last_epoch == -1:
            highs, lows, peaks = (
                per_group(name, optimizer, value)
                for name, value in (
                    ("max_momentum", max_momentum),
                    ("base_momentum", base_momentum),
                    ("max_lr", max_lr),
                )
            )
            for group, high, low, peak in zip(optimizer.param_groups, highs, lows, peaks, strict=True):
                start = peak / div_factor
                group.update(initial_lr=start, max_lr=peak, min_lr=start / final_div_factor)
                if cycle_momentum:
                    group.update(max_momentum=high, base_momentum=low)
                    _set_momentum(group, key, high)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(
                f"[OneCycleLR] expected at most {self.total_steps} steps, as total_steps says, but got {step}"
            )
        start = 0.0
        phase = self.phases[0]
        for following in self.phases[1:]:
            if step <= phase[0]:
                break
            start, phase = phase[0], following
        end, from_lr, to_lr, from_momentum, to_momentum = phase
        part = (step - start) / (end - start) if end > start else 1.0  # a phase of one step is at its end
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal(group[from_lr], group[to_lr], part))
            if self.cycle_momentum:
                _set_momentum(group, self.momentum_key, self._anneal(group[from_momentum], group[to_momentum], part))
        return rates


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr and down again, in cycles; momentum moves the other way.

    `mode`: "triangular" repeats, "triangular2" halves the height each cycle, "exp_range" scales it by gamma^step;
    `scale_fn` is another function of the cycle's number, or with scale_mode="iterations" of the step.

    >>> scheduler = CyclicLR(optimizer, base_lr=1e-4, max_lr=1e-2, step_size_up=500)
    """

    not_saved = ("optimizer", "scale_fn")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        want_optimizer("CyclicLR", optimizer)
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ArgumentError(
                f"[CyclicLR] expected 'triangular', 'triangular2' or 'exp_range' as mode but got {mode!r}; or pass a "
                "scale_fn"
            )
        want_above_zero("CyclicLR", "step_size_up", step_size_up)
        if step_size_down is not None and not step_size_down >= 0:
            raise ArgumentError(f"[CyclicLR] expected step_size_down of at least 0 but got {step_size_down}")
        low = per_group("base_lr", optimizer, base_lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self.scale_fn = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        self.momentum_key = _momentum_key("CyclicLR", optimizer) if cycle_momentum else ""
        self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
        self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, low, strict=True):
                group["lr"] = lr
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def _height(self, cycle: int) -> float:
        at = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.scale_fn is not None:
            return self.scale_fn(at)
        if self.mode == "exp_range":
            return float(self.gamma**at)
        return 1.0 if self.mode == "triangular" else 1 / (2.0 ** (at - 1))

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = self._height(cycle)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, self.momentum_key, high - (high - low) * part * height)
        return [low + (high - low) * part * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        fn = self.scale_fn
        kept = None if fn is None or isinstance(fn, types.FunctionType) else dict(vars(fn))
        return {**super().state_dict(), "scale_fn": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "scale_fn"})
        if state_dict["scale_fn"] is not None:
            vars(self.scale_fn).update(state_dict["scale_fn"])
