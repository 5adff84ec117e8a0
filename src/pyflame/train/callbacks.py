"""Callbacks: what else happens in a run. A Trainer calls them in the order in which they were given."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyflame.core.errors import ArgumentError, ArgumentTypeError, suggest
from pyflame.io import write_atomic
from pyflame.train import curve
from pyflame.train.checkpoint import CheckpointManager
from pyflame.train.spare import SpareWrites

if TYPE_CHECKING:
    from pyflame.train.trainer import Trainer


class Callback:
    """Base of callbacks. Override what you need; each gets the trainer, whose `step`, `epoch`, `model`, ... tell more.

    A callback with a state that a resumed run needs gives it in `state_dict`.

    >>> class Announce(Callback):
    ...     def on_epoch_end(self, trainer):
    ...         print("epoch", trainer.epoch, "ended at step", trainer.step)
    """

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first step; a checkpoint, if any, has been restored."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Before the first batch of an epoch."""

    def on_step_end(self, trainer: Trainer) -> None:
        """After an optimiser step, and after the evaluation that it may have caused."""

    def on_log(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Every `log_every` steps, with loss, learning rate, speed and memory as plain numbers."""

    def on_eval_end(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """After an evaluation."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """After an epoch and its evaluation; `trainer.epoch` counts the epochs done."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """After the last step, also when the run was stopped; `trainer.stop_reason` says why."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state."""


_EVENTS = [name for name in vars(Callback) if name.startswith("on_")]


class LambdaCallback(Callback):
    """Functions as a callback, by the names of its methods.

    >>> LambdaCallback(on_epoch_end=lambda trainer: print(trainer.epoch))
    """

    def __init__(self, **functions: Callable[..., None]) -> None:
        for name, function in functions.items():
            if name not in _EVENTS:
                raise ArgumentError(
                    f"[LambdaCallback] expected one of {', '.join(_EVENTS)} but got {name!r}{suggest(name, _EVENTS)}"
                )
            if not callable(function):
                raise ArgumentTypeError(
                    f"[LambdaCallback] expected a function as {name} but got {type(function).__name__}"
                )
            setattr(self, name, function)


def check_mode(op: str, mode: str) -> float:
    """1 if smaller is better ("min"), -1 if larger is ("max")."""
    if mode not in ("min", "max"):
        raise ArgumentError(f"[{op}] expected mode 'min' or 'max' but got {mode!r}")
    return 1.0 if mode == "min" else -1.0


class EarlyStopping(Callback):
    """Stop when a metric of the evaluation has not become better by more than `min_delta` for `patience` evaluations.

    >>> EarlyStopping("accuracy", patience=3, mode="max")
    """

    def __init__(self, monitor: str = "loss", patience: int = 3, *, min_delta: float = 0.0, mode: str = "min") -> None:
        self._sign = check_mode("EarlyStopping", mode)
        if patience < 1:
            raise ArgumentError(f"[EarlyStopping] expected patience of at least 1 but got {patience}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.best = math.nan
        self.waited = 0

    def on_fit_start(self, trainer: Trainer) -> None:
        self._stop_if_due(trainer)  # a run that ended so ends at once when it is resumed

    def on_eval_end(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        if self.monitor not in metrics:
            raise ArgumentError(
                f"[EarlyStopping] expected a metric among {', '.join(metrics)} but got "
                f"{self.monitor!r}{suggest(self.monitor, metrics)}"
            )
        value = metrics[self.monitor]
        if math.isnan(self.best) or self._sign * (self.best - value) > self.min_delta:
            self.best, self.waited = value, 0
            return
        self.waited += 1
        self._stop_if_due(trainer)

    def _stop_if_due(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:
            trainer.stop(f"{self.monitor} has not become better than {self.best:.6g} in {self.waited} evaluations")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]


class Checkpointing(Callback):
    """Write a checkpoint of the whole run every `every` steps, or after each epoch, and at the end.

    `fit(resume=True)` continues from the newest one. See `CheckpointManager` for `keep`, `keep_best` and `mode`; with
    `keep_best` there is also one after every evaluation.

    >>> Checkpointing("run/checkpoints", every=500, keep=3, keep_best="loss")
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        every: int | None = None,
        keep: int | None = 3,
        *,
        keep_best: str | None = None,
        mode: str = "min",
        host_random: bool = False,
    ) -> None:
        if every is not None and every < 1:
            raise ArgumentError(f"[Checkpointing] expected every of at least 1 step but got {every}")
        self.manager = CheckpointManager(directory, keep, keep_best=keep_best, mode=mode, host_random=host_random)
        self.every = every
        self.saved_at: tuple[int, ...] | None = None

    def _best_may_be_new(self, trainer: Trainer) -> bool:
        return self.manager.keep_best is not None and trainer.evaluated_at == trainer.step

    def on_step_end(self, trainer: Trainer) -> None:
        if (self.every is not None and trainer.step % self.every == 0) or self._best_may_be_new(trainer):
            self.save(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        if self.every is None or self._best_may_be_new(trainer):
            self.save(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.saved_at != trainer.position:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint now."""
        # Only what was measured of these very weights: `keep_best` goes by it.
        metrics = trainer.metrics if trainer.evaluated_at == trainer.step else {}
        self.manager.save(trainer.step, epoch=trainer.epoch, metrics=metrics, **trainer.objects())
        self.saved_at = trainer.position


class JSONLLogger(Callback):
    """One JSON object per line: what happened (`event`), when (`time`), at which step, and the numbers.

    A resumed run appends to the file. Its steps after the checkpoint stand there twice; the later lines count. A line
    that cannot be written is lost, with a warning at the first one and at the end.

    >>> JSONLLogger("run/log.jsonl")
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._writes = SpareWrites(self.path)

    def on_fit_start(self, trainer: Trainer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write("resume" if trainer.step else "start", trainer, device=trainer.device)

    def on_log(self, trainer: Trainer, record: dict[str, Any]) -> None:
        self._write("train", trainer, **record)

    def on_eval_end(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        self._write("eval", trainer, **metrics)

    def on_fit_end(self, trainer: Trainer) -> None:
        self._write("end", trainer, reason=trainer.stop_reason)
        self._writes.report()

    def _write(self, event: str, trainer: Trainer, **values: Any) -> None:
        record = {"event": event, "time": round(time.time(), 3), "step": trainer.step, "epoch": trainer.epoch, **values}
        # JSON has no nan and no inf
        known = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        line = json.dumps(known, allow_nan=False).encode() + b"\n"
        with self._writes.step(trainer.step):
            start = b"\n" if self._cut_off() else b""
            with self.path.open("ab") as file:  # opened anew: a rotated log or a crash loses no line
                file.write(start + line)

    def _cut_off(self) -> bool:
        """Whether a crash or a full disk has left half a line."""
        if not self.path.is_file():
            return False  # a pipe cannot be read back
        with self.path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"


class LossCurve(Callback):
    """Draw the loss over the steps: training, and evaluation where there is one. `.html` needs nothing, `.png`
    matplotlib. Written after each evaluation and epoch and at the end.

    >>> LossCurve("run/loss.html", "run/loss.png")
    """

    def __init__(self, *paths: str | os.PathLike[str], title: str = "loss") -> None:
        if not paths:
            raise ArgumentError("[LossCurve] expected the path of an .html or .png file but got none")
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            if path.suffix not in (".html", ".png"):
                raise ArgumentError(f"[LossCurve] expected a path that ends in .html or .png but got {path}")
            if path.suffix == ".png":
                curve.check_png()
        self.title = title
        self._writes = {path: SpareWrites(path) for path in self.paths}
        self.series: dict[str, list[tuple[float, float]]] = {"train": []}

    def on_log(self, trainer: Trainer, record: dict[str, Any]) -> None:
        self.series["train"].append((record["step"], record["loss"]))

    def on_eval_end(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        if "loss" in metrics:
            self.series.setdefault("evaluation", []).append((trainer.step, metrics["loss"]))
        self.write(trainer.step)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self.write(trainer.step)

    def on_fit_end(self, trainer: Trainer) -> None:
        self.write(trainer.step)
        for writes in self._writes.values():
            writes.report()

    def write(self, step: int = 0) -> None:
        """Draw what there is, at a step of the run."""
        for path in self.paths:
            draw = curve.page if path.suffix == ".html" else curve.png
            content = draw(self.series, self.title)
            with self._writes[path].step(step):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, content)

    def state_dict(self) -> dict[str, Any]:
        return {"series": {name: [list(p) for p in points] for name, points in self.series.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.series = {name: [(x, y) for x, y in points] for name, points in state_dict["series"].items()}
