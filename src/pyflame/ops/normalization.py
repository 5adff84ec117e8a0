"""Normalisation: layer, RMS, group, instance and batch.

All of them are one computation over different axes: y = (x - mean) / sqrt(var + eps) * weight + bias, RMS norm without
the mean. Forward is one row kernel. The gradient of x is one more, which computes the statistics again: that costs
less than keeping them. Those of weight and bias are sums across rows.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Shape, keep_axes
from pyflame.core.traced import real
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import want_floats, want_number, want_tensors, want_whole


def _mean(x: Node, axes: Shape) -> Node:
    """The mean over axes, which stay as ones."""
    return F.reshape(F.reduce_sum(x, axes), keep_axes(x.shape, axes)) / real(prod(x.shape[a] for a in axes))


def _unit(x: Node, axes: Shape, eps: float, center: bool) -> tuple[Node, Node]:
    """x with mean 0 and variance 1 over axes (without `center`: with mean square 1), and the factor that made it so."""
    wide = cast(x, x.dtype.compute)
    off = wide - _mean(wide, axes) if center else wide
    scale = F.rsqrt(_mean(off * off, axes) + eps)
    return off * scale, scale


def _affine(unit: Node, weight: Node | None, bias: Node | None) -> Node:
    if weight is not None:
        unit = unit * cast(weight, unit.dtype)
    return unit if bias is None else unit + cast(bias, unit.dtype)


def _unit_grad(g: Node, unit: Node, scale: Node, axes: Shape, center: bool) -> Node:
    # u = (x - m) s: dx = s (g - mean(g) - u mean(g u)); without a mean to subtract the middle term is missing
    pull = unit * _mean(g * unit, axes)
    return scale * (g - _mean(g, axes) - pull if center else g - pull)


def _grads(g: Node, srcs: tuple[Node, ...], axes: Shape, eps: float, center: bool, affine: Shape) -> tuple[Any, ...]:
    """Gradients of x, weight and bias, as far as there are any. `affine`: the shape in which weight meets x."""
    x = srcs[0]
    unit, scale = _unit(x, axes, eps, center)
    g = cast(g, unit.dtype)
    inner = g if len(srcs) < 2 else g * cast(F.reshape(srcs[1], affine), g.dtype)
    out = [_unit_grad(inner, unit, scale, axes, center)]
    skip = x.ndim - len(affine)
    across = tuple(a for a in range(x.ndim) if a < skip or affine[a - skip] == 1)
    for source, value in zip(srcs[1:], (g * unit, g), strict=False):
        out.append(F.reshape(F.reduce_sum(value, across), source.shape))
    return tuple(out)


def _sources(op: str, x: Node, weight: Node | None, bias: Node | None, shape: Shape) -> tuple[Node, ...]:
    """(x), (x, weight) or (x, weight, bias), checked; a bias alone gets a weight of 1."""
    want_tensors(op, x=x, **{k: v for k, v in (("weight", weight), ("bias", bias)) if v is not None})
    want_floats(op, x.dtype)
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise ShapeError(
                f"[{op}] expected {name} of shape {shape} but got {value.shape} for an input of shape {x.shape}"
            )
    if bias is not None and weight is None:
        weight = F.full_const(1, x.dtype, shape)
    return tuple(v for v in (x, weight, bias) if v is not None)


def _same(x: Meta, *rest: Any) -> tuple[Shape, DType]:
    return x.shape, x.dtype


def _numpy_unit(x: Any, axes: Shape, eps: float, center: bool = True) -> Any:
    off = x - x.mean(axis=axes, keepdims=True) if center else x
    return off / np.sqrt((off * off).mean(axis=axes, keepdims=True) + eps)


def _numpy_affine(unit: Any, affine: tuple[Any, ...], shape: Shape) -> Any:
    for value, combine in zip(affine, (np.multiply, np.add), strict=False):
        unit = combine(unit, value.reshape(shape))
    return unit


_X = np.sin(np.arange(2 * 6 * 5.0) * 1.7).reshape(2, 6, 5) * 2 + 0.3
_W = np.linspace(0.5, 1.5, 6)
_B = np.linspace(-0.3, 0.2, 6)


# --- over the last axes ---------------------------------------------------------------------------------------------


def _last_axes(op: str, x: Node, normalized_shape: Any) -> Shape:
    sizes = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if not sizes or len(sizes) > x.ndim or x.shape[x.ndim - len(sizes) :] != sizes:
        raise ShapeError(
            f"[{op}] expected the last sizes of the input to be normalized_shape {sizes} but got shape {x.shape}"
        )
    return tuple(range(x.ndim - len(sizes), x.ndim))


def _layer_norm(*args: Any) -> Node:
    *srcs, axes, eps = args
    x, weight, bias = (*srcs, None, None)[:3]
    return cast(_affine(_unit(x, axes, eps, True)[0], weight, bias), x.dtype)


def _layer_norm_reference(*args: Any) -> Any:
    x, *affine, axes, eps = args
    return _numpy_affine(_numpy_unit(x, axes, eps), tuple(affine), tuple(x.shape[a] for a in axes))


@primitive(
    COMPOSITE,
    infer=_same,
    attrs=("axes", "eps"),
    srcs=("x", "weight", "bias"),
    reference=_layer_norm_reference,
    decompose=_layer_norm,
    grad=lambda g, srcs, axes, eps: _grads(g, srcs, axes, eps, True, tuple(srcs[0].shape[a] for a in axes)),
    torch="nn.functional.layer_norm",
    cost=8,
    autocast="high",
    samples=lambda: [
        Sample((_X, (5,))),
        Sample((_X.transpose(0, 2, 1), (6,), _W, _B)),
        Sample((_X, (6, 5), np.outer(_W, np.ones(5)))),
        Sample((_X[:, :, 0], [6], None, _B, 1e-3)),
        Sample((np.ones((3, 1)), (1,))),
        Sample((np.ones((0, 4)), (4,))),
        Sample((np.array([[1.0, np.nan, 2.0], [np.inf, 0.0, 1.0]]), (3,)), grad=False),
    ],
)
def layer_norm(
    x: Node, normalized_shape: Any, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Any:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted: (x - mean) / sqrt(var + eps) * weight + bias.

    >>> pf.layer_norm(pf.tensor([[1.0, 3.0]]), (2,))
    tensor([[-1.0000,  1.0000]])
    """
    axes = _last_axes("layer_norm", x, normalized_shape)
    return _sources("layer_norm", x, weight, bias, tuple(x.shape[a] for a in axes)), (
        axes,
        want_number("layer_norm", "eps", eps),
    )


