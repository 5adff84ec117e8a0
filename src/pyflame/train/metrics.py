"""Metrics: sums kept in tensor cells, so updates can be part of a jitted step and no value leaves the device until
`compute`.

Class scores come as (N, C), (N, C, d1, ...) as for `cross_entropy`, or with the classes last, (B, T, V); targets are
class indices of the same shape without that axis. Predictions of the target's own shape are labels, or for floats
probabilities that `threshold` turns into labels (0.5; 0.0 for logits).
"""

from __future__ import annotations

import math
from typing import Any

from pyflame.core.dtype import DType, float64, int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval


class Metric:
    """Base of all metrics: `update` with each batch, `compute` at the end, `reset` to begin anew.

    A metric of your own names its sums in `super().__init__` and adds to them in `update`:

    >>> class Bias(Metric):
    ...     name = "bias"
    ...     def __init__(self):
    ...         super().__init__(error=((), pf.float64), count=((), pf.int64))
    ...     def update(self, prediction, target):
    ...         self.add(error=(prediction - target).sum(), count=target.numel())
    ...     def compute(self):
    ...         return self.read("error") / self.read("count")
    """

    name = "metric"

    def __init__(self, **sums: tuple[tuple[int, ...], DType]) -> None:
        self.cells = {name: zeros(*shape, dtype=dtype) for name, (shape, dtype) in sums.items()}
        eval(self.cells)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take a batch into account."""
        raise NotImplementedError(f"[{type(self).__name__}] expected the metric to define update but it does not")

    def compute(self) -> float:
        """The value over all batches since the last reset; nan if there were none."""
        raise NotImplementedError(f"[{type(self).__name__}] expected the metric to define compute but it does not")

    def reset(self) -> None:
        """Forget all batches."""
        for cell in self.cells.values():
            cell.zero_()
        eval(self.cells)

    def add(self, **amounts: Tensor | float) -> None:
        """Add to the sums."""
        with no_grad():
            for name, amount in amounts.items():
                cell = self.cells[name]
                cell.add_(amount.detach().to(cell.dtype) if isinstance(amount, Tensor) else amount)
        if state.tracer is None:
            eval(self.cells)  # else the graph, and all batches with it, would be held until compute()

    def read(self, name: str) -> Any:
        """A sum as a Python number, or a list of them."""
        return self.cells[name].tolist()

    def state_dict(self) -> dict[str, Tensor]:
        return {name: cell._snapshot() for name, cell in self.cells.items()}

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Continue from saved sums."""
        for name, cell in self.cells.items():
            cell.copy_(state_dict[name])
        eval(self.cells)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan


# --- classes ----------------------------------------------------------------------------------------------------------


def _scores_last(op: str, prediction: Tensor, target: Tensor) -> Tensor:
    """Class scores with the classes on the last axis: (N, C, d1, ...) -> (N, d1, ..., C)."""
    shape = prediction.shape
    if len(shape) == target.ndim + 1:
        if target.shape == shape[:1] + shape[2:]:  # PyTorch's order comes first where both would fit
            return FUNCTIONS["movedim"](prediction, 1, -1)  # type: ignore[no-any-return]
        if target.shape == shape[:-1]:
            return prediction
    raise ShapeError(
        f"[{op}] expected scores of shape (N, C, ...) or (..., C) for targets of shape {target.shape} but got {shape}"
    )


def _labels(op: str, prediction: Tensor, target: Tensor, threshold: float) -> Tensor:
    """The predicted class of each target."""
    if prediction.shape == target.shape:
        return (prediction > threshold).to(int64) if prediction.dtype.is_float else prediction
    return _scores_last(op, prediction, target).argmax(-1)


