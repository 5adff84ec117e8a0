"""The functions of a Trainer that compute. Each is one jitted function, so a whole optimiser step is one plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError, type_name
from pyflame.optim import clip_grad_norm_
from pyflame.tensor import Tensor
from pyflame.tensor.creation import zeros_like
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.tensor import read
from pyflame.train.metrics import MeanLoss, Metric
from pyflame.transform import autocast, jit


class Steps:
    """What happens to a batch, with the loss accumulated in `window`.

    `compute(batch)` gives (loss, prediction, target). Without accumulation `step` is all there is; with it `micro` adds
    a batch's gradients to `.grad` and `apply` turns the sum into a mean and updates.
    """

    def __init__(
        self,
        compute: Callable[[Any], tuple[Tensor, Any, Any]],
        predict: Callable[[Any], Any],
        optimizer: Any,
        metrics: dict[str, Metric],
        *,
        autocast_dtype: object = None,
        scaler: Any = None,
        clip_norm: float | None = None,
        compiled: bool = True,
    ) -> None:
        self._compute = compute
        self._forward = predict
        self.optimizer = optimizer
        self.metrics = metrics
        self.autocast_dtype = autocast_dtype
        self.scaler = scaler
        self.clip_norm = clip_norm
        self.window = MeanLoss()  # of training, since the last log
        self.eval_loss = MeanLoss()
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        wrap: Callable[[Any], Any] = jit if compiled else lambda function: function
        self.step = wrap(self._step)
        self.micro = wrap(self._micro)
        self.apply = wrap(self._apply)
        self.evaluate = wrap(self._evaluate)
        self.predict = wrap(self._predict)

    def _cast(self) -> Any:
        return autocast(self.autocast_dtype) if self.autocast_dtype is not None else nullcontext()

    def _loss(self, batch: Any) -> tuple[Tensor, Any, Any]:
        with self._cast():
            loss, prediction, target = self._compute(batch)
        if not isinstance(loss, Tensor):
            raise ArgumentError(f"[Trainer] expected a loss that is a tensor but got {type_name(loss)}")
        if loss.numel() != 1:
            raise ShapeError(
                f"[Trainer] expected a loss with one element but got shape {loss.shape}; reduce it with .mean()"
            )
        return loss.reshape(()), prediction, target

    # --- training ---------------------------------------------------------------------------------------------------

    def _backward(self, batch: Any) -> None:
        loss, _, _ = self._loss(batch)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        self.window.update(loss.detach())

    def _update(self) -> Tensor | None:
        """Clip and step; gives the norm of the gradients before they were clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = self._clipped()
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        return norm

    def _clipped(self) -> Tensor | None:
        return None if self.clip_norm is None else clip_grad_norm_(self.parameters, self.clip_norm)

    def _step(self, batch: Any) -> Tensor | None:
        self._backward(batch)
        norm = self._update()
        self.optimizer.zero_grad()
        return norm

    def start_accumulating(self) -> None:
        """Gradients exist from the start, so that the first batch of a step runs the same plan as the others."""
        for p in self.parameters:
            if p.grad is None and p.requires_grad:
                p.grad = zeros_like(p)

    def _micro(self, batch: Any) -> None:
        self._backward(batch)

    def _apply(self, share: float) -> Tensor | None:
        """Update with the gradients' sum times `share`, one over the number of batches."""
        with no_grad():
            for p in self.parameters:
                read(p)  # a trace must know whose gradient it is about to read
                if p.grad is not None:
                    p.grad = p.grad * share
        norm = self._update()
        self.optimizer.zero_grad(set_to_none=False)
        return norm

    # --- the rest ---------------------------------------------------------------------------------------------------

    def _evaluate(self, batch: Any, count: int) -> None:
        with no_grad():
            loss, prediction, target = self._loss(batch)
            self.eval_loss.update(loss, count)
            if self.metrics and (prediction is None or target is None):
                raise ArgumentError(
                    "[Trainer] expected predictions and targets for the metrics but the model gives the loss alone; "
                    "pass loss_fn, or override compute"
                )
            for metric in self.metrics.values():
                metric.update(prediction, target)

    def _predict(self, batch: Any) -> Any:
        with no_grad(), self._cast():
            return self._forward(batch)
