"""Trainer: the loop around a jitted step, with evaluation, checkpoints, logs and progress."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rich.console import Console

from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.core.generator import default_generator
from pyflame.core.state import state
from pyflame.data import WorkerError
from pyflame.nn import Module
from pyflame.optim import Optimizer
from pyflame.optim.lr_scheduler import ReduceLROnPlateau
from pyflame.tensor import Tensor
from pyflame.train import batches
from pyflame.train.auto_batch import AutoBatch
from pyflame.train.callbacks import Callback, Checkpointing, JSONLLogger
from pyflame.train.metrics import Metric
from pyflame.train.progress import Progress, memory
from pyflame.train.steps import Steps

_END = object()


class _Stopped(Exception):
    """A signal has ended the workers that load the data."""


@dataclass(frozen=True)
class Fit:
    """How a run ended: after how many steps and epochs, why, and with which metrics of its last evaluation."""

    step: int
    epoch: int
    reason: str
    metrics: dict[str, float]


class Trainer:
    """Trains a model.

    A batch is `(inputs..., target)`, or a dict with the target under `target_key`; the loss is
    `loss_fn(model(inputs...), target)`. Without `loss_fn` the model gets the whole batch and returns the loss, or
    `(loss, prediction)`. For anything else override `compute`.

    - `max_epochs`, `max_steps`: where the run ends, whichever comes first. A step is one update of the weights.
    - `accumulate`: batches per step; their gradients are averaged. `clip_norm`: limit of the gradients' norm.
    - `batch_size="auto"`: `fit` first finds the largest batch that fits (`find_batch_size`) and makes the DataLoader
      anew with it; with `effective_batch` so many samples are a step, and what does not fit at once is accumulated.
    - `autocast`: pf.bfloat16 or pf.float16 for mixed precision; `scaler`: a GradScaler, for float16.
    - `scheduler`: stepped after each step, or with `schedule="epoch"` after each epoch. ReduceLROnPlateau is stepped
      with the loss of each evaluation.
    - `eval_every`: steps between evaluations on `eval_data`; None: after each epoch.
    - `checkpoint`: a folder to save to every `checkpoint_every` steps (None: each epoch), from which `fit` resumes.
    - `log`: a JSONL file. `log_every`: steps between log records, the only ones after which the host reads a value.
    - `unit` and `count`: what speed is measured in, and how many of them are in a batch (its first axis).

    >>> trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), train_data=loader, max_epochs=3, checkpoint="run")
    >>> trainer.fit().reason
    'max_epochs'
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        train_data: Any,
        eval_data: Iterable[Any] | None = None,
        max_epochs: int | None = None,
        max_steps: int | None = None,
        scheduler: Any = None,
        schedule: str = "step",
        scaler: Any = None,
        autocast: object = None,
        accumulate: int = 1,
        batch_size: str | None = None,
        effective_batch: int | None = None,
        clip_norm: float | None = None,
        metrics: Sequence[Metric] | Mapping[str, Metric] = (),
        callbacks: Sequence[Callback] = (),
        eval_every: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        keep: int | None = 3,
        log: str | os.PathLike[str] | None = None,
        log_every: int = 10,
        progress: bool | Console = True,
        unit: str = "items",
        count: Callable[[Any], int] = batches.items_in,
        target_key: str = "labels",
        device: object = None,
        jit: bool = True,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.train_data: Any = train_data
        self.eval_data = eval_data
        self.max_epochs = max_epochs
        self.max_steps = max_steps
        self.scheduler = scheduler
        self.schedule = schedule
        self.scaler = scaler
        self.accumulate = accumulate
        self.eval_every = eval_every
        self.log_every = log_every
        self.unit = unit
        self.count = count
        self.target_key = target_key
        self._check()
        if batch_size not in (None, "auto") or (effective_batch is not None and batch_size is None):
            raise ArgumentError(
                f"[Trainer] expected batch_size='auto', alone or with effective_batch, but got {batch_size!r}; any "
                "other size is that of the data"
            )
        self._auto_batch = AutoBatch(self, effective_batch) if batch_size == "auto" else None
        self.callbacks: list[Callback] = list(callbacks)
        if log is not None:
            self.callbacks.append(JSONLLogger(log))
        if checkpoint is not None:
            self.callbacks.append(Checkpointing(checkpoint, checkpoint_every, keep))
        # Checkpoints come last: they hold what the other callbacks know.
        self.callbacks.sort(key=lambda callback: isinstance(callback, Checkpointing))
        named = metrics if isinstance(metrics, Mapping) else {metric.name: metric for metric in metrics}
        self._options = {"autocast_dtype": autocast, "scaler": scaler, "clip_norm": clip_norm, "compiled": jit}
        self.steps = Steps(self.compute, self._forward, optimizer, dict(named), **self._options)
        self._device = device
        self._console = progress
        # Where the run is. `batch` counts those of this epoch; an epoch may have ended and its evaluation be due.
        self.step = 0
        self.epoch = 0
        self.batch = 0
        self.epoch_ended = False
        self.evaluated_at = -1
        self.metrics: dict[str, float] = {}
        self.stop_reason = ""
        self._started = False
        self._skip = 0
        self._interrupted = False  # by a signal
        self._terminated = False  # by SIGTERM
        self._norm: Tensor | None = None
        self._items = 0
        self._since = 0.0

    def _check(self) -> None:
        """Whether what it was given makes a run."""
        for name in ("max_epochs", "max_steps", "accumulate", "eval_every", "log_every"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ArgumentError(f"[Trainer] expected {name} of at least 1 but got {value!r}")
        if self.max_epochs is None and self.max_steps is None:
            raise ArgumentError("[Trainer] expected max_epochs or max_steps but got neither; say where the run ends")
        if self.schedule not in ("step", "epoch"):
            raise ArgumentError(f"[Trainer] expected schedule 'step' or 'epoch' but got {self.schedule!r}")
        if not isinstance(self.train_data, Iterable) or isinstance(self.train_data, Iterator):
            raise ArgumentTypeError(
                f"[Trainer] expected train_data that can be iterated again each epoch but got "
                f"{type(self.train_data).__name__}; use a DataLoader or a list of batches"
            )
        if isinstance(self.scheduler, ReduceLROnPlateau) and self.eval_data is None:
            raise ArgumentError("[Trainer] expected eval_data for ReduceLROnPlateau but got none: it follows its loss")

    # --- what to compute --------------------------------------------------------------------------------------------

    def compute(self, batch: Any) -> tuple[Tensor, Any, Any]:
        """(loss, prediction, target) of a batch. Override it for another kind of loss."""
        return batches.computed(self.model, self.loss_fn, batch, self.target_key)

    def _forward(self, batch: Any) -> Any:
        has_target = isinstance(batch, dict) and self.target_key in batch
        if isinstance(batch, (tuple, list)) and len(batch) > 1:
            has_target = self.loss_fn is not None
        return batches.call(self.model, batches.split(batch, self.target_key)[0] if has_target else batch)

    @property
    def device(self) -> str:
        """Where batches go."""
        return str(self._device if self._device is not None else state.device)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> tuple[int, ...]:
        """Where the run is, exactly: two checkpoints of one position are the same."""
        return self.step, self.epoch, self.batch, int(self.epoch_ended), self.evaluated_at

    def objects(self) -> dict[str, Any]:
        """Everything that a checkpoint holds."""
        found: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "trainer": self}
        if self.scheduler is not None:
            found["scheduler"] = self.scheduler
        if self.scaler is not None:
            found["scaler"] = self.scaler
        if hasattr(self.train_data, "state_dict"):
            found["data"] = self._auto_batch or self.train_data
        return found

    def state_dict(self) -> dict[str, Any]:
        """Position, metrics and callbacks; the model and the others save themselves."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "batch": self.batch,
            "epoch_ended": self.epoch_ended,
            "evaluated_at": self.evaluated_at,
            "metrics": self.metrics,
            "window": self.steps.window.state_dict(),
            "callbacks": {name: callback.state_dict() for name, callback in self._named_callbacks()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in ("step", "epoch", "batch", "epoch_ended", "evaluated_at", "metrics"):
            setattr(self, name, state_dict[name])
        self.steps.window.load_state_dict(state_dict["window"])
        for name, callback in self._named_callbacks():
            if name in state_dict["callbacks"]:
                callback.load_state_dict(state_dict["callbacks"][name])

    def _named_callbacks(self) -> Iterator[tuple[str, Callback]]:
        for number, callback in enumerate(self.callbacks):
            yield f"{number}.{type(callback).__name__}", callback

    def _resume(self, wanted: bool) -> None:
        """Before the first step of this trainer: go on from the newest checkpoint, if that is wanted."""
        if self._started:
            return
        self._started = True
        for callback in self.callbacks:
            if not isinstance(callback, Checkpointing):
                continue
            if wanted:
                found = callback.manager.restore(**self.objects())
                if found is not None:
                    callback.saved_at = self.position
            elif callback.manager.all():
                raise ArgumentError(
                    f"[fit] expected an empty folder to start anew in but {callback.manager.directory} holds "
                    f"{callback.manager.all()[-1].name}; use resume=True, remove it, or choose another folder"
                )
            return

    def _find_batch_size(self) -> None:
        """With batch_size="auto", before the first step of all."""
        found = None if self._auto_batch is None else self._auto_batch.find(self._options, self._console)
        if found is not None and self._console:
            console = self._console if isinstance(self._console, Console) else Console()
            console.print(str(found), highlight=False, markup=False, soft_wrap=True)

    def _wind_forward(self) -> None:
        """Let the next iteration over the data start where the run is within its epoch."""
        if hasattr(self.train_data, "state_dict"):
            # Asked for in any case: a loader may draw its seed for it, and a checkpoint must not change what is drawn.
            position = self.train_data.state_dict()
            if self.batch and not self.epoch_ended:
                self.train_data.load_state_dict(position)
        elif not self.epoch_ended:
            self._skip = self.batch

    # --- the loop ---------------------------------------------------------------------------------------------------

    def fit(self, resume: bool = True) -> Fit:
        """Train until `max_epochs` or `max_steps`, or until something calls `stop`.

        With `resume` and a checkpoint folder the run goes on where the newest checkpoint was written, bit for bit.
        Ctrl-C ends the run after the current step, with a checkpoint; a second one raises KeyboardInterrupt at once.
        SIGTERM, which job schedulers send, does the same and then exits with status 143, or leaves that to the handler
        of SIGTERM that was there before. Both in the main thread only.
        """
        self._resume(resume)
        self._find_batch_size()
        self._wind_forward()
        self.stop_reason = ""
        self._interrupted = self._terminated = False
        if not self.model.training:
            self.model.train()
        if self.accumulate > 1:
            self.steps.start_accumulating()
        with self._signals(), self._shown():
            self._since = time.perf_counter()
            self._call("on_fit_start")
            while not self._finished():
                if self.epoch_ended:
                    self._end_epoch()
                elif not self._evaluation_missing() or self._run_evaluation():
                    with contextlib.suppress(_Stopped):
                        self._run_epoch()
            self._log()
            self.optimizer.zero_grad()
            self._call("on_fit_end")
            self._progress.message(f"stopped at step {self.step}: {self.stop_reason}")
        if self._terminated:
            _terminate()
        return Fit(self.step, self.epoch, self.stop_reason, dict(self.metrics))

    def stop(self, reason: str = "stopped") -> None:
        """End the run after the current step. For callbacks."""
        self.stop_reason = self.stop_reason or reason

    def _finished(self) -> bool:
        if self._interrupted:
            self.stop("terminated" if self._terminated else "interrupted")
        elif not self.epoch_ended:
            if self.max_steps is not None and self.step >= self.max_steps:
                self.stop("max_steps")
            if self.max_epochs is not None and self.epoch >= self.max_epochs:
                self.stop("max_epochs")
        return bool(self.stop_reason)

    def _run_epoch(self) -> None:
        if self.batch == 0:
            self._call("on_epoch_start")
        length = batches.length_of(self.train_data)
        data = islice(self.train_data, self._skip, None) if self._skip else self.train_data
        iterator = self._until_signal(data, lambda: self.batch % self.accumulate != 0)
        self._skip = 0
        pending = 0
        batch = next(iterator, _END)
        while batch is not _END:
            batch = batches.prepared(batch, self._device)
            self._items += self.count(batch)
            self.batch += 1
            # At its end the data is asked once more, so that it knows of that end when a checkpoint is written.
            ahead = None
            if self.batch == length:
                ahead = _END
                with contextlib.suppress(_Stopped):
                    ahead = next(iterator, _END)
            self.epoch_ended = ahead is _END
            pending += 1
            if self.accumulate == 1:
                self._norm = self.steps.step(batch)
            else:
                self.steps.micro(batch)
                if pending == self.accumulate or self.epoch_ended:
                    self._norm = self.steps.apply(1.0 / pending)
            if pending == self.accumulate or self.epoch_ended:
                pending = 0
                self._after_step()
                if self._limit() or self._finished():
                    return
            batch = next(iterator, _END) if ahead is None else ahead
        if pending:  # data of unknown length ended within a step
            self._norm = self.steps.apply(1.0 / pending)
            self._after_step()
        if self.batch == 0:
            raise ArgumentError("[fit] expected train_data with batches but it gave none")
        self.epoch_ended = True

    def _until_signal(self, data: Iterable[Any], within_step: Callable[[], bool] = lambda: False) -> Iterator[Any]:
        """The batches. A signal that went to the data's workers too is no error of theirs, unless it cuts a step."""
        try:
            yield from data
        except WorkerError:
            if not self._interrupted or within_step():
                raise
            raise _Stopped from None

    def _limit(self) -> bool:
        """Whether this was the last step, also where it is the last of an epoch, whose evaluation is still due."""
        return self.max_steps is not None and self.step >= self.max_steps

    def _after_step(self) -> None:
        self.step += 1
        if self.scheduler is not None and self.schedule == "step" and not self._follows_evaluations():
            self.scheduler.step()
        self._progress.total = self._last_step()
        if self.step % self.log_every == 0:
            self._log()
        if self._evaluation_missing() and not self._run_evaluation():
            return
        self._call("on_step_end")
        self._progress.step(self.step, self.epoch)

    def _end_epoch(self) -> None:
        if self.eval_data is not None and self.eval_every is None and not self._run_evaluation():
            return
        if self.scheduler is not None and self.schedule == "epoch" and not self._follows_evaluations():
            self.scheduler.step()
        self.epoch += 1
        self.batch = 0
        self.epoch_ended = False
        self._call("on_epoch_end")

    def _follows_evaluations(self) -> bool:
        return isinstance(self.scheduler, ReduceLROnPlateau)

    def _call(self, event: str, *args: Any) -> None:
        started = time.perf_counter()
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)
        self._since += time.perf_counter() - started  # speed is that of training

    # --- evaluation -------------------------------------------------------------------------------------------------

    def _evaluation_missing(self) -> bool:
        return (
            self.eval_data is not None
            and self.eval_every is not None
            and self.step > 0
            and self.step % self.eval_every == 0
            and self.evaluated_at != self.step
        )

    def _run_evaluation(self) -> bool:
        """Evaluate as part of the run. False if Ctrl-C cut it short: then it is done anew when the run is resumed."""
        started = time.perf_counter()
        drawn = default_generator.get_state()
        found = self._evaluated(self.eval_data)
        default_generator.set_state(drawn)  # what training draws does not depend on how often it is evaluated
        self._since += time.perf_counter() - started
        if found is None:
            return False
        self.metrics, self.evaluated_at = found, self.step
        if self._follows_evaluations():
            self.scheduler.step(found["loss"])
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in found.items())
        self._progress.message(f"step {self.step}  evaluation  {numbers}")
        self._call("on_eval_end", found)
        return True

    def evaluate(self, data: Iterable[Any] | None = None) -> dict[str, float]:
        """Loss and metrics over `data`, or over `eval_data`, with the model in evaluation mode.

        >>> trainer.evaluate()["loss"]
        """
        data = self.eval_data if data is None else data
        if data is None:
            raise ArgumentError("[evaluate] expected data but got none; pass it here or as eval_data")
        self._interrupted = False
        found = self._evaluated(data)
        assert found is not None
        return found

    def _evaluated(self, data: Any) -> dict[str, float] | None:
        for metric in (self.steps.eval_loss, *self.steps.metrics.values()):
            metric.reset()
        with self._evaluation_mode(), contextlib.suppress(_Stopped):
            for batch in self._until_signal(data):
                if self._interrupted:
                    return None
                batch = batches.prepared(batch, self._device)
                self.steps.evaluate(batch, batches.items_in(batch))
            return {
                "loss": self.steps.eval_loss.compute(),
                **{name: metric.compute() for name, metric in self.steps.metrics.items()},
            }
        return None

    def predict(self, data: Any) -> Any:
        """The model's outputs for all batches of `data` (a target in them is left out), or for one tensor, put
        together along the first axis.

        >>> trainer.predict(test_loader).shape
        (10000, 10)
        """
        listed = [data] if isinstance(data, Tensor) else data
        with self._evaluation_mode():
            parts = [self.steps.predict(batches.prepared(batch, self._device)) for batch in listed]
        if not parts:
            raise ArgumentError("[predict] expected data with batches but it gave none")
        return parts[0] if len(parts) == 1 else batches.joined(parts)

    @contextlib.contextmanager
    def _evaluation_mode(self) -> Iterator[None]:
        """Every module in evaluation mode, and then each in its own again: parts of a model may be frozen."""
        before = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            yield
        finally:
            for module, training in before:
                module.training = training

    # --- around the loop --------------------------------------------------------------------------------------------

    def _log(self) -> None:
        """Read the loss since the last log, and tell callbacks and progress."""
        loss = self.steps.window.compute()
        if math.isnan(loss) and not self.steps.window.read("count"):
            return  # no step since
        self.steps.window.reset()
        seconds = time.perf_counter() - self._since
        record: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch if self.batch else self.epoch - 1,  # that of the last step
            "loss": loss,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            f"{self.unit}_per_second": self._items / seconds if seconds > 0 else 0.0,
            **memory(),
        }
        if self._norm is not None:
            record["gradient_norm"] = self._norm.item()
        if not math.isfinite(loss):
            warnings.warn(
                f"the loss is {loss} at step {self.step}; a smaller learning rate, clip_norm or a GradScaler may help",
                RuntimeWarning,
                stacklevel=2,
            )
        self._items, self._since = 0, time.perf_counter()
        self._progress.log(record)
        self._call("on_log", record)

    def _last_step(self) -> int | None:
        """The step at which the run ends, as far as is known: a callback may move `max_steps`."""
        steps = self.max_steps
        length = batches.length_of(self.train_data)
        if self.max_epochs is not None and length is not None:
            in_epochs = -(-length // self.accumulate) * self.max_epochs
            steps = in_epochs if steps is None else min(steps, in_epochs)
        return steps

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        console = self._console if isinstance(self._console, Console) else Console(quiet=not self._console)
        with Progress(self._last_step(), self.unit, console) as self._progress:
            yield

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask the run to end. Python lets only the main thread catch them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if before[signal.SIGTERM] == signal.SIG_IGN:
            del before[signal.SIGTERM]
        before = {number: handler for number, handler in before.items() if handler is not None}  # None: not Python's
        try:
            for number in before:
                signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        # os.write, not print(), which must not be entered while it is running; with nobody to read it, it is left out
        words = b"\nstopping after this step\n"
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            words = b"\nstopping after this step; press Ctrl-C again to stop at once\n"
        else:
            self._terminated = True
        self._interrupted = True
        with contextlib.suppress(OSError):
            os.write(2, words)


def _terminate() -> None:
    """End as SIGTERM ends a program, with its status, but in order; a handler of the program's own comes first."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        raise SystemExit(128 + signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