def _rms_norm(*args: Any) -> Node:
    *srcs, axes, eps = args
    x, weight = (*srcs, None)[:2]
    return cast(_affine(_unit(x, axes, eps, False)[0], weight, None), x.dtype)


def _rms_norm_reference(*args: Any) -> Any:
    x, *affine, axes, eps = args
    return _numpy_affine(_numpy_unit(x, axes, eps, center=False), tuple(affine), tuple(x.shape[a] for a in axes))


@primitive(
    COMPOSITE,
    infer=_same,
    attrs=("axes", "eps"),
    srcs=("x", "weight"),
    reference=_rms_norm_reference,
    decompose=_rms_norm,
    grad=lambda g, srcs, axes, eps: _grads(g, srcs, axes, eps, False, tuple(srcs[0].shape[a] for a in axes)),
    torch="nn.functional.rms_norm",
    cost=6,
    autocast="high",
    samples=lambda: [
        Sample((_X, (5,), None, 1e-5)),
        Sample((_X.transpose(0, 2, 1), (6,), _W, 1e-6)),
        Sample((_X, (6, 5), np.outer(_W, np.ones(5)), 1e-3)),
        Sample((np.ones((3, 1)), (1,), None, 0.0)),
        Sample((np.ones((0, 4)), (4,))),
    ],
)
def rms_norm(x: Node, normalized_shape: Any, weight: Node | None = None, eps: float | None = None) -> Any:
    """Mean square 1 over the last axes, then scaled: x / sqrt(mean(x^2) + eps) * weight. eps: the dtype's unless given.

    >>> pf.rms_norm(pf.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    axes = _last_axes("rms_norm", x, normalized_shape)
    srcs = _sources("rms_norm", x, weight, None, tuple(x.shape[a] for a in axes))
    # kernels compute 16-bit floats in float32, so that is whose eps matters
    return srcs, (
        axes,
        float(np.finfo(x.dtype.compute.numpy).eps) if eps is None else want_number("rms_norm", "eps", eps),
    )


# --- over groups of channels ----------------------------------------------------------------------------------------


def _grouped(shape: Shape, groups: int) -> tuple[Shape, Shape, Shape]:
    """(N, C, ...) -> (N, groups, C/groups, rest): that shape, the axes of a group, and the shape of weight in it."""
    rest = prod(shape[2:])
    return (shape[0], groups, shape[1] // groups, rest), (2, 3), (groups, shape[1] // groups, 1)


def _group_norm(*args: Any) -> Node:
    *srcs, groups, eps = args
    shape, axes, affine = _grouped(srcs[0].shape, groups)
    x, *rest = F.reshape(srcs[0], shape), *[F.reshape(s, affine) for s in srcs[1:]]
    weight, bias = (*rest, None, None)[:2]
    return F.reshape(cast(_affine(_unit(x, axes, eps, True)[0], weight, bias), x.dtype), srcs[0].shape)


def _group_norm_grad(g: Node, srcs: tuple[Node, ...], groups: int, eps: float) -> tuple[Any, ...]:
    shape, axes, affine = _grouped(srcs[0].shape, groups)
    dx, *rest = _grads(F.reshape(g, shape), (F.reshape(srcs[0], shape), *srcs[1:]), axes, eps, True, affine)
    return (F.reshape(dx, srcs[0].shape), *rest)


def _group_norm_reference(*args: Any) -> Any:
    x, *affine, groups, eps = args
    shape, axes, channels = _grouped(x.shape, groups)
    return _numpy_affine(_numpy_unit(x.reshape(shape), axes, eps), tuple(affine), channels).reshape(x.shape)


@primitive(
    COMPOSITE,
    infer=_same,
    attrs=("groups", "eps"),
    srcs=("x", "weight", "bias"),
    reference=_group_norm_reference,
    decompose=_group_norm,
    grad=_group_norm_grad,
    torch="nn.functional.group_norm",
    cost=8,
    autocast="high",
    samples=lambda: [
        Sample((_X, 3)),
        Sample((_X, 2, _W, _B)),
        Sample((_X.reshape(2, 6, 5, 1), 6, _W)),
        Sample((_X[:, :, 0], 2, None, _B, 1e-3), grad=False),  # torch's own backward fails without a weight
        Sample((np.ones((0, 4, 3)), 2)),
    ],
)
def group_norm(
    x: Node, num_groups: int, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Any:
    """Mean 0 and variance 1 over each group of channels of (N, C, ...), then scaled and shifted per channel.

    >>> pf.group_norm(pf.randn(2, 6, 4, 4), 3).shape
    (2, 6, 4, 4)
    """
    groups = want_whole("group_norm", "num_groups", num_groups)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"[group_norm] expected (N, C, ...) with C a multiple of num_groups={num_groups} but got shape {x.shape}"
        )
    return _sources("group_norm", x, weight, bias, (x.shape[1],)), (groups, want_number("group_norm", "eps", eps))


# --- over the batch -------------------------------------------------------------------------------------------------


def _batch_axes(op: str, x: Node) -> tuple[Shape, Shape]:
    """The axes of (N, C, ...) that a batch norm runs over, and the shape in which a channel's value meets x."""
    if x.ndim < 2:
        raise ShapeError(f"[{op}] expected (N, C, ...) but got shape {x.shape}")
    return tuple(a for a in range(x.ndim) if a != 1), (x.shape[1], *[1] * (x.ndim - 2))


