"""Losses. Cross-entropy with class indices stays whole in the graph: its gradient is softmax minus one-hot."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import drop_axes
from pyflame.ir import F, Meta, Node, Sample, cast, composite, elementwise, primitive
from pyflame.ir.opdef import COMPOSITE

_REDUCTIONS = ("mean", "sum", "none")
_loss = functools.partial(composite, method=False, autocast="high")


def _reduce(op: str, loss: Node, reduction: str) -> Node:
    if reduction not in _REDUCTIONS:
        raise ArgumentError(f"[{op}] expected reduction 'mean', 'sum' or 'none' but got {reduction!r}")
    return loss if reduction == "none" else F.mean(loss) if reduction == "mean" else F.sum(loss)


def _reduced(loss: Any, reduction: str) -> Any:
    """NumPy's twin of _reduce."""
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _by_element(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A reference from a function that gives the unreduced loss."""

    def reference(*args: Any, reduction: str = "mean", **kwargs: Any) -> Any:
        return _reduced(fn(*args, **kwargs), reduction)

    return reference


def _pairs(low: float, high: float, *settings: dict[str, Any]) -> Callable[[], list[Sample]]:
    """Input and target in an interval, each reduction, each of these further arguments, odd shapes."""

    def make() -> list[Sample]:
        rng = np.random.default_rng(13)
        x, y = rng.uniform(low, high, (4, 5)), rng.uniform(low, high, (4, 5))
        out = [Sample((x, y), {"reduction": r, **s}) for s in (settings or ({},)) for r in _REDUCTIONS]
        return [
            *out,
            Sample((x.T[::2], y.T[::2])),
            Sample((x[0, 0, ...], y[0, 0, ...])),
            Sample((x[:0], y[:0]), {"reduction": "sum"}),
        ]

    return make


# --- distances ------------------------------------------------------------------------------------------------------


@_loss(
    reference=_by_element(lambda x, y: (x - y) ** 2),
    torch="nn.functional.mse_loss",
    samples=_pairs(-2, 2),
)
def mse_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """(input - target)^2, averaged.

    >>> pf.mse_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(2.)
    """
    return _reduce("mse_loss", F.square(input - target), reduction)


@_loss(
    reference=_by_element(lambda x, y: np.abs(x - y)),
    torch="nn.functional.l1_loss",
    samples=_pairs(-2, 2),
)
def l1_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """|input - target|, averaged.

    >>> pf.l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(1.)
    """
    return _reduce("l1_loss", F.abs(input - target), reduction)


def _huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    d = np.abs(x - y)
    return np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@_loss(
    reference=_by_element(lambda x, y, beta=1.0: _huber(x, y, beta) / beta if beta else np.abs(x - y)),
    torch="nn.functional.smooth_l1_loss",
    samples=_pairs(-2, 2, {}, {"beta": 0.4}, {"beta": 0.0}),
)
def smooth_l1_loss(input: Node, target: Node, reduction: str = "mean", beta: float = 1.0) -> Node:
    """d^2 / (2 beta) for differences d below beta, else |d| - beta / 2; averaged.

    >>> pf.smooth_l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.75)
    """
    if beta < 0:
        raise ArgumentError(f"[smooth_l1_loss] expected beta of at least 0 but got {beta}")
    if beta == 0:
        return F.l1_loss(input, target, reduction)
    d = F.abs(input - target)
    return _reduce("smooth_l1_loss", F.where(d < beta, F.square(d) * (0.5 / beta), d - 0.5 * beta), reduction)


@_loss(
    reference=_by_element(_huber),
    torch="nn.functional.huber_loss",
    samples=_pairs(-2, 2, {}, {"delta": 0.4}),
)
def huber_loss(input: Node, target: Node, reduction: str = "mean", delta: float = 1.0) -> Node:
    """d^2 / 2 for differences d up to delta, else delta * (|d| - delta / 2); averaged.

    >>> pf.huber_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.75)
    """
    if delta <= 0:
        raise ArgumentError(f"[huber_loss] expected delta above 0 but got {delta}")
    d = F.abs(input - target)
    return _reduce("huber_loss", F.where(d <= delta, F.square(d) * 0.5, d * delta - 0.5 * delta * delta), reduction)


def _check_shapes(op: str, input: Node, target: Node) -> None:
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
    return _reduced(loss if weight is None else loss * weight, reduction)


@_loss(
    reference=_by_element(_bce),
    torch=_bce_oracle,
    samples=_bce_samples,
)
def binary_cross_entropy(input: Node, target: Node, weight: Node | None = None, reduction: str = "mean") -> Node:
    """-(target * log(input) + (1 - target) * log(1 - input)), averaged; logarithms are held above -100.

    >>> pf.binary_cross_entropy(pf.tensor([0.5, 0.9]), pf.tensor([1.0, 1.0]))
    tensor(0.3993)
    """
    _check_shapes("binary_cross_entropy", input, target)
    loss = F.bce_terms(input, target)
    return _reduce("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


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
    return _reduced(loss if weight is None else loss * weight, reduction)


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


@_loss(
    reference=_by_element(_logits),
    torch=_logits_oracle,
    samples=_logits_samples,
)
def binary_cross_entropy_with_logits(
    input: Node, target: Node, weight: Node | None = None, reduction: str = "mean", pos_weight: Node | None = None
) -> Node:
    """binary_cross_entropy(sigmoid(input), target) without its overflows; pos_weight scales the loss of positives.

    >>> pf.binary_cross_entropy_with_logits(pf.tensor([0.0, 2.0]), pf.tensor([1.0, 1.0]))
    tensor(0.41)
    """
    op = "binary_cross_entropy_with_logits"
    _check_shapes(op, input, target)
    # -y log s(x) - (1 - y) log(1 - s(x)) = softplus(x) - x y;  with p: (1 - y) x + (1 + (p - 1) y) softplus(-x)
    if pos_weight is None:
        loss = F.softplus(input, 1.0, math.inf) - input * target
    else:
        loss = (1.0 - target) * input + ((pos_weight - 1.0) * target + 1.0) * F.softplus(-input, 1.0, math.inf)
    loss = loss if weight is None else loss * weight
    # PyTorch computes in the memory of 1 - target, so the result has the target's dtype
    return _reduce(op, cast(loss, target.dtype) if target.dtype.is_float else loss, reduction)


# --- many classes ---------------------------------------------------------------------------------------------------


def _is_class(input: Meta, target: Node, axis: int) -> Node:
    """One-hot, as bools of the input's shape."""
    classes = F.reshape(F.iota((input.shape[axis],)), (-1, *[1] * (len(input.shape) - axis - 1)))
    return F.eq(classes, _with_axis(target, axis))


