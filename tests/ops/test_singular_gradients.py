"""Gradients where a function has a kink, a tie, a pole or an end: PyTorch's choice is ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.doctor.samples import outputs_of, run_op
from pyflame.ir import OPS, OpDef
from pyflame.ir.opdef import ELEMENTWISE
from tests.oracle import assert_close, torch_call, torch_tensor

INF, NAN = math.inf, math.nan
POINTS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 20.0, 25.0, INF, -INF, NAN])


def gradients(call: Callable[..., Any], arrays: list[Any], make: Callable[[Any], Any]) -> list[Any]:
    """Of the sum of all float outputs, with weights that tell them apart, for each array."""
    leaves = [make(a) for a in arrays]
    outs = [o for o in outputs_of(call(*leaves)) if o.requires_grad]
    for weight, out in enumerate(outs, start=1):
        (out * weight).sum().backward(retain_graph=True)
    return [np.zeros(np.shape(a)) if leaf.grad is None else leaf.grad for leaf, a in zip(leaves, arrays, strict=True)]


def compare(name: str, ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Any) -> None:
    given = [np.asarray(a, np.float64) for a in arrays]
    got = gradients(ours, given, lambda a: pf.tensor(a).requires_grad_())
    want = gradients(theirs, given, lambda a: torch_tensor(a, grad=True))
    for position, (g, w) in enumerate(zip(got, want, strict=True)):
        assert_close(g, w, pf.float64, f"{name}, argument {position}, at {[a.tolist() for a in given]}", scale=100)


# Where PyTorch's own answer is an artefact of its formula: a large number at a pole, NaN for inf / inf. Left out below,
# for the same reason: logaddexp and logcumsumexp of equal infinities, kl_div's targets of 0 (NaN there, finite here).
_ARTEFACTS: dict[str, Callable[[Any], Any]] = {
    "digamma": lambda x: x >= 0,
    "copysign": np.isfinite,
    "zeta": np.isfinite,
    **dict.fromkeys(("i0", "i1", "i1e"), np.isfinite),
}


def points(op: OpDef) -> Any:
    return POINTS[_ARTEFACTS[op.name](POINTS)] if op.name in _ARTEFACTS else POINTS


def elementwise_ops(arity: int) -> list[OpDef]:
    """Ops with a gradient that compute each element from those at the same place."""
    return [
        op
        for op in OPS.values()
        if op.kind == ELEMENTWISE and op.public and op.grad and op.torch and len(op.srcs) == arity and not op.attrs
        if op.name not in ("imag", "complex")  # they are linear, and have no real argument or no real result
    ]


@pytest.mark.share(4)
@pytest.mark.parametrize("op", elementwise_ops(1), ids=lambda op: op.name)
def test_of_one_number(op: OpDef) -> None:
    compare(op.name, lambda x: run_op(op, (x,), {}), lambda x: torch_call(op, (x,), {}), points(op))


_NUMBER_SECOND = ("leaky_relu", "elu")  # their slope is a number in PyTorch
_NO_GRADIENT_FIRST = ("zeta", "igamma", "igammac")


@pytest.mark.share(4)
@pytest.mark.parametrize("op", elementwise_ops(2), ids=lambda op: op.name)
def test_of_two_numbers(op: OpDef) -> None:
    if op.name in _NUMBER_SECOND:
        compare(op.name, lambda x: run_op(op, (x, 0.5), {}), lambda x: torch_call(op, (x, 0.5), {}), POINTS)
        return
    x, y = (a.ravel() for a in np.meshgrid(points(op), points(op)))
    if op.name in _NO_GRADIENT_FIRST:
        compare(
            op.name, lambda y: run_op(op, (pf.tensor(x), y), {}), lambda y: torch_call(op, (torch_tensor(x), y), {}), y
        )
        with pytest.raises(pf.GradientError, match="second argument only"):
            run_op(op, (pf.ones(2, requires_grad=True), pf.ones(2)), {}).sum().backward()
        return
    compare(op.name, lambda x, y: run_op(op, (x, y), {}), lambda x, y: torch_call(op, (x, y), {}), x, y)


Z23 = np.zeros((2, 3))
ROWS = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, -2.0, 2.0], [-1.0, 0.0, -1.0]])
DEAD = np.array([[-INF, -INF, -INF], [0.0, -INF, 0.0], [INF, 1.0, INF]])
FINITE = POINTS[np.isfinite(POINTS)]
PAIR = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]])
IMAGE = np.array([[[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, -0.0], [2.0, 2.0, 2.0, 3.0], [2.0, 2.0, 3.0, 3.0]]]])

# What to compute with either library (`t` its functions, `f` its nn.functional), and at which values.
CASES: dict[str, tuple[Callable[[Any, Any], Callable[..., Any]], list[Any]]] = {
    **{
        f"{name}({exponent})": (lambda t, f, n=name, e=exponent: lambda x: getattr(t, n)(x, e), [POINTS])
        for name in ("pow", "float_power")
        for exponent in (0, 0.5, 1, 1.5, 2, 3, 4, -1, -2, 2.5, -3)
    },
    **{f"{base}**x": (lambda t, f, b=base: lambda x: t.pow(b, x), [POINTS]) for base in (0.0, 1.0, 2.0, -2.0)},
    **{
        name: (lambda t, f, n=name: getattr(t, n), [POINTS])
        for name in ("sinc", "square", "frac", "nan_to_num", "deg2rad", "expm1")
    },
    **{
        name: (lambda t, f, n=name: getattr(f, n), [FINITE])
        for name in (
            "relu6", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "tanhshrink", "softsign",
            "celu", "elu", "selu", "gelu", "mish", "silu", "softplus", "logsigmoid", "leaky_relu", "relu",
        )
    },
    "threshold": (lambda t, f: lambda x: f.threshold(x, 0.5, 2.0), [FINITE]),
    "prelu": (lambda t, f: f.prelu, [FINITE, [0.25]]),
    "float_power(x, y)": (lambda t, f: t.float_power, [[0.0, 0.0, 0.0, -1.0, 2.0], [0.0, 2.0, -1.0, 2.0, 0.0]]),
    # at -0.0 PyTorch says -inf or inf, as the number falls into one of its vectors or behind them
    "logit": (lambda t, f: t.logit, [POINTS[(POINTS != 0) | ~np.signbit(POINTS)]]),
    "logit(eps)": (lambda t, f: lambda x: t.logit(x, 0.5), [[0.0, 0.5, 1.0]]),
    "clamp": (lambda t, f: lambda x: t.clamp(x, -1.0, 1.0), [POINTS]),
    "clamp(min)": (lambda t, f: lambda x: t.clamp(x, min=0.0), [POINTS]),
    "clamp(max)": (lambda t, f: lambda x: t.clamp(x, max=0.0), [POINTS]),
    "clamp(tensors)": (lambda t, f: t.clamp, [FINITE, FINITE[::-1].copy(), np.ones_like(FINITE)]),
    "hypot": (lambda t, f: t.hypot, [[0.0, 0.0, 3.0, -0.0], [0.0, 1.0, 0.0, 0.0]]),
    "hypot(inf)": (lambda t, f: t.hypot, [[INF, 1.0, INF], [1.0, -INF, INF]]),
    "logaddexp": (lambda t, f: t.logaddexp, [[INF, -INF, 0.0, 1.0], [-INF, INF, 0.0, -INF]]),
    "logaddexp2": (lambda t, f: t.logaddexp2, [[INF, -INF, 0.0, 1.0], [-INF, INF, 0.0, -INF]]),
    "lerp": (lambda t, f: t.lerp, [[0.0, 1.0], [0.0, 2.0], [0.5, 1.0]]),
    "where": (lambda t, f: lambda x: t.where(x > 0, t.log(x), x), [FINITE]),
    "addcdiv": (lambda t, f: t.addcdiv, [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]),
    # norms and distances
    **{f"norm({p})": (lambda t, f, p=p: lambda x: t.norm(x, p), [Z23]) for p in (0, 0.5, 1, 1.5, 2, 3, INF, -INF, -1)},
    **{
        f"norm({p}, dim)": (lambda t, f, p=p: lambda x: t.norm(x, p, 1), [ROWS])
        for p in (0, 0.5, 1, 1.5, 2, 3, INF, -INF, -1)
    },
    **{
        f"cdist({p})": (lambda t, f, p=p: lambda x, y: t.cdist(x, y, p), [PAIR, PAIR])
        for p in (0.5, 1.0, 2.0, 3.0, INF)
    },
    "normalize": (lambda t, f: f.normalize, [ROWS]),
    "cosine_similarity": (lambda t, f: f.cosine_similarity, [ROWS, ROWS[::-1].copy()]),
    "cosine_similarity(zeros)": (lambda t, f: f.cosine_similarity, [Z23, Z23]),
    "pairwise_distance": (lambda t, f: f.pairwise_distance, [ROWS, ROWS]),
    "pairwise_distance(eps 0)": (lambda t, f: lambda x, y: f.pairwise_distance(x, y, 2.0, 0.0), [ROWS, ROWS]),
    # spread
    **{
        f"{name}{sorted(kwargs.items())}": (
            lambda t, f, n=name, k=kwargs: lambda x: getattr(t, n)(x, dim=1, **k),
            [values],
        )
        for name in ("std", "var", "var_mean", "std_mean")
        for kwargs in ({}, {"correction": 0})
        for values in ([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]],)
    },
    "var of one": (lambda t, f: lambda x: t.var(x, dim=1), [[[2.0], [3.0]]]),
    "std of one": (lambda t, f: lambda x: t.std(x, dim=1), [[[2.0], [3.0]]]),
    "std of one, correction 0": (lambda t, f: lambda x: t.std(x, dim=1, correction=0), [[[2.0], [3.0]]]),
    # products
    "prod": (lambda t, f: lambda x: t.prod(x, 1), [ROWS]),
    "prod of all": (lambda t, f: t.prod, [[2.0, 0.0, 3.0]]),
    "prod of two zeros": (lambda t, f: t.prod, [[2.0, 0.0, 0.0]]),
    "cumprod": (lambda t, f: lambda x: t.cumprod(x, 1), [ROWS]),
    # ties
    **{
        f"{name}({where})": (
            lambda t, f, n=name, w=where: lambda x: getattr(t, n)(x, *w),
            [ROWS],
        )
        for name, where in (
            ("amax", ()), ("amax", (1,)), ("amin", ()), ("amin", (0,)), ("max", ()), ("min", ()), ("median", ()),
            ("nanmedian", ()), ("cummax", (1,)), ("cummin", (1,)), ("max", (1,)), ("min", (0,)), ("mode", (1,)),
        )
    },
    "aminmax": (lambda t, f: lambda x: tuple(t.aminmax(x, dim=1)), [ROWS]),
    "kthvalue": (lambda t, f: lambda x: t.kthvalue(x, 2, 1)[0], [ROWS[:, :2]]),
    "sort": (lambda t, f: lambda x: t.sort(x, dim=1, stable=True)[0], [ROWS]),
    "topk": (lambda t, f: lambda x: t.topk(x, 3, 1)[0], [ROWS]),
    "quantile": (lambda t, f: lambda x: t.quantile(x, 0.5, 1), [ROWS[:, :1]]),
    "max_pool2d": (lambda t, f: lambda x: f.max_pool2d(x, 2), [IMAGE]),
    "adaptive_max_pool2d": (lambda t, f: lambda x: f.adaptive_max_pool2d(x, 2), [IMAGE]),
    "scatter_reduce amax": (
        lambda t, f: lambda x, s: t.scatter_reduce(x, 0, _index(t, [0, 0, 1, 1]), s, "amax"),
        [[1.0, 2.0, 3.0], [1.0, 1.0, 5.0, 5.0]],
    ),
    "scatter_reduce prod": (
        lambda t, f: lambda x, s: t.scatter_reduce(x, 0, _index(t, [0, 0, 1, 1]), s, "prod"),
        [[0.0, 2.0, 3.0], [1.0, 0.0, 0.0, 5.0]],
    ),
    # logarithms of sums
    "logsumexp": (lambda t, f: lambda x: t.logsumexp(x, 1), [DEAD]),
    "softmax": (lambda t, f: lambda x: t.softmax(x, 1), [DEAD]),
    "log_softmax": (lambda t, f: lambda x: t.log_softmax(x, 1), [DEAD]),
    "logcumsumexp": (lambda t, f: lambda x: t.logcumsumexp(x, 1), [DEAD[1:2]]),
    # losses
    **{
        name: (lambda t, f, n=name: getattr(f, n), [FINITE, np.zeros_like(FINITE)])
        for name in ("smooth_l1_loss", "huber_loss", "l1_loss", "mse_loss")
    },
    "smooth_l1_loss(beta 0)": (lambda t, f: lambda x, y: f.smooth_l1_loss(x, y, beta=0.0), [FINITE, FINITE * 0]),
    "huber_loss(delta)": (lambda t, f: lambda x, y: f.huber_loss(x, y, delta=2.0), [FINITE, FINITE * 0]),
    "hinge_embedding_loss": (lambda t, f: lambda x: f.hinge_embedding_loss(x, x.detach() * 0 - 1), [FINITE]),
    "margin_ranking_loss": (
        lambda t, f: lambda x, y: f.margin_ranking_loss(x, y, x.detach() * 0 + 1),
        [FINITE, FINITE],
    ),
    "binary_cross_entropy": (
        lambda t, f: lambda x: f.binary_cross_entropy(x, _floats(t, [0.0, 1.0, 0.0, 1.0, 0.5]), reduction="none"),
        [[0.0, 0.0, 1.0, 1.0, 0.5]],
    ),
    "binary_cross_entropy_with_logits": (
        lambda t, f: lambda x: f.binary_cross_entropy_with_logits(x, x.detach() * 0 + 1.0),
        [FINITE],
    ),
    "kl_div": (lambda t, f: lambda x, y: f.kl_div(x, y, reduction="sum"), [[-1.0, -1.0, 0.0], [0.5, 1.0, 2.0]]),
    "kl_div(log)": (
        lambda t, f: lambda x, y: f.kl_div(x, y, reduction="sum", log_target=True),
        [[-1.0, 0.0], [-INF, 0.0]],
    ),
    "poisson_nll_loss": (lambda t, f: lambda x: f.poisson_nll_loss(x, x.detach() * 0 + 1, full=True), [FINITE]),
    "triplet_margin_loss": (lambda t, f: f.triplet_margin_loss, [PAIR, PAIR, PAIR]),
    "cosine_embedding_loss": (
        lambda t, f: lambda x, y: f.cosine_embedding_loss(x, y, _floats(t, [1.0, -1.0])),
        [Z23, PAIR],
    ),
    "multi_margin_loss": (lambda t, f: lambda x: f.multi_margin_loss(x, _index(t, [0, 1])), [[[1.0, 0.0], [1.0, 1.0]]]),
    # norms over samples without spread
    "layer_norm": (lambda t, f: lambda x: f.layer_norm(x, (3,)), [[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]),
    "group_norm": (lambda t, f: lambda x: f.group_norm(x, 1), [np.ones((1, 2, 3))]),
    "rms_norm": (lambda t, f: lambda x: f.rms_norm(x, (3,)), [Z23]),
    "batch_norm": (lambda t, f: lambda x: f.batch_norm(x, None, None, training=True), [np.ones((2, 3))]),
}  # fmt: skip


def _index(t: Any, values: list[int]) -> Any:
    return t.tensor(values)


def _floats(t: Any, values: list[float]) -> Any:
    return t.tensor(values, dtype=t.float64)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", CASES)
def test_of_many_numbers(name: str) -> None:
    make, arrays = CASES[name]
    compare(name, make(pf, nn.functional), make(torch, torch.nn.functional), *arrays)
