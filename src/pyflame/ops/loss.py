"""Losses of pairs of numbers. Those of class indices are in class_loss.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.ir import F, Node, Sample, cast, composite, elementwise

REDUCTIONS = ("mean", "sum", "none")
declare_loss = functools.partial(composite, method=False, autocast="high")


def reduce_loss(op: str, loss: Node, reduction: str) -> Node:
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"[{op}] expected reduction 'mean', 'sum' or 'none' but got {reduction!r}")
    return loss if reduction == "none" else F.mean(loss) if reduction == "mean" else F.sum(loss)


def reduced(loss: Any, reduction: str) -> Any:
    """NumPy's twin of reduce_loss."""
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _by_element(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A reference from a function that gives the unreduced loss."""

    def reference(*args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
        return reduced(fn(*args, **kwargs), reduction)

    return reference


def _pairs(low: float, high: float, *settings: dict[str, Any]) -> Callable[[], list[Sample]]:
    """Input and target in an interval, each reduction, each of these further arguments, odd shapes."""

    def make() -> list[Sample]:
        rng = np.random.default_rng(13)
        x, y = rng.uniform(low, high, (4, 5)), rng.uniform(low, high, (4, 5))
        out = [Sample((x, y), {"reduction": r, **s}) for s in (settings or ({},)) for r in REDUCTIONS]
        return [
            *out,
            Sample((x.T[::2], y.T[::2])),
            Sample((x[0, 0, ...], y[0, 0, ...])),
            Sample((x[:0], y[:0]), {"reduction": "sum"}),
        ]

    return make


# --- distances ------------------------------------------------------------------------------------------------------


@declare_loss(
    reference=_by_element(lambda x, y: (x - y) ** 2),
    torch="nn.functional.mse_loss",
    samples=_pairs(-2, 2),
)
def mse_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """(input - target)^2, averaged.

    >>> pf.mse_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(2.)
    """
    return reduce_loss("mse_loss", F.square(input - target), reduction)


@declare_loss(
    reference=_by_element(lambda x, y: np.abs(x - y)),
    torch="nn.functional.l1_loss",
    samples=_pairs(-2, 2),
)
def l1_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """|input - target|, averaged.

    >>> pf.l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(1.)
    """
    return reduce_loss("l1_loss", F.abs(input - target), reduction)


def _huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    d = np.abs(x - y)
    return np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@declare_loss(
    reference=_by_element(lambda x, y, beta=1.0: _huber(x, y, beta) / beta if beta else np.abs(x - y)),
    torch="nn.functional.smooth_l1_loss",
    samples=_pairs(-2, 2, {}, {"beta": 0.4}, {"beta": 0.0}),
)
def smooth_l1_loss(input: Node, target: Node, reduction: str = "mean", beta: float = 1.0) -> Node:
    """d^2 / (2 beta) for differences d below beta, else |d| - beta / 2; averaged.

    >>> pf.smooth_l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.7500)
    """
    if beta < 0:
        raise ArgumentError(f"[smooth_l1_loss] expected beta of at least 0 but got {beta}")
    if beta == 0:
        return F.l1_loss(input, target, reduction)
    d = F.abs(input - target)
    return reduce_loss("smooth_l1_loss", F.where(d < beta, F.square(d) * (0.5 / beta), d - 0.5 * beta), reduction)


@declare_loss(
    reference=_by_element(_huber),
    torch="nn.functional.huber_loss",
    samples=_pairs(-2, 2, {}, {"delta": 0.4}),
)
def huber_loss(input: Node, target: Node, reduction: str = "mean", delta: float = 1.0) -> Node:
    """d^2 / 2 for differences d up to delta, else delta * (|d| - delta / 2); averaged.

    >>> pf.huber_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.7500)
    """
    if delta <= 0:
        raise ArgumentError(f"[huber_loss] expected delta above 0 but got {delta}")
    d = F.abs(input - target)
    return reduce_loss("huber_loss", F.where(d <= delta, F.square(d) * 0.5, d * delta - 0.5 * delta * delta), reduction)


def check_shapes(op: str, input: Node, target: Node) -> None:
    if input.shape != target.shape:
        raise ShapeError(f"[{op}] expected input and target of one shape but got {input.shape} and {target.shape}")


# --- two classes ----------------------------------------------------------------------------------------------------


def _bce(x: Any, y: Any, weight: Any = None) -> Any:
    loss = -(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log1p(-x), -100))
    return loss if weight is None else loss * weight


def _bce_grad(g: Node, x: Node, y: Node) -> tuple[Node, Node]:
    # d/dx = (x - y) / (x (1 - x)), kept finite; d/dy = log(1 - x) - log(x), clamped as in the loss
    slope = (x - y) / F.clamp(x * (1.0 - x), min=1e-12)
    return g * slope, g * (F.clamp(F.log1p(-x), min=-100.0) - F.clamp(F.log(x), min=-100.0))


@elementwise(
    "-({y} * pf_max(pf_log({x}), ({T})-100) + (({T})1 - {y}) * pf_max(pf_log1p(-{x}), ({T})-100))",
    reference=_bce,
    grad=_bce_grad,
    dtype="float",
    cost=34,
    public=False,
)
def bce_terms(x: Node, y: Node) -> Node:
    """-(y log(x) + (1 - y) log(1 - x)), logarithms held above -100."""


def _bce_samples() -> list[Sample]:
    weight = np.array([0.5, 1.0, 2.0, 0.1, 3.0])
    x = np.random.default_rng(14).uniform(0.05, 0.95, (4, 5))
    edge = Sample((np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])), {"reduction": "none"}, grad=False)
    return [*_pairs(0.05, 0.95)(), Sample((x, x[::-1].copy()), {"weight": weight}), edge]


def _bce_oracle(torch: Any, input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    """torch's own refuses a weight that requires grad."""
    loss = torch.nn.functional.binary_cross_entropy(input, target, reduction="none")
    return reduced(loss if weight is None else loss * weight, reduction)


