"""Losses that are short combinations of ops. The others (cross_entropy, mse_loss, ...) are ops themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


def reduce(op: str, loss: Tensor, reduction: str) -> Tensor:
    """The loss of each sample, their mean or their sum."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"[{op}] expected reduction 'mean', 'sum' or 'none' but got {reduction!r}")
    return loss if reduction == "none" else F[reduction](loss)


def _at_least_0(x: Tensor) -> Tensor:
    return F["clamp"](x, 0.0)


# --- distances --------------------------------------------------------------------------------------------------------


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last axis.

    >>> nn.functional.pairwise_distance(pf.tensor([[3.0, 4.0]]), pf.zeros(1, 2))
    tensor([5.0000])
    """
    return F["norm"](x1 - x2 + eps, p, -1, keepdim)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos of pairs with target 1; how far cos exceeds the margin for pairs with target -1.

    >>> nn.functional.cosine_embedding_loss(pf.ones(1, 2), pf.ones(1, 2), pf.tensor([1]))
    tensor(0.)
    """
    if target.ndim + 1 != input1.ndim or target.ndim + 1 != input2.ndim:
        raise ShapeError(
            "[cosine_embedding_loss] expected inputs (N, D) with target (N,), or (D,) with a number, but got "
            f"{input1.shape}, {input2.shape} and {target.shape}"
        )
    lengths = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cos = (input1 * input2).sum(-1) / lengths.sqrt()
    apart = F["where"](target == -1, _at_least_0(cos - margin), 0.0)
    return reduce("cosine_embedding_loss", F["where"](target == 1, 1.0 - cos, apart), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """How far the distance to `positive` plus a margin exceeds that to `negative`.

    With `swap` the distance from positive to negative counts where it is smaller.

    >>> nn.functional.triplet_margin_loss(pf.zeros(1, 2), pf.zeros(1, 2), pf.ones(1, 2) * 9)
    tensor(0.)
    """

    def distance(x1: Tensor, x2: Tensor) -> Tensor:
        return pairwise_distance(x1, x2, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet margin loss with a distance of one's own."""
    if margin <= 0:
        raise ArgumentError(f"[triplet_margin_loss] expected a margin above 0 but got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    far = distance(anchor, negative)
    if swap:
        far = F["minimum"](far, distance(positive, negative))
    return reduce("triplet_margin_loss", _at_least_0(distance(anchor, positive) - far + margin), reduction)


# --- margins ----------------------------------------------------------------------------------------------------------


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """How far input1 is from exceeding input2 by a margin (target 1), or the other way round (target -1).

    >>> nn.functional.margin_ranking_loss(pf.tensor([1.0]), pf.tensor([3.0]), pf.tensor([1.0]))
    tensor(2.)
    """
    return reduce("margin_ranking_loss", _at_least_0((input2 - input1) * target + margin), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """The input itself where the target is 1; how far it is below the margin where it is -1; both for other targets.

    >>> nn.functional.hinge_embedding_loss(pf.tensor([0.25, 0.25]), pf.tensor([1.0, -1.0]), reduction="none")
    tensor([0.2500, 0.7500])
    """
    near = F["where"](target == -1, 0.0, input)
    far = F["where"](target == 1, 0.0, _at_least_0(margin - input))
    return reduce("hinge_embedding_loss", near + far, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), with targets 1 and -1."""
    # softplus is log(1 + exp(x)) that does not overflow
    return reduce("soft_margin_loss", F["softplus"](-(input * target), 1.0, 80.0), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How far every other class comes within a margin of the right one: (N, C) scores, (N,) classes."""
    if p not in (1, 2):
        raise ArgumentError(f"[multi_margin_loss] expected p to be 1 or 2 but got {p}")
    input = input.reshape(1) if input.ndim == 0 else input
    target = target.reshape(()) if input.ndim == 1 else target
    classes = input.shape[-1]
    index = target.unsqueeze(-1)
    short = F["relu"](input - F["gather"](input, -1, index) + margin) ** p  # no gradient at the margin itself
    if weight is not None:
        short = short * F["take"](weight, target, 0).unsqueeze(-1)
    others = F["where"](F["one_hot"](target, classes) == 1, 0.0, short)
    return reduce("multi_margin_loss", others.sum(-1) / classes, reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """How far every other class comes within 1 of the right ones, which stand in target up to the first -1."""
    if input.shape != target.shape:
        raise ShapeError(
            f"[multilabel_margin_loss] expected a target of the input's shape {input.shape} but got {target.shape}"
        )
    if input.ndim == 0:
        input, target = input.reshape(1), target.reshape(1)
    classes = input.shape[-1]
    given = F["cumprod"]((target >= 0).to(input.dtype), -1)
    index = F["clamp"](target, 0)
    right = F["scatter_add"](F["mul"](input.detach(), 0.0), -1, index, given) > 0.0
    # (..., targets, classes): each right class against each other class
    short = F["relu"](1.0 - (F["gather"](input, -1, index).unsqueeze(-1) - input.unsqueeze(-2)))
    counted = F["where"](right.unsqueeze(-2), 0.0, short) * given.unsqueeze(-1)
    return reduce("multilabel_margin_loss", counted.sum((-2, -1)) / classes, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Binary cross-entropy of each of C classes, averaged over them: (N, C) scores, (N, C) of 0 and 1."""
    loss: Tensor = F["binary_cross_entropy_with_logits"](input, target, None, "none")
    loss = loss if weight is None else loss * weight
    return reduce("multilabel_soft_margin_loss", loss.mean(-1), reduction)


# --- likelihoods ------------------------------------------------------------------------------------------------------


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Counts that follow a Poisson distribution of rate exp(input), or of rate input without `log_input`.

    `full` adds Stirling's approximation of log(target!).

    >>> nn.functional.poisson_nll_loss(pf.tensor([0.0]), pf.tensor([3.0]))
    tensor(1.)
    """
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        above = F["where"](target > 1, target, 1.0)  # keeps the logarithm finite where it does not count
        stirling = above * above.log() - above + (above * (2.0 * math.pi)).log() * 0.5
        loss = loss + F["where"](target > 1, stirling, 0.0)
    return reduce("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Targets that follow normal distributions of mean `input` and variance `var`, which counts as at least eps.

    `full` adds the constant log(2 pi) / 2.

    >>> nn.functional.gaussian_nll_loss(pf.zeros(2), pf.ones(2), pf.ones(2))
    tensor(0.5000)
    """
    if not isinstance(var, Tensor):
        if var < 0:
            raise ArgumentError(f"[gaussian_nll_loss] expected a variance of at least 0 but got {var}")
        var = input.new_full(input.shape, var)
    if var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var.unsqueeze(-1)
    if var.shape not in (input.shape, input.shape[:-1] + (1,)):
        raise ShapeError(
            f"[gaussian_nll_loss] expected var of shape {input.shape} or {input.shape[:-1] + (1,)} but got {var.shape}"
        )
    bounded = var + (F["clamp"](var, eps) - var).detach()  # the gradient of var goes through the bound
    loss = (bounded.log() + (input - target) ** 2 / bounded) * 0.5
    loss = loss + 0.5 * math.log(2.0 * math.pi) if full else loss
    return reduce("gaussian_nll_loss", loss, reduction)