def _with_axis(x: Node, axis: int) -> Node:
    return F.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _picked(input: Node, target: Node, axis: int) -> Node:
    dims = tuple(a - (a > axis) if a != axis else 0 for a in range(input.ndim))
    return F.gather_at(input, (target,), (axis,), dims, target.shape)


def _picked_grad(g: Node, target: Node, input_meta: Meta, axis: int) -> tuple[Node | None, None]:
    if drop_axes(input_meta.shape, (axis,)) != target.shape:
        return None, None  # weights of classes take no gradient, as in PyTorch
    # a dense gradient fuses with what comes next; a scatter would not
    return F.where(_is_class(input_meta, target, axis), _with_axis(g, axis), 0.0), None


@primitive(
    COMPOSITE,
    infer=lambda input, target, axis: (target.shape, input.dtype),
    attrs=("axis",),
    srcs=("input", "target"),
    reference=lambda x, t, axis: (
        x[t] if x.ndim == 1 else np.take_along_axis(x, np.expand_dims(t, axis), axis).squeeze(axis)
    ),
    decompose=_picked,
    grad=_picked_grad,
    checked=True,
    public=False,
)
def pick_class(input: Node, target: Node, axis: int) -> Any:
    """The input at each target's position along an axis."""
    return (input, target), (axis,)


def _valid_target(target: Node, classes: int, ignore_index: int) -> tuple[Node, Node]:
    """Where a target counts, and positions to read at: 0 where it does not, and out of range where it is negative."""
    valid = F.ne(target, ignore_index)
    position = F.where(target < 0, target - classes, target)
    return valid, F.where(valid, position, 0)