@declare_loss(
    reference=_by_element(_bce),
    torch=_bce_oracle,
    samples=_bce_samples,
)
def binary_cross_entropy(input: Node, target: Node, weight: Node | None = None, reduction: str = "mean") -> Node:
    """-(target * log(input) + (1 - target) * log(1 - input)), averaged; logarithms are held above -100.

    >>> pf.binary_cross_entropy(pf.tensor([0.5, 0.9]), pf.tensor([1.0, 1.0]))
    tensor(0.3993)
    """
    check_shapes("binary_cross_entropy", input, target)
    loss = F.bce_terms(input, target)
    return reduce_loss("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


def _logits(x: Any, y: Any, weight: Any = None, pos_weight: Any = None) -> Any:
    scale = 1 if pos_weight is None else 1 + (pos_weight - 1) * y
    loss = (1 - y) * x + scale * np.logaddexp(-x, 0)
    return loss if weight is None else loss * weight


def _logits_oracle(
    torch: Any, input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """torch's own refuses weights that require grad."""
    scale = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    loss = (1 - target) * input - scale * torch.nn.functional.logsigmoid(input)
    return reduced(loss if weight is None else loss * weight, reduction)


def _logits_samples() -> list[Sample]:
    rng = np.random.default_rng(15)
    x, y, weight = rng.uniform(-4, 4, (4, 5)), rng.uniform(0, 1, (4, 5)), rng.uniform(0.5, 2, (5,))
    large = Sample((np.array([80.0, -80.0, 800.0]), np.array([1.0, 1.0, 0.0])), {"reduction": "none"})
    return [
        *_pairs(0.05, 0.95)(),
        large,
        Sample((x, y), {"weight": weight}),
        Sample((x, y), {"pos_weight": weight}),
        Sample((x, y), {"weight": weight, "pos_weight": weight, "reduction": "sum"}),
    ]


@declare_loss(
    reference=_by_element(_logits),
    torch=_logits_oracle,
    samples=_logits_samples,
)
def binary_cross_entropy_with_logits(
    input: Node, target: Node, weight: Node | None = None, reduction: str = "mean", pos_weight: Node | None = None
) -> Node:
    """binary_cross_entropy(sigmoid(input), target) without its overflows; pos_weight scales the loss of positives.

    >>> pf.binary_cross_entropy_with_logits(pf.tensor([0.0, 2.0]), pf.tensor([1.0, 1.0]))
    tensor(0.4100)
    """
    op = "binary_cross_entropy_with_logits"
    check_shapes(op, input, target)
    # -y log s(x) - (1 - y) log(1 - s(x)) = softplus(x) - x y;  with p: (1 - y) x + (1 + (p - 1) y) softplus(-x)
    if pos_weight is None:
        loss = F.softplus(input, 1.0, math.inf) - input * target
    else:
        loss = (1.0 - target) * input + ((pos_weight - 1.0) * target + 1.0) * F.softplus(-input, 1.0, math.inf)
    loss = loss if weight is None else loss * weight
    # PyTorch computes in the memory of 1 - target, so the result has the target's dtype
    return reduce_loss(op, cast(loss, target.dtype) if target.dtype.is_float else loss, reduction)


def _kl_reference(x: Any, y: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    loss = np.exp(y) * (y - x) if log_target else y * (np.log(np.where(y == 0, 1, y)) - x)
    return loss.sum() / x.shape[0] if reduction == "batchmean" else reduced(loss, reduction)


def _kl_samples() -> list[Sample]:
    rng = np.random.default_rng(18)
    x, y = rng.uniform(-3, -0.1, (4, 5)), rng.dirichlet(np.ones(5), 4)
    zero = Sample((x[0], np.array([0.0, 0.5, 0.5, 0.0, 0.0])), grad=False)
    plain = [Sample((x, y), {"reduction": r}) for r in (*REDUCTIONS, "batchmean")]
    return [
        *plain,
        *[Sample((x, np.log(y)), {"reduction": r, "log_target": True}) for r in (*REDUCTIONS, "batchmean")],
        zero,
    ]


@declare_loss(reference=_kl_reference, torch="nn.functional.kl_div", samples=_kl_samples)
def kl_div(input: Node, target: Node, reduction: str = "mean", log_target: bool = False) -> Node:
    """target * (log(target) - input), averaged: the input holds log-probabilities, the target probabilities or, with
    log_target, their logarithms. "batchmean" divides the sum by the first axis, as the definition does.

    >>> pf.kl_div(pf.tensor([[-0.7, -0.7]]), pf.tensor([[0.5, 0.5]]), reduction="batchmean")
    tensor(0.0069)
    """
    # 0 log 0 = 0, also in the gradient
    log = target if log_target else F.log(F.where(F.eq(target, 0.0), 1.0, target))
    loss = (F.exp(target) if log_target else target) * (log - input)
    if reduction == "batchmean":
        return F.sum(loss) / (input.shape[0] if input.ndim else 1)
    return reduce_loss("kl_div", loss, reduction)