class Accuracy(Metric):
    """The share of targets that are among the `top_k` classes of highest score.

    Of equal scores the first counts as higher, and a class whose score is nan is never right.

    >>> metric = Accuracy()
    >>> metric.update(pf.tensor([[0.1, 0.9], [0.8, 0.2]]), pf.tensor([1, 1]))
    >>> metric.compute()
    0.5
    """

    def __init__(self, top_k: int = 1, *, threshold: float = 0.5, ignore_index: int | None = None) -> None:
        if not isinstance(top_k, int) or top_k < 1:
            raise ArgumentError(f"[Accuracy] expected top_k of at least 1 but got {top_k!r}")
        super().__init__(correct=((), int64), count=((), int64))
        self.name = "accuracy" if top_k == 1 else f"top{top_k}_accuracy"
        self.top_k = top_k
        self.threshold = threshold
        self.ignore_index = ignore_index

    def update(self, prediction: Tensor, target: Tensor) -> None:
        counted = None if self.ignore_index is None else target != self.ignore_index
        if prediction.shape == target.shape:
            correct = _labels("Accuracy", prediction, target, self.threshold) == target
        else:
            correct = self._rank(_scores_last("Accuracy", prediction, target), target, counted) < self.top_k
        self.add(
            correct=(correct if counted is None else correct & counted).sum(),
            count=target.numel() if counted is None else counted.sum(),
        )

    @staticmethod
    def _rank(scores: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        """How many classes come before the right one."""
        where = FUNCTIONS["where"]
        index = (target if counted is None else where(counted, target, 0)).to(int64).unsqueeze(-1)
        own = FUNCTIONS["gather"](scores, -1, index)
        earlier = arange(scores.shape[-1]) < index
        before = ~(scores <= own) | ((scores == own) & earlier)  # "not <=" is true of nan
        return before.sum(-1)  # type: ignore[no-any-return]

    def compute(self) -> float:
        return _ratio(self.read("correct"), self.read("count"))


class _Counts(Metric):
    """Base of precision, recall and F1: true positives, and how often each class was predicted and was the target."""

    def __init__(
        self,
        num_classes: int | None = None,
        average: str | None = None,
        *,
        threshold: float = 0.5,
        ignore_index: int | None = None,
    ) -> None:
        average = average or ("binary" if num_classes is None else "macro")
        if average not in ("binary", "macro", "micro"):
            raise ArgumentError(
                f"[{type(self).__name__}] expected average 'binary', 'macro' or 'micro' but got {average!r}"
            )
        if num_classes is None and average != "binary":
            raise ArgumentError(
                f"[{type(self).__name__}] expected num_classes for average={average!r} but got None; say how many "
                "classes there are"
            )
        self.num_classes = 2 if num_classes is None else num_classes
        self.average = average
        self.threshold = threshold
        self.ignore_index = ignore_index
        each = ((self.num_classes,), int64)
        super().__init__(true=each, predicted=each, actual=each)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        labels = _labels(type(self).__name__, prediction, target, self.threshold).reshape(-1, 1)
        target = target.reshape(-1, 1)
        classes = arange(self.num_classes)
        is_predicted, is_actual = labels == classes, target == classes
        if self.ignore_index is not None:
            counted = target != self.ignore_index
            is_predicted, is_actual = is_predicted & counted, is_actual & counted
        self.add(true=(is_predicted & is_actual).sum(0), predicted=is_predicted.sum(0), actual=is_actual.sum(0))

    def ratio(self, true: int, predicted: int, actual: int) -> float:
        """The value for one class."""
        raise NotImplementedError

    def compute(self) -> float:
        rows = list(zip(self.read("true"), self.read("predicted"), self.read("actual"), strict=True))
        if self.average == "binary":
            return self.ratio(*rows[1])
        if self.average == "micro":
            return self.ratio(*(sum(column) for column in zip(*rows, strict=True)))
        # A class that neither occurred nor was predicted says nothing.
        values = [self.ratio(*row) for row in rows if row[1] or row[2]]
        return sum(values) / len(values) if values else math.nan


class Precision(_Counts):
    """Of what was predicted as a class, the share that is of that class; 0 for a class that is never predicted.

    >>> metric = Precision()
    >>> metric.update(pf.tensor([1, 1, 0]), pf.tensor([1, 0, 0]))
    >>> metric.compute()
    0.5
    """

    name = "precision"

    def ratio(self, true: int, predicted: int, actual: int) -> float:
        return true / predicted if predicted else 0.0


class Recall(_Counts):
    """Of what is of a class, the share that was predicted as such; 0 for a class that does not occur."""

    name = "recall"

    def ratio(self, true: int, predicted: int, actual: int) -> float:
        return true / actual if actual else 0.0


class F1(_Counts):
    """2 * precision * recall / (precision + recall): of class 1 ("binary"), or of `num_classes` classes, averaged over
    classes ("macro") or over all predictions ("micro").

    >>> metric = F1(num_classes=3)
    >>> metric.update(pf.tensor([0, 1, 2]), pf.tensor([0, 1, 1]))
    >>> round(metric.compute(), 3)
    0.556
    """

    name = "f1"

    def ratio(self, true: int, predicted: int, actual: int) -> float:
        return 2 * true / (predicted + actual) if predicted + actual else 0.0


class Perplexity(Metric):
    """exp of the mean cross-entropy per token, of logits (B, T, V) or (N, V) and the tokens they should predict.

    >>> metric = Perplexity()
    >>> metric.update(pf.zeros(2, 3, 8), pf.zeros(2, 3, dtype=pf.int64))
    >>> round(metric.compute(), 4)
    8.0
    """

    name = "perplexity"

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__(loss=((), float64), count=((), int64))
        self.ignore_index = ignore_index

    def update(self, prediction: Tensor, target: Tensor) -> None:
        logits = _scores_last("Perplexity", prediction, target)
        logits, target = logits.reshape(-1, logits.shape[-1]), target.reshape(-1)
        loss = FUNCTIONS["cross_entropy"](logits, target, ignore_index=self.ignore_index, reduction="sum")
        self.add(loss=loss, count=(target != self.ignore_index).sum())

    def compute(self) -> float:
        mean = _ratio(self.read("loss"), self.read("count"))
        return math.exp(mean) if mean < 709.0 else mean if math.isnan(mean) else math.inf


# --- numbers ----------------------------------------------------------------------------------------------------------


def _difference(op: str, prediction: Tensor, target: Tensor) -> Tensor:
    if prediction.shape != target.shape:  # broadcasting (N, 1) with (N,) is a classic mistake
        raise ShapeError(
            f"[{op}] expected a prediction of the target's shape {target.shape} but got {prediction.shape}; reshape it"
        )
    return prediction.to(float64) - target.to(float64)


class MAE(Metric):
    """Mean absolute error.

    >>> metric = MAE(); metric.update(pf.tensor([1.0, 3.0]), pf.tensor([2.0, 3.0])); metric.compute()
    0.5
    """

    name = "mae"

    def __init__(self) -> None:
        super().__init__(error=((), float64), count=((), int64))

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.add(error=_difference("MAE", prediction, target).abs().sum(), count=target.numel())

    def compute(self) -> float:
        return _ratio(self.read("error"), self.read("count"))


class MSE(Metric):
    """Mean squared error.

    >>> metric = MSE(); metric.update(pf.tensor([1.0, 5.0]), pf.tensor([2.0, 3.0])); metric.compute()
    2.5
    """

    name = "mse"

    def __init__(self) -> None:
        super().__init__(error=((), float64), count=((), int64))

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.add(error=_difference("MSE", prediction, target).square().sum(), count=target.numel())

    def compute(self) -> float:
        return _ratio(self.read("error"), self.read("count"))


class R2(Metric):
    """1 - (squared error) / (squared distance of the targets from their mean), the mean over `outputs` columns.

    >>> metric = R2(); metric.update(pf.tensor([1.0, 2.0, 3.0]), pf.tensor([1.0, 2.0, 4.0])); round(metric.compute(), 4)
    0.7857
    """

    name = "r2"

    def __init__(self, outputs: int = 1) -> None:
        if not isinstance(outputs, int) or outputs < 1:
            raise ArgumentError(f"[R2] expected at least 1 output but got {outputs!r}")
        each = ((outputs,), float64)
        super().__init__(error=each, shift=each, total=each, squares=each, count=((), int64))
        self.outputs = outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        error = _difference("R2", prediction, target)
        if self.outputs > 1 and target.shape[-1:] != (self.outputs,):
            raise ShapeError(f"[R2] expected targets of shape (..., {self.outputs}) but got {target.shape}")
        error, wide = error.reshape(-1, self.outputs), target.detach().to(float64).reshape(-1, self.outputs)
        # Sums of squares cancel badly far from 0, so targets are counted from the mean of the first batch.
        first, shift = self.cells["count"] == 0, self.cells["shift"]
        shift.copy_(FUNCTIONS["where"](first, wide.mean(0), shift))
        wide = wide - shift
        self.add(error=error.square().sum(0), total=wide.sum(0), squares=wide.square().sum(0), count=target.numel())

    def compute(self) -> float:
        count = self.read("count") / self.outputs
        if not count:
            return math.nan
        values = []
        for error, total, squares in zip(self.read("error"), self.read("total"), self.read("squares"), strict=True):
            spread = squares - total * total / count
            # Constant targets: right is 1 and wrong is 0, as there is nothing to explain.
            values.append(1.0 - error / spread if spread > 0.0 else float(error == 0.0))
        return sum(values) / len(values)


class MeanLoss(Metric):
    """The mean of losses that are means over `count` items each.

    >>> metric = MeanLoss(); metric.update(pf.tensor(2.0), 3); metric.update(pf.tensor(6.0), 1); metric.compute()
    3.0
    """

    name = "loss"

    def __init__(self) -> None:
        super().__init__(loss=((), float64), count=((), int64))

    def update(self, loss: Tensor, count: int = 1) -> None:  # type: ignore[override]
        self.add(loss=loss.to(float64) * count, count=count)

    def compute(self) -> float:
        return _ratio(self.read("loss"), self.read("count"))