def _class_axis(op: str, input: Node, weight: Node | None) -> int:
    """The axis of the classes in (C,) or (N, C, d1, ...)."""
    if input.ndim == 0:
        raise ShapeError(f"[{op}] expected an input of shape (C,), (N, C) or (N, C, ...) but got {input.shape}")
    if not input.dtype.is_float:
        raise DTypeError(f"[{op}] expected a float input but got {input.dtype.name}; cast with .to(pf.float32)")
    axis = min(input.ndim - 1, 1)
    if weight is not None and weight.shape != (input.shape[axis],):
        raise ShapeError(f"[{op}] expected a weight of shape {(input.shape[axis],)} but got {weight.shape}")
    return axis


def _check_classes(op: str, input: Node, target: Node, weight: Node | None) -> int:
    """The class axis of an input whose target holds indices."""
    axis = _class_axis(op, input, weight)
    rows = drop_axes(input.shape, (axis,))
    if not target.dtype.is_int:
        raise DTypeError(f"[{op}] expected a target of integers but got {target.dtype.name}; cast with .to(pf.int64)")
    if target.shape != rows:
        raise ShapeError(
            f"[{op}] expected a target of shape {rows} for an input of {input.shape} but got {target.shape}"
        )
    return axis


def _weighted_mean(op: str, loss: Node, valid: Node, weight: Node | None, position: Node, reduction: str) -> Node:
    """PyTorch divides by the weights of the targets that count."""
    if reduction != "mean":
        return _reduce(op, loss, reduction)
    counted = cast(valid, loss.dtype) if weight is None else F.where(valid, F.pick_class(weight, position, 0), 0.0)
    return F.sum(loss) / F.sum(counted)


def _nll(x: Any, target: Any, weight: Any, ignore_index: int, smoothing: float, reduction: str) -> Any:
    """Reference of all losses over log-probabilities; a target of x's shape holds probabilities."""
    axis = 0 if x.ndim == 1 else 1
    classes = x.shape[axis]
    w = np.ones(classes) if weight is None else weight
    along = w.reshape(-1, *[1] * (x.ndim - axis - 1))
    if target.shape == x.shape and target.dtype.kind == "f":
        loss = -(x * along * (target * (1 - smoothing) + smoothing / classes)).sum(axis)
        return loss.sum() / max(1, loss.size) if reduction == "mean" else _reduced(loss, reduction)
    valid = target != ignore_index
    safe = np.where(valid, target, 0)
    picked = np.take_along_axis(x, np.expand_dims(safe, axis), axis).squeeze(axis)
    loss = -(1 - smoothing) * w[safe] * picked - smoothing / classes * (along * x).sum(axis)
    loss = np.where(valid, loss, 0)
    return loss.sum() / np.where(valid, w[safe], 0).sum() if reduction == "mean" else _reduced(loss, reduction)


