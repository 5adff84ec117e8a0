"""Losses of class indices. Cross-entropy stays whole in the graph: its gradient is softmax minus one-hot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import drop_axes
from pyflame.ir import F, Meta, Node, Sample, cast, elementwise, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.loss import REDUCTIONS, check_shapes, declare_loss, reduce_loss, reduced


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


@elementwise(
    "({target} == {ignored} ? ({T})0 : {target} < 0 ? {target} - {classes} : {target})",
    reference=lambda target, ignored, classes: np.where(
        target == ignored, 0, np.where(target < 0, target - classes, target)
    ),
    dtype="integer",
    public=False,
)
def class_position(target: Node, ignored: int, classes: int) -> Node:
    """Where to read for a target: at 0 if it does not count, out of range if it is negative. One op, so that fusion
    computes it where it is read."""


def valid_target(target: Node, classes: int, ignore_index: int) -> tuple[Node, Node]:
    """Where a target counts, and positions to read at."""
    return F.ne(target, ignore_index), F.class_position(target, ignore_index, classes)


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


def weighted_mean(op: str, loss: Node, valid: Node, weight: Node | None, position: Node, reduction: str) -> Node:
    """PyTorch divides by the weights of the targets that count."""
    if reduction != "mean":
        return reduce_loss(op, loss, reduction)
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
        return loss.sum() / max(1, loss.size) if reduction == "mean" else reduced(loss, reduction)
    valid = target != ignore_index
    safe = np.where(valid, target, 0)
    picked = np.take_along_axis(x, np.expand_dims(safe, axis), axis).squeeze(axis)
    loss = -(1 - smoothing) * w[safe] * picked - smoothing / classes * (along * x).sum(axis)
    loss = np.where(valid, loss, 0)
    return loss.sum() / np.where(valid, w[safe], 0).sum() if reduction == "mean" else reduced(loss, reduction)


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
    out = [Sample((x, t), {"reduction": r}) for r in REDUCTIONS]
    out += [Sample((image, map_), {"weight": weight, "reduction": r}) for r in REDUCTIONS]
    out += [Sample((x, np.where(t == 2, -100, t)), {"weight": weight}), Sample((x, t), {"ignore_index": int(t[0])})]
    out += [
        Sample((x[0], t[0, ...])),
        Sample((x.T[:, :5].T, t[:5].astype(np.int32).astype(np.int64)), {"weight": weight}),
    ]
    out += [Sample((x[:0], t[:0]), {"reduction": "sum"}), Sample((image, map_), {"reduction": "none"})]
    return (
        out + [Sample((x, t), {"weight": weight, **s}) for s in settings] + [Sample((image, map_), s) for s in settings]
    )


@declare_loss(reference=_nll_reference, torch=_constant_weight("nll_loss"), samples=_class_samples)
def nll_loss(
    input: Node, target: Node, weight: Node | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Node:
    """-input[target], averaged: the input holds log-probabilities, (C,), (N, C) or (N, C, d1, ...).

    >>> pf.nll_loss(pf.tensor([[-0.5, -1.0], [-2.0, -0.1]]), pf.tensor([0, 1]))
    tensor(0.3000)
    """
    axis = _check_classes("nll_loss", input, target, weight)
    valid, position = valid_target(cast(target, int64), input.shape[axis], ignore_index)
    loss = -F.pick_class(input, position, axis)
    if weight is not None:
        loss = loss * F.pick_class(weight, position, 0)
    return weighted_mean("nll_loss", F.where(valid, loss, 0.0), valid, weight, position, reduction)


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
    *weight, axis, ignore_index, smoothing, _ = rest
    valid, position = valid_target(target, input.shape[axis], ignore_index)
    on_target, along, total = _spread(tuple(weight), input.meta, position, axis, smoothing)
    loss = _logsumexp(input, axis) * total - F.pick_class(input, position, axis) * on_target
    if smoothing:
        loss = loss - F.reduce_sum(input * along, (axis,))
    return F.where(valid, loss, 0.0)


def _entropy_slopes(g: Node, input: Node, target: Node, *rest: Any) -> Node:
    # dx_c = g (p_c sum(q) - q_c), p = softmax(x): softmax minus one-hot where nothing is smoothed or weighted.
    # exp(x - lse) shares lse, one number per row, with the loss; the softmax would share a whole tensor of exp.
    *weight, axis, ignore_index, smoothing, _ = rest
    valid, position = valid_target(target, input.shape[axis], ignore_index)
    on_target, along, total = _spread(tuple(weight), input.meta, position, axis, smoothing)
    g = F.where(valid, g, 0.0)
    hit = F.where(_is_class(input.meta, position, axis), _with_axis(g * on_target, axis), 0.0)
    p = F.exp(input - _with_axis(_logsumexp(input, axis), axis))
    dx = p * _with_axis(g * total, axis) - hit
    return dx - _with_axis(g, axis) * along if smoothing else dx


def _entropy_slopes_reference(g: Any, x: Any, target: Any, *rest: Any) -> Any:
    *weight, axis, ignore_index, smoothing, _ = rest
    classes, valid = x.shape[axis], target != ignore_index
    safe = np.where(valid, target, 0)
    w = weight[0] if weight else np.ones(classes)
    hot = np.moveaxis(np.eye(classes)[safe], -1, axis)
    along = w.reshape(-1, *[1] * (x.ndim - axis - 1))
    q = (1 - smoothing) * hot * np.expand_dims(w[safe], axis) + smoothing / classes * along
    p = np.exp(_log_softmax(x, axis))
    return np.expand_dims(np.where(valid, g, 0), axis) * (p * q.sum(axis, keepdims=True) - q)


@primitive(
    COMPOSITE,
    infer=lambda g, input, *rest: (input.shape, input.dtype),
    attrs=("axis", "ignore_index", "label_smoothing", "chunk"),
    srcs=("g", "input", "target"),
    reference=_entropy_slopes_reference,
    decompose=_entropy_slopes,
    cost=16,
    checked=True,
    public=False,
)
def cross_entropy_slopes(g: Node, input: Node, target: Node, weight: tuple[Node, ...], *attrs: Any) -> Any:
    """What a change of the logits does to the loss of their rows, times g: the gradient of `cross_entropy_rows`."""
    return (g, input, target, *weight), attrs


def _entropy_grad(
    g: Node,
    input: Node,
    target: Node,
    rest: tuple[Node, ...],
    axis: int,
    ignore_index: int,
    label_smoothing: float,
    chunk: int,
) -> tuple[Any, ...]:
    slopes = F.cross_entropy_slopes(g, input, target, rest, axis, ignore_index, label_smoothing, chunk)
    return (slopes, None, *[None for _ in rest])


def _entropy_reference(x: Any, target: Any, *rest: Any) -> Any:
    *weight, axis, ignore_index, smoothing, _ = rest
    return _nll(_log_softmax(x, axis), target, weight[0] if weight else None, ignore_index, smoothing, "none")


def _log_softmax(x: Any, axis: int) -> Any:
    return x - np.logaddexp.reduce(x, axis=axis, keepdims=True)


@primitive(
    COMPOSITE,
    infer=lambda input, target, *rest: (target.shape, input.dtype),
    attrs=("axis", "ignore_index", "label_smoothing", "chunk"),
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
    input: Node, target: Node, weight: Node | None, axis: int, ignore_index: int, smoothing: float, chunk: int = 0
) -> Any:
    """The loss of each row of logits against its class index.

    `chunk`: how many rows of logits to have in memory at a time (passes/logits.py); 0: as many as their size allows,
    -1: all of them.
    """
    return (input, target, *(() if weight is None else (weight,))), (axis, ignore_index, smoothing, chunk)


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
    soft = [Sample((x, q), {"reduction": r}) for r in REDUCTIONS] + [Sample((x[0], q[0]))]
    soft += [Sample((image, q_image), {"weight": weight, "label_smoothing": 0.1, "reduction": r}) for r in REDUCTIONS]
    smooth = [{"label_smoothing": 0.1, "reduction": r} for r in REDUCTIONS]
    return [*_class_samples(*smooth), *soft, Sample((x * 300, np.arange(6) % 5))]


@declare_loss(
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
    valid, position = valid_target(target, input.shape[axis], ignore_index)
    return weighted_mean("cross_entropy", loss, valid, weight, position, reduction)


def _soft_entropy(input: Node, target: Node, weight: Node | None, reduction: str, smoothing: float) -> Node:
    """Against probabilities: -sum_c w_c q_c log p_c."""
    check_shapes("cross_entropy", input, target)
    axis = _class_axis("cross_entropy", input, weight)
    classes = input.shape[axis]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    if weight is not None:
        target = target * F.reshape(weight, (-1, *[1] * (input.ndim - axis - 1)))
    return reduce_loss("cross_entropy", -F.sum(F.log_softmax(input, axis) * target, axis), reduction)