def _wide_mean(x: Node) -> Node:
    axes, _ = _batch_axes("batch_norm", x)
    return F.reduce_sum(cast(x, x.dtype.compute), axes) / real(prod(x.shape[a] for a in axes))


def _off(x: Node) -> Node:
    """x less its channels' means."""
    _, channels = _batch_axes("batch_norm", x)
    return cast(x, x.dtype.compute) - F.reshape(F.channel_mean(x), channels)


def _wide_variance(x: Node) -> Node:
    off = _off(x)
    return _wide_mean(off * off)


def _spread(g: Node, x: Meta) -> Node:
    """A channel's gradient of a mean, at each element."""
    count = x.size // x.shape[1]
    return F.expand(F.reshape(g, (x.shape[1], *[1] * (len(x.shape) - 2))) / real(count), x.shape)


# Forward, gradient and running statistics ask for these by name, so that they are one node: each is computed once.
@primitive(
    COMPOSITE,
    infer=lambda x: ((x.shape[1],), x.dtype.compute),
    reference=lambda x: x.mean(axis=tuple(a for a in range(x.ndim) if a != 1)),
    decompose=_wide_mean,
    grad=lambda g, x_meta: (_spread(g, x_meta),),
    public=False,
)
def channel_mean(x: Node) -> Any:
    """The mean of each channel of (N, C, ...), in the dtype of computing."""
    return (x,), ()