def _nll_reference(x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    return _nll(x, target, weight, ignore_index, 0.0, reduction)


def _constant_weight(name: str) -> Callable[..., Any]:
    """torch's loss, which refuses weights that require grad where the target holds class indices."""

    def oracle(torch: Any, input: Any, target: Any, weight: Any = None, **rest: Any) -> Any:
        if weight is not None and not target.is_floating_point():
            weight = weight.detach()
        return getattr(torch.nn.functional, name)(input, target, weight, **rest)

    return oracle


def _class_samples(*settings: dict[str, Any]) -> list[Sample]:
    rng = np.random.default_rng(16)
    x, t = rng.uniform(-3, 3, (6, 5)), rng.integers(0, 5, 6)
    image, map_ = rng.uniform(-3, 3, (2, 5, 3, 2)), rng.integers(0, 5, (2, 3, 2))
    weight = rng.uniform(0.5, 2, 5)
    out = [Sample((x, t), {"reduction": r}) for r in _REDUCTIONS]
    out += [Sample((image, map_), {"weight": weight, "reduction": r}) for r in _REDUCTIONS]
    out += [Sample((x, np.where(t == 2, -100, t)), {"weight": weight}), Sample((x, t), {"ignore_index": int(t[0])})]
    out += [
        Sample((x[0], t[0, ...])),
        Sample((x.T[:, :5].T, t[:5].astype(np.int32).astype(np.int64)), {"weight": weight}),
    ]
    out += [Sample((x[:0], t[:0]), {"reduction": "sum"}), Sample((image, map_), {"reduction": "none"})]
    return (
        out + [Sample((x, t), {"weight": weight, **s}) for s in settings] + [Sample((image, map_), s) for s in settings]
    )


@_loss(reference=_nll_reference, torch=_constant_weight("nll_loss"), samples=_class_samples)
def nll_loss(
    input: Node, target: Node, weight: Node | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Node:
    """-input[target], averaged: the input holds log-probabilities, (C,), (N, C) or (N, C, d1, ...).

    >>> pf.nll_loss(pf.tensor([[-0.5, -1.0], [-2.0, -0.1]]), pf.tensor([0, 1]))
    tensor(0.3)
    """
    axis = _check_classes("nll_loss", input, target, weight)
    valid, position = _valid_target(cast(target, int64), input.shape[axis], ignore_index)
    loss = -F.pick_class(input, position, axis)
    if weight is not None:
        loss = loss * F.pick_class(weight, position, 0)
    return _weighted_mean("nll_loss", F.where(valid, loss, 0.0), valid, weight, position, reduction)


def _spread(weight: tuple[Node, ...], input: Meta, position: Node, axis: int, smoothing: float) -> tuple[Any, Any, Any]:
    """How one row's loss weighs its classes: on the target, on class c, and in total."""
    each = smoothing / max(1, input.shape[axis])
    if not weight:
        return 1.0 - smoothing, each, 1.0
    on_target = F.pick_class(weight[0], position, 0) * (1.0 - smoothing)
    if not smoothing:
        return on_target, 0.0, on_target
    along = F.reshape(weight[0], (-1, *[1] * (len(input.shape) - axis - 1))) * each
    return on_target, along, on_target + F.sum(weight[0]) * each


def _logsumexp(x: Node, axis: int) -> Node:
    peak = F.reduce_max(x, (axis,))
    return F.log(F.reduce_sum(F.exp(x - _with_axis(peak, axis)), (axis,))) + peak


def _entropy_rows(input: Node, target: Node, *rest: Any) -> Node:
    # sum_c q_c (lse(x) - x_c), q = (1 - e) w_t one-hot + e/C w
    *weight, axis, ignore_index, smoothing = rest
    valid, position = _valid_target(target, input.shape[axis], ignore_index)
    on_target, along, total = _spread(tuple(weight), input.meta, position, axis, smoothing)
    loss = _logsumexp(input, axis) * total - F.pick_class(input, position, axis) * on_target
    if smoothing:
        loss = loss - F.reduce_sum(input * along, (axis,))
    return F.where(valid, loss, 0.0)


def _entropy_grad(
    g: Node, input: Node, target: Node, rest: tuple[Node, ...], axis: int, ignore_index: int, label_smoothing: float
) -> tuple[Any, ...]:
    # dx_c = g (p_c sum(q) - q_c), p = softmax(x): softmax minus one-hot where nothing is smoothed or weighted.
    # exp(x - lse) shares lse, one number per row, with the loss; the softmax would share a whole tensor of exp.
    valid, position = _valid_target(target, input.shape[axis], ignore_index)
    on_target, along, total = _spread(rest, input.meta, position, axis, label_smoothing)
    g = F.where(valid, g, 0.0)
    hit = F.where(_is_class(input.meta, position, axis), _with_axis(g * on_target, axis), 0.0)
    p = F.exp(input - _with_axis(_logsumexp(input, axis), axis))
    dx = p * _with_axis(g * total, axis) - hit
    if label_smoothing:
        dx = dx - _with_axis(g, axis) * along
    return (dx, None, *[None for _ in rest])


def _entropy_reference(x: Any, target: Any, *rest: Any) -> Any:
    *weight, axis, ignore_index, smoothing = rest
    return _nll(_log_softmax(x, axis), target, weight[0] if weight else None, ignore_index, smoothing, "none")


def _log_softmax(x: Any, axis: int) -> Any:
    return x - np.logaddexp.reduce(x, axis=axis, keepdims=True)


@primitive(
    COMPOSITE,
    infer=lambda input, target, *rest: (target.shape, input.dtype),
    attrs=("axis", "ignore_index", "label_smoothing"),
    srcs=("input", "target"),
    reference=_entropy_reference,
    decompose=_entropy_rows,
    grad=_entropy_grad,
    autocast="high",
    cost=16,
    checked=True,
    public=False,
)
def cross_entropy_rows(
    input: Node, target: Node, weight: Node | None, axis: int, ignore_index: int, smoothing: float
) -> Any:
    """The loss of each row of logits against its class index."""
    return (input, target, *(() if weight is None else (weight,))), (axis, ignore_index, smoothing)


def _cross_entropy_reference(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    return _nll(_log_softmax(x, 0 if x.ndim == 1 else 1), target, weight, ignore_index, label_smoothing, reduction)


def _cross_entropy_samples() -> list[Sample]:
    rng = np.random.default_rng(17)
    x, image, weight = rng.uniform(-3, 3, (6, 5)), rng.uniform(-3, 3, (2, 5, 3)), rng.uniform(0.5, 2, 5)
    q, q_image = rng.dirichlet(np.ones(5), 6), rng.dirichlet(np.ones(5), (2, 3)).transpose(0, 2, 1)
    soft = [Sample((x, q), {"reduction": r}) for r in _REDUCTIONS] + [Sample((x[0], q[0]))]
    soft += [Sample((image, q_image), {"weight": weight, "label_smoothing": 0.1, "reduction": r}) for r in _REDUCTIONS]
    smooth = [{"label_smoothing": 0.1, "reduction": r} for r in _REDUCTIONS]
    return [*_class_samples(*smooth), *soft, Sample((x * 300, np.arange(6) % 5))]


@_loss(
    reference=_cross_entropy_reference,
    torch=_constant_weight("cross_entropy"),
    samples=_cross_entropy_samples,
)
def cross_entropy(
    input: Node,
    target: Node,
    weight: Node | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Node:
    """-log(softmax(input)[target]), averaged. The input holds logits, (C,), (N, C) or (N, C, d1, ...); the target class
    indices, or probabilities of the input's shape.

    >>> pf.cross_entropy(pf.tensor([[2.0, 0.0], [0.0, 2.0]]), pf.tensor([0, 1]))
    tensor(0.1269)
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"[cross_entropy] expected label_smoothing in [0, 1] but got {label_smoothing}")
    if target.dtype.is_float:
        return _soft_entropy(input, target, weight, reduction, label_smoothing)
    axis = _check_classes("cross_entropy", input, target, weight)
    target = cast(target, int64)
    weight = None if weight is None else cast(weight, input.dtype)
    loss = F.cross_entropy_rows(input, target, weight, axis, int(ignore_index), float(label_smoothing))
    valid, position = _valid_target(target, input.shape[axis], ignore_index)
    return _weighted_mean("cross_entropy", loss, valid, weight, position, reduction)


def _soft_entropy(input: Node, target: Node, weight: Node | None, reduction: str, smoothing: float) -> Node:
    """Against probabilities: -sum_c w_c q_c log p_c."""
    _check_shapes("cross_entropy", input, target)
    axis = _class_axis("cross_entropy", input, weight)
    classes = input.shape[axis]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    if weight is not None:
        target = target * F.reshape(weight, (-1, *[1] * (input.ndim - axis - 1)))
    return _reduce("cross_entropy", -F.sum(F.log_softmax(input, axis) * target, axis), reduction)


def _kl_reference(x: Any, y: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    loss = np.exp(y) * (y - x) if log_target else y * (np.log(np.where(y == 0, 1, y)) - x)
    return loss.sum() / x.shape[0] if reduction == "batchmean" else _reduced(loss, reduction)


def _kl_samples() -> list[Sample]:
    rng = np.random.default_rng(18)
    x, y = rng.uniform(-3, -0.1, (4, 5)), rng.dirichlet(np.ones(5), 4)
    zero = Sample((x[0], np.array([0.0, 0.5, 0.5, 0.0, 0.0])), grad=False)
    plain = [Sample((x, y), {"reduction": r}) for r in (*_REDUCTIONS, "batchmean")]
    return [
        *plain,
        *[Sample((x, np.log(y)), {"reduction": r, "log_target": True}) for r in (*_REDUCTIONS, "batchmean")],
        zero,
    ]


@_loss(reference=_kl_reference, torch="nn.functional.kl_div", samples=_kl_samples)
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
    return _reduce("kl_div", loss, reduction)
