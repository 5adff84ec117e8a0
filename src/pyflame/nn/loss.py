"""Losses as modules, and distances. `reduction` is 'mean', 'sum' or 'none' everywhere.

`size_average` and `reduce` are PyTorch's older words for it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from pyflame.nn import functional
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.ops.linear_loss import LinearCrossEntropyOptions
from pyflame.tensor import Tensor


class _Loss(Module):
    """Holds settings and hands them to `_function`, by name. Tensors among them are buffers."""

    _function: str
    reduction: str = "mean"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str | None = None,
        **settings: Any,
    ) -> None:
        """The first three as in PyTorch, whose programs have losses of their own that derive from this."""
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        if reduction is not None:
            settings["reduction"] = reduction
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *tensors: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        loss: Tensor = getattr(functional, self._function)(*tensors, **settings)
        return loss


class _WeightedLoss(_Loss):
    """A loss with a weight for each class."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight, **settings)


class _Pair(_Loss):
    """A loss of (input, target) with nothing to set but the reduction."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)


class MSELoss(_Pair):
    """The mean of (input - target)^2.

    >>> nn.MSELoss()(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(2.)
    """

    _function = "mse_loss"


class L1Loss(_Pair):
    """The mean of |input - target|."""

    _function = "l1_loss"


class SmoothL1Loss(_Loss):
    """(input - target)^2 / 2 / beta where they are closer than beta, else |input - target| - beta / 2."""

    _function = "smooth_l1_loss"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction, beta=beta)


class HuberLoss(_Loss):
    """(input - target)^2 / 2 where they are closer than delta, else delta * (|input - target| - delta / 2)."""

    _function = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


# --- classes ----------------------------------------------------------------------------------------------------------


class CrossEntropyLoss(_Loss):
    """-log(softmax(input)[target]): scores (N, C, ...), and class indices (N, ...) or probabilities (N, C, ...).

    >>> nn.CrossEntropyLoss()(pf.zeros(3, 4), pf.tensor([0, 1, 3]))
    tensor(1.3863)
    """

    _function = "cross_entropy"

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        settings = {"weight": weight, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
        super().__init__(size_average, reduce, reduction, **settings)


class LinearCrossEntropyLoss(_Loss):
    """The cross-entropy of a linear layer's logits, which are not all in memory where they are many (see
    `nn.functional.linear_cross_entropy`). With `out_features` an input has as many targets.

    >>> loss = nn.LinearCrossEntropyLoss(16, 1000)
    >>> loss(pf.randn(4, 16), pf.tensor([1, 2, 3, 4])).shape
    ()
    """

    _function = "linear_cross_entropy"

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        super().__init__(
            reduction=reduction,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            options=options,
        )
        self.num_classes, self.out_features = num_classes, out_features
        self.linear = Linear(in_features, prod((num_classes, *out_features)), bias, device=device, dtype=dtype)

    def forward(self, *tensors: Tensor) -> Tensor:
        shape, layer = (self.num_classes, *self.out_features), self.linear
        bias = None if layer.bias is None else layer.bias.reshape(shape)
        settings = {name: getattr(self, name) for name in self._settings}
        input, target = tensors
        head = layer.weight.reshape(*shape, layer.in_features)
        return functional.linear_cross_entropy(input, head, target, linear_bias=bias, **settings)


class NLLLoss(_Loss):
    """-input[target]: log-probabilities (N, C, ...) and class indices (N, ...)."""

    _function = "nll_loss"

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight, ignore_index=ignore_index)


class NLLLoss2d(NLLLoss):
    """NLLLoss by an older name."""


class BCELoss(_Loss):
    """Binary cross-entropy of probabilities: -(t log p + (1 - t) log(1 - p))."""

    _function = "binary_cross_entropy"

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight)


class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy of sigmoid(input), in one stable step.

    >>> nn.BCEWithLogitsLoss()(pf.zeros(2), pf.tensor([0.0, 1.0]))
    tensor(0.6931)
    """

    _function = "binary_cross_entropy_with_logits"

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight, pos_weight=pos_weight)


class KLDivLoss(_Loss):
    """target * (log(target) - input), of log-probabilities and probabilities; also `reduction="batchmean"`."""

    _function = "kl_div"

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction, log_target=log_target)


class MultiLabelSoftMarginLoss(_Loss):
    """Binary cross-entropy of each of C classes, averaged over them."""

    _function = "multilabel_soft_margin_loss"

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, weight=weight)


# --- counts and measurements ------------------------------------------------------------------------------------------


class PoissonNLLLoss(_Loss):
    """Counts that follow a Poisson distribution of rate exp(input), or of rate input without `log_input`."""

    _function = "poisson_nll_loss"

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """loss(input, target, var): targets that follow normal distributions of mean `input` and variance `var`."""

    _function = "gaussian_nll_loss"

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


# --- margins ----------------------------------------------------------------------------------------------------------


class CosineEmbeddingLoss(_Loss):
    """loss(x1, x2, target): 1 - cos of pairs with target 1; how far cos exceeds the margin with target -1."""

    _function = "cosine_embedding_loss"

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, margin=margin)


class MarginRankingLoss(_Loss):
    """loss(x1, x2, target): how far x1 is from exceeding x2 by a margin, or the other way round with target -1."""

    _function = "margin_ranking_loss"

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, margin=margin)


class HingeEmbeddingLoss(_Loss):
    """The input where the target is 1; how far it is below the margin where it is -1."""

    _function = "hinge_embedding_loss"

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, margin=margin)


class SoftMarginLoss(_Pair):
    """log(1 + exp(-target * input)), with targets 1 and -1."""

    _function = "soft_margin_loss"


class MultiMarginLoss(_Loss):
    """How far every other class comes within a margin of the right one."""

    _function = "multi_margin_loss"

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, p=p, margin=margin, weight=weight)


class MultiLabelMarginLoss(_Pair):
    """How far every other class comes within 1 of the right ones, which stand in target up to the first -1."""

    _function = "multilabel_margin_loss"


class TripletMarginLoss(_Loss):
    """loss(anchor, positive, negative): how far the first distance plus a margin exceeds the second.

    >>> nn.TripletMarginLoss()(pf.zeros(1, 2), pf.zeros(1, 2), pf.ones(1, 2) * 9)
    tensor(0.)
    """

    _function = "triplet_margin_loss"

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction, margin=margin, p=p, eps=eps, swap=swap)


class CTCLoss(_Loss):
    """Connectionist temporal classification: -log of the probability that the steps spell the targets.

    >>> nn.CTCLoss()(pf.full((3, 1, 2), 0.5).log(), pf.tensor([[1]]), [3], [1])
    tensor(0.2877)
    """

    _function = "ctc_loss"

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class TripletMarginWithDistanceLoss(_Loss):
    """The triplet margin loss with a distance of one's own."""

    _function = "triplet_margin_with_distance_loss"

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        distance = PairwiseDistance() if distance_function is None else distance_function
        super().__init__(distance_function=distance, margin=margin, swap=swap, reduction=reduction)


# --- distances --------------------------------------------------------------------------------------------------------


class CosineSimilarity(_Loss):
    """The cosine of the angle between x1 and x2 along an axis.

    >>> nn.CosineSimilarity()(pf.ones(1, 3), pf.ones(1, 3))
    tensor([1.])
    """

    _function = "cosine_similarity"

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(_Loss):
    """The p-norm of x1 - x2 + eps over the last axis."""

    _function = "pairwise_distance"

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