@primitive(
    COMPOSITE,
    infer=lambda x: ((x.shape[1],), x.dtype.compute),
    reference=lambda x: x.var(axis=tuple(a for a in range(x.ndim) if a != 1)),
    decompose=_wide_variance,
    # v = mean((x - m)^2): dx = 2 (x - m) g / n, for the mean's own part sums to 0
    grad=lambda g, x: (_spread(g, x.meta) * _off(x) * 2.0,),
    public=False,
)
def channel_variance(x: Node) -> Any:
    """The variance of each channel of (N, C, ...)."""
    return (x,), ()


def _batch_norm(*args: Any) -> Node:
    x, *rest, eps = args
    _, channels = _batch_axes("batch_norm", x)
    weight, bias = (*rest, None, None)[:2]
    scale = F.rsqrt(F.channel_variance(x) + eps)
    scale = scale if weight is None else scale * cast(weight, scale.dtype)
    out = _off(x) * F.reshape(scale, channels)
    return cast(out if bias is None else out + cast(F.reshape(bias, channels), out.dtype), x.dtype)


def _batch_norm_grad(g: Node, srcs: tuple[Node, ...], eps: float) -> tuple[Any, ...]:
    # u = (x - m) s, y = u w + b: db = sum(g), dw = sum(g u), dx = w s (g - db/n - u dw/n)
    x = srcs[0]
    axes, channels = _batch_axes("batch_norm", x)
    scale = F.rsqrt(F.channel_variance(x) + eps)
    unit = _off(x) * F.reshape(scale, channels)
    g = cast(g, unit.dtype)
    count = float(x.size // x.shape[1])
    db, dw = F.reduce_sum(g, axes), F.reduce_sum(g * unit, axes)
    factor = scale if len(srcs) < 2 else scale * cast(srcs[1], scale.dtype)
    parts = [F.reshape(v, channels) for v in (factor, db / count, dw / count)]
    return (parts[0] * (g - parts[1] - unit * parts[2]), dw, db)[: len(srcs)]


def _batch_norm_train_reference(*args: Any) -> Any:
    x, *affine, eps = args
    axes = tuple(a for a in range(x.ndim) if a != 1)
    return _numpy_affine(_numpy_unit(x, axes, eps), tuple(affine), (x.shape[1], *[1] * (x.ndim - 2)))


@primitive(
    COMPOSITE,
    infer=_same,
    attrs=("eps",),
    srcs=("x", "weight", "bias"),
    reference=_batch_norm_train_reference,
    decompose=_batch_norm,
    grad=_batch_norm_grad,
    public=False,
    cost=8,
)
def batch_norm_train(x: Node, weight: Node | None, bias: Node | None, eps: float) -> Any:
    """Batch norm by the statistics of the batch itself."""
    return _sources("batch_norm", x, weight, bias, (x.shape[1],)), (eps,)


def _batch_norm_reference(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    axes, channels = tuple(a for a in range(x.ndim) if a != 1), (-1, *[1] * (x.ndim - 2))
    mean, var = (x.mean(axis=axes), x.var(axis=axes)) if training else (running_mean, running_var)
    out = (x - mean.reshape(channels)) / np.sqrt(var.reshape(channels) + eps)
    out = out if weight is None else out * weight.reshape(channels)
    return out if bias is None else out + bias.reshape(channels)


def _torch_batch_norm(
    torch: Any, x: Any, running_mean: Any = None, running_var: Any = None, *rest: Any, **named: Any
) -> Any:
    # torch updates the running statistics in place; the gradient check gives it leaves, which it may not change
    stats = [
        None if s is None else s.detach().clone() if (rest[2:3] or [named.get("training")])[0] else s
        for s in (running_mean, running_var)
    ]
    return torch.nn.functional.batch_norm(x, *stats, *rest, **named)


@composite(
    reference=_batch_norm_reference,
    torch=_torch_batch_norm,
    samples=lambda: [
        Sample((_X, None, None, _W, _B, True)),
        Sample((_X[:, :, 0] * 3, None, None, None, None, True)),
        Sample((_X.reshape(2, 6, 5, 1), _B, _W, _W, None, True, 0.1, 1e-3)),
        Sample((_X, _B, _W, _W, _B), grad=False),
        Sample((_X, _B, _W), grad=False),
    ],
)
def batch_norm(
    x: Node, running_mean: Node | None = None, running_var: Node | None = None, weight: Node | None = None,
    bias: Node | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Node:  # fmt: skip
    """Mean 0 and variance 1 per channel of (N, C, ...), then scaled and shifted.

    Training goes by the batch's own statistics, inference by the running ones. These are not changed here:
    `batch_norm_stats` gives their next values.

    >>> pf.batch_norm(pf.randn(8, 3, 4, 4), training=True).shape
    (8, 3, 4, 4)
    """
    axes, channels = _batch_axes("batch_norm", x)
    eps = want_number("batch_norm", "eps", eps)
    if training:
        count = prod(x.shape[a] for a in axes)
        if count == 1:
            raise ShapeError(
                f"[batch_norm] expected more than one value per channel when training but got shape {x.shape}"
            )
        return F.batch_norm_train(x, weight, bias, eps)
    if running_mean is None or running_var is None:
        raise ArgumentError(
            "[batch_norm] expected running_mean and running_var but got None; pass them, or training=True"
        )
    srcs = _sources("batch_norm", x, weight, bias, (x.shape[1],))
    if running_mean.shape != (x.shape[1],) or running_var.shape != (x.shape[1],):
        raise ShapeError(
            f"[batch_norm] expected running statistics of shape {(x.shape[1],)} but got {running_mean.shape}"
            f" and {running_var.shape}"
        )
    # y = x * scale + shift with both of them per channel
    kind = x.dtype.compute
    scale = F.rsqrt(cast(running_var, kind) + eps)
    scale = scale * cast(srcs[1], kind) if len(srcs) > 1 else scale
    off = cast(x, kind) - F.reshape(cast(running_mean, kind), channels)
    out = off * F.reshape(scale, channels)
    return cast(out + F.reshape(cast(srcs[2], kind), channels) if len(srcs) > 2 else out, x.dtype)


@composite(
    reference=lambda x, running_mean=None, running_var=None, momentum=0.1: _stats_reference(
        x, running_mean, running_var, momentum
    ),
    method=False,
    differentiable=False,
    samples=lambda: [Sample((_X,)), Sample((_X, _B, _W, 0.3), grad=False)],
)
def batch_norm_stats(
    x: Node, running_mean: Node | None = None, running_var: Node | None = None, momentum: float = 0.1
) -> tuple[Node, Node]:
    """The mean and unbiased variance per channel of (N, C, ...); with running statistics, what these become:
    (1 - momentum) * running + momentum * batch.

    >>> mean, var = pf.batch_norm_stats(pf.randn(8, 3, 4, 4))
    >>> mean.shape
    (3,)
    """
    axes, _ = _batch_axes("batch_norm_stats", x)
    share = want_number("batch_norm_stats", "momentum", momentum)
    count = float(prod(x.shape[a] for a in axes))
    unbiased = count / (count - 1.0) if count > 1 else float("nan")
    found = [F.channel_mean(x), F.channel_variance(x) * unbiased]
    blended = []
    for value, running in zip(found, (running_mean, running_var), strict=True):
        if running is not None:
            value = cast(cast(running, value.dtype) * (1.0 - share) + value * share, running.dtype)
        blended.append(value)
    return blended[0], blended[1]


def _stats_reference(x: Any, running_mean: Any, running_var: Any, momentum: float) -> Any:
    axes = tuple(a for a in range(x.ndim) if a != 1)
    found = (x.mean(axis=axes), x.var(axis=axes, ddof=1))
    return tuple(
        v if r is None else r * (1 - momentum) + v * momentum
        for v, r in zip(found, (running_mean, running_var), strict=True)
    )


def _instance_reference(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    axes, channels = tuple(range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
    out = _numpy_unit(x, axes, eps)
    out = out if weight is None else out * weight.reshape(channels)
    return out if bias is None else out + bias.reshape(channels)


@composite(
    reference=_instance_reference,
    torch="nn.functional.instance_norm",
    autocast="high",
    samples=lambda: [Sample((_X,)), Sample((_X.reshape(2, 6, 5, 1), None, None, _W, _B)), Sample((_X, None, None, _W))],
)
def instance_norm(
    x: Node, running_mean: Node | None = None, running_var: Node | None = None, weight: Node | None = None,
    bias: Node | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Node:  # fmt: skip
    """Mean 0 and variance 1 over each channel of each sample of (N, C, ...); else by running statistics.

    >>> pf.instance_norm(pf.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """
    _batch_axes("instance_norm", x)
    if not use_input_stats:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    if prod(x.shape[2:]) == 1:
        raise ShapeError(f"[instance_norm] expected more than one value per channel but got shape {x.shape}")
    return F.group_norm(x, x.shape[1], weight, bias, eps)
