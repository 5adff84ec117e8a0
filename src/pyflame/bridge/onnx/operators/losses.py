"""Losses over classes."""

from __future__ import annotations

from pyflame.bridge.onnx.table import Call, operator
from pyflame.core.dtype import int64
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


def _loss(call: Call, logs: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Minus the logarithm at each target, weighted; targets that are ignored count nothing."""
    at = target.to(int64)
    ignored = call.get("ignore_index")
    valid = None if ignored is None else at != ignored
    at = at if valid is None else F["where"](valid, at, 0)
    picked = -F["gather"](logs, 1, at.unsqueeze(1)).squeeze(1)
    share = None if weight is None else F["take"](weight, at)
    if valid is not None:
        share = valid.to(logs.dtype) if share is None else share * valid.to(logs.dtype)
    picked = picked if share is None else picked * share
    reduction = call.get("reduction", "mean")
    if reduction == "none":
        return picked
    total = F["sum"](picked)
    if reduction == "sum":
        return total
    return F["mean"](picked) if share is None else total / F["sum"](share)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return _loss(call, x, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    call: Call, scores: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    logs = F["log_softmax"](scores, 1)
    return _loss(call, logs, target, weight), logs
