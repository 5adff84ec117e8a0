"""Cross-entropy of a linear layer's logits, of which the tape keeps none.

The graph holds one op for the loss and one for each gradient. They decompose into the layer, `cross_entropy_rows` and
its gradient; where logits are many, `passes/logits.py` then computes all of these chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, float32, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.state import state
from pyflame.ir import OPS, F, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.class_loss import valid_target, weighted_mean
from pyflame.ops.loss import REDUCTIONS

ATTRS = ("dtype", "biased", "ignore_index", "label_smoothing", "chunk")


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` divides its work. PyTorch's further options are about its implementation.

    `batch_chunk_size`: rows of logits to have in memory at a time; None: as PYFLAME_MAX_LOGITS says.
    """

    batch_chunk_size: int | None = None

    def __post_init__(self) -> None:
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ArgumentError(
                f"[LinearCrossEntropyOptions] expected a whole batch_chunk_size of at least 1 but got {size!r}"
            )


def _logits(x: Node, weight: Node, rest: Sequence[Any]) -> tuple[Node, list[Any]]:
    """Logits in the dtype of the loss, and what `cross_entropy_rows` takes besides these and the target."""
    *given, dtype, biased, ignore_index, smoothing, chunk = rest
    bias, classes = (given[:1], given[1:]) if biased else ([], given)
    return cast(F.linear(x, weight, *bias), dtype), [tuple(classes), 1, ignore_index, smoothing, chunk]


def _rows(x: Node, weight: Node, target: Node, *rest: Any) -> Node:
    logits, (classes, *attrs) = _logits(x, weight, rest)
    return F.cross_entropy_rows(logits, target, *(classes or (None,)), *attrs)


def _gradient(g: Node, *args: Any) -> Node:
    # of cross_entropy(logits): slopes; then as of a linear layer, dx = slopes W, dW = slopes^T x, db = sum of rows
    x, weight, target, *rest, of = args
    logits, given = _logits(x, weight, rest)
    slopes = cast(F.cross_entropy_slopes(g, logits, target, *given), x.dtype)
    if of == 0:
        return F.matmul(slopes, weight)
    return F.matmul_of_rows(slopes, x) if of == 1 else F.reduce_sum(slopes, (0,))


def _rows_grad(
    g: Node,
    srcs: tuple[Node, ...],
    parents: Sequence[object],
    dtype: DType,
    biased: bool,
    ignore_index: int,
    label_smoothing: float,
    chunk: int,
) -> list[Node | None]:
    attrs = dtype, biased, ignore_index, label_smoothing, chunk
    smooth = (0, 1, 3) if biased else (0, 1)  # not the target, nor weights of classes
    return [
        F.linear_cross_entropy_slopes(g, srcs, attrs, at) if parent is not None and at in smooth else None
        for at, parent in enumerate(parents)
    ]


def _by_logits(op: str, first: tuple[Any, ...], x: Any, weight: Any, target: Any, rest: Sequence[Any]) -> Any:
    """The reference of an op over logits, of these logits."""
    *given, _, biased, ignore_index, smoothing, chunk = rest
    logits = x @ weight.T + (given[0] if biased else 0)
    reference = OPS[op].reference
    assert reference is not None
    return reference(*first, logits, target, *given[1 if biased else 0 :], 1, ignore_index, smoothing, chunk)


def _rows_reference(x: Any, weight: Any, target: Any, *rest: Any) -> Any:
    return _by_logits("cross_entropy_rows", (), x, weight, target, rest)


@primitive(
    COMPOSITE,
    infer=lambda x, weight, target, *rest: (target.shape, rest[-len(ATTRS)]),
    attrs=ATTRS,
    srcs=("x", "weight", "target"),
    reference=_rows_reference,
    decompose=_rows,
    grad=_rows_grad,
    checked=True,
    public=False,
)
def linear_cross_entropy_rows(
    x: Node, weight: Node, target: Node, bias: Node | None, classes: Node | None, *attrs: Any
) -> Any:
    """The loss of each row of x against its class index: (N, in), (C, in), (N,) -> (N,)."""
    dtype, *others = attrs
    return (x, weight, target, *[v for v in (bias, classes) if v is not None]), (dtype, bias is not None, *others)


def _slopes_reference(g: Any, x: Any, weight: Any, target: Any, *args: Any) -> Any:
    *rest, of = args
    slopes = _by_logits("cross_entropy_slopes", (g,), x, weight, target, rest)
    return slopes @ weight if of == 0 else slopes.T @ x if of == 1 else slopes.sum(0)


@primitive(
    COMPOSITE,
    infer=lambda *args: (args[1 + args[-1]].shape, args[1 + args[-1]].dtype),
    attrs=(*ATTRS, "of"),
    srcs=("g", "x", "weight", "target"),
    reference=_slopes_reference,
    decompose=_gradient,
    checked=True,
    public=False,
)
def linear_cross_entropy_slopes(g: Node, srcs: tuple[Node, ...], attrs: tuple[Any, ...], of: int) -> Any:
    """The gradient of `linear_cross_entropy_rows` with respect to one of its sources."""
    return (g, *srcs), (*attrs, of)


def _samples() -> list[Sample]:
    rng = np.random.default_rng(19)
    x, w, b, t = rng.uniform(-2, 2, (6, 4)), rng.uniform(-1, 1, (5, 4)), rng.uniform(-1, 1, 5), rng.integers(0, 5, 6)
    deep, q = rng.uniform(-1, 1, (5, 3, 4)), rng.dirichlet(np.ones(5), 6)
    weight = rng.uniform(0.5, 2, 5)
    out = [Sample((x, w, t), {"reduction": r}) for r in REDUCTIONS]
    out += [
        Sample((x, w, t), {"linear_bias": b, "weight": weight, "label_smoothing": 0.1, "reduction": r})
        for r in REDUCTIONS
    ]
    out += [
        Sample((x, w, np.where(t == 2, -100, t)), {"linear_bias": b}),
        Sample((x, w, t), {"ignore_index": int(t[0])}),
    ]
    out += [Sample((x[0], w, t[0, ...])), Sample((x[:0], w, t[:0]), {"reduction": "sum"})]
    out += [Sample((x, w, q), {"linear_bias": b}), Sample((x, deep, rng.integers(0, 5, (6, 3))))]
    return [*out, Sample((x, w, t), {"linear_bias": b, "options": LinearCrossEntropyOptions(2)})]


def _oracle(torch: Any, *args: Any, options: Any = None, weight: Any = None, **rest: Any) -> Any:
    """torch's plain composition. It refuses weights of classes that require grad."""
    weight = None if weight is None else weight.detach()
    return torch.nn.functional.linear_cross_entropy(*args, weight=weight, **rest)


@composite(torch=_oracle, samples=_samples, method=False)
def linear_cross_entropy(
    input: Node,
    linear_weight: Node,
    target: Node,
    *,
    linear_bias: Node | None = None,
    weight: Node | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Node:
    """cross_entropy(linear(input, linear_weight, linear_bias), target, ...), without all logits in memory where they
    are many. Of inputs (..., in) each row has its class index; (N, in) may also meet probabilities.

    >>> x, head = pf.ones(4, 3), pf.zeros(10, 3)
    >>> pf.linear_cross_entropy(x, head, pf.tensor([1, 2, 3, 4]))
    tensor(2.3026)
    """
    _check(input, linear_weight, target, linear_bias, ignore_index)
    settings = weight, -100 if ignore_index is None else int(ignore_index), reduction, float(label_smoothing)
    operands = [input, linear_weight, *([] if linear_bias is None else [linear_bias])]
    if state.autocast is not None:  # as `linear` is cast
        operands = [cast(v, state.autocast) if v.dtype is float32 else v for v in operands]
    if target.dtype.is_float or linear_weight.ndim > 2:
        return _composed(operands, target, *settings)
    operands[0] = F.reshape(operands[0], (target.size, input.shape[-1]))
    rows, dtypes = F.reshape(target, (target.size,)), {v.dtype for v in operands}
    if len(dtypes) > 1 or not operands[0].dtype.is_float:
        out = _composed(operands, rows, *settings)
    else:
        out = _fused(operands, cast(rows, int64), *settings, (options and options.batch_chunk_size) or 0)
    return F.reshape(out, target.shape) if reduction == "none" else out


def _fused(
    operands: Sequence[Node],
    target: Node,
    weight: Node | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    chunk: int,
) -> Node:
    """(N, in), (C, in), (N,) -> the loss, by way of ops that keep no logits."""
    x, head, *bias = operands
    if not 0 <= smoothing <= 1:
        raise ArgumentError(f"[linear_cross_entropy] expected label_smoothing in [0, 1] but got {smoothing}")
    if weight is not None and weight.shape != head.shape[:1]:
        raise ShapeError(f"[linear_cross_entropy] expected a weight of shape {head.shape[:1]} but got {weight.shape}")
    dtype = float32 if state.autocast is not None and x.dtype.itemsize < 4 else x.dtype
    classes = None if weight is None else cast(weight, dtype)
    attrs = dtype, ignore_index, smoothing, chunk
    loss = F.linear_cross_entropy_rows(x, head, target, bias[0] if bias else None, classes, *attrs)
    valid, position = valid_target(target, head.shape[0], ignore_index)
    return weighted_mean("linear_cross_entropy", loss, valid, classes, position, reduction)


def _composed(
    operands: Sequence[Node], target: Node, weight: Node | None, ignore_index: int, reduction: str, smoothing: float
) -> Node:
    """By way of logits: (..., in) -> (..., C, d1, ...)."""
    x, head, *bias = operands
    flat = F.reshape(head, (prod(head.shape[:-1]), head.shape[-1]))
    logits = F.linear(x, flat, *[F.reshape(b, (b.size,)) for b in bias])
    logits = F.reshape(logits, (*x.shape[:-1], *head.shape[:-1]))
    return F.cross_entropy(logits, target, weight, ignore_index, reduction, smoothing)


def _check(input: Node, head: Node, target: Node, bias: Node | None, ignore_index: int | None) -> None:
    op = "linear_cross_entropy"
    if input.ndim < 1 or head.ndim < 2 or input.shape[-1] != head.shape[-1]:
        raise ShapeError(
            f"[{op}] expected input (..., in) and linear_weight (C, in) but got {input.shape}, {head.shape}"
        )
    if bias is not None and bias.shape != head.shape[:-1]:
        raise ShapeError(f"[{op}] expected linear_bias of shape {head.shape[:-1]} but got {bias.shape}")
    lead, kinds = input.shape[:-1], head.shape[1:-1]
    if target.dtype.is_float:
        expected = (*lead, *head.shape[:-1])
        if ignore_index is not None:
            raise ArgumentError(f"[{op}] expected no ignore_index where the target holds probabilities")
    elif target.dtype.is_int:
        expected = (*lead, *kinds)
    else:
        raise DTypeError(f"[{op}] expected a target of integers or probabilities but got {target.dtype.name}")
    if target.shape != expected:
        raise ShapeError(f"[{op}] expected a target of shape {expected} but got {target.shape}")
    if ((target.dtype.is_float or kinds) and input.ndim > 2) or (kinds and input.ndim < 2):
        raise ShapeError(f"[{op}] expected input (N, in) for this target and linear_weight but got {input.shape}")
