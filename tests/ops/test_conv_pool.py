"""Convolution and pooling arithmetic against torch: sizes, strides, padding, dilation, groups, ceil_mode, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import pyflame as pf
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.window import Window
from pyflame.tensor import Tensor
from tests.oracle import TOLERANCE, to_array, torch_tensor
from tests.plans import plan_of

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same'"),
    pytest.mark.filterwarnings("ignore:Using backward"),
]

Fn = Callable[..., Any]


def compare(name: str, arrays: list[Any], kwargs: dict[str, Any], dtype: Any = pf.float64, scale: float = 1.0) -> None:
    """Forward and gradients of an op of pf and of torch.nn.functional; both refuse, or both agree."""
    arrays = [None if a is None else a.astype(dtype.numpy) for a in arrays]
    theirs = [None if a is None else torch_tensor(a, grad=True) for a in arrays]
    try:
        want = getattr(torch.nn.functional, name)(*theirs, **kwargs)
    except RuntimeError:
        with pytest.raises((ArgumentError, ShapeError)):
            getattr(pf, name)(*[None if a is None else pf.tensor(a) for a in arrays], **kwargs)
        return
    ours = [None if a is None else pf.tensor(a).requires_grad_() for a in arrays]
    got = getattr(pf, name)(*ours, **kwargs)
    close(got, want, dtype, f"{name} {kwargs}", scale)
    if not want.requires_grad:
        return
    seed = np.random.default_rng(1).standard_normal(tuple(want.shape)).astype(dtype.numpy)
    want.backward(torch_tensor(seed))
    got.backward(pf.tensor(seed))
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine is not None:
            close(mine.grad, other.grad, dtype, f"gradient {number} of {name} {kwargs}", scale)


def close(got: Any, want: Any, dtype: Any, what: str, scale: float = 1.0) -> None:
    left, right = np.asarray(to_array(got), np.float64), np.asarray(to_array(want), np.float64)
    assert left.shape == right.shape, f"{what}: shape {left.shape}, expected {right.shape}"
    rtol, atol = (scale * t for t in TOLERANCE[dtype.name])
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=what, equal_nan=True)


def values(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape)


# --- convolution --------------------------------------------------------------------------------------------------


def per_axis(rank: int, low: int, high: int) -> st.SearchStrategy[Any]:
    one = st.integers(low, high)
    return st.one_of(one, st.tuples(*[one] * rank))


@st.composite
def convolutions(draw: Any, transposed: bool) -> tuple[str, list[Any], dict[str, Any], Any]:
    rank = draw(st.integers(1, 3))
    most = (24, 12, 6)[rank - 1]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    ins, outs = (groups * draw(st.integers(1, 4)) for _ in range(2))
    taps = draw(st.tuples(*[st.integers(1, 4)] * rank))
    size = draw(st.tuples(*[st.integers(1, most)] * rank))
    batch = draw(st.sampled_from([(), (0,), (1,), (2,), (3,)]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    kwargs: dict[str, Any] = {
        "groups": groups,
        "stride": draw(per_axis(rank, 1, 3)),
        "dilation": draw(per_axis(rank, 1, 3)),
    }
    if transposed:
        kwargs |= {"padding": draw(per_axis(rank, 0, 3)), "output_padding": draw(per_axis(rank, 0, 2))}
        weight = values(rng, ins, outs // groups, *taps)
    else:
        kwargs["padding"] = draw(st.one_of(per_axis(rank, 0, 3), st.sampled_from(["same", "valid"])))
        weight = values(rng, outs, ins // groups, *taps)
        if kwargs["padding"] == "same":
            kwargs["stride"] = 1
    bias = draw(st.sampled_from([None, values(rng, outs)]))
    name = f"conv{'_transpose' if transposed else ''}{rank}d"
    return (
        name,
        [values(rng, *batch, ins, *size), weight, bias],
        kwargs,
        draw(st.sampled_from([pf.float64, pf.float32])),
    )


@pytest.mark.slow
@SETTINGS
@given(convolutions(transposed=False))
def test_conv(case: Any) -> None:
    compare(*case)


@pytest.mark.slow
@SETTINGS
@given(convolutions(transposed=True))
def test_conv_transpose(case: Any) -> None:
    name, arrays, kwargs, dtype = case
    if arrays[0].size == 0:  # torch does not look at output_padding then
        kwargs["output_padding"] = 0
    compare(name, arrays, kwargs, dtype)


BIG = [
    ("conv2d", (2, 16, 30, 31), (24, 16, 3, 3), {"padding": 1}),
    ("conv2d", (2, 16, 30, 31), (24, 16, 3, 3), {"padding": 1, "stride": 2}),
    ("conv2d", (3, 32, 14, 14), (48, 32, 1, 1), {}),
    ("conv2d", (3, 32, 14, 14), (48, 32, 1, 1), {"stride": 2}),
    ("conv2d", (2, 3, 40, 40), (32, 3, 7, 7), {"padding": 3, "stride": 2}),
    ("conv2d", (2, 32, 20, 20), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    ("conv2d", (2, 32, 20, 20), (64, 1, 5, 5), {"padding": 2, "groups": 32, "stride": 2}),
    ("conv2d", (2, 32, 18, 18), (32, 8, 3, 3), {"padding": 2, "groups": 4, "dilation": 2}),
    ("conv1d", (2, 16, 500), (32, 16, 9), {"padding": 4}),
    ("conv3d", (1, 8, 9, 10, 11), (16, 8, 3, 3, 3), {"padding": 1}),
    ("conv_transpose2d", (2, 32, 9, 9), (32, 16, 4, 4), {"padding": 1, "stride": 2}),
    ("conv_transpose2d", (2, 32, 9, 9), (32, 8, 3, 3), {"padding": 1, "stride": 2, "output_padding": 1, "groups": 2}),
]


@pytest.mark.parametrize(("name", "x", "w", "kwargs"), BIG)
@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16, pf.float16], ids=lambda d: d.name)
def test_conv_of_real_sizes(name: str, x: Any, w: Any, kwargs: dict[str, Any], dtype: Any) -> None:
    """Sizes that take the blocked paths of the kernel. Sums are long, so tolerances grow."""
    rng = np.random.default_rng(0)
    fan = np.sqrt(np.prod(w[1:]))
    arrays = [values(rng, *x), values(rng, *w) / fan]
    if dtype is pf.float32:
        compare(name, arrays, kwargs, dtype, scale=20)
        return
    # torch sums 16-bit convolutions in blocks of its own: compare with the float32 answer for the same rounded inputs.
    rounded = [pf.tensor(a.astype(np.float32)).to(dtype) for a in arrays]
    got = getattr(pf, name)(*rounded, **kwargs)
    assert got.dtype is dtype
    want = getattr(torch.nn.functional, name)(*[torch.tensor(t.to(pf.float32).numpy()) for t in rounded], **kwargs)
    close(got.to(pf.float32), want, dtype, name)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"stride": 2}, {"padding": 1, "dilation": 2}, {"groups": 3}, {"groups": 3, "stride": 2, "padding": 1}],
)
def test_infinite_pixels_meet_their_own_taps_only(kwargs: dict[str, Any]) -> None:
    """Zeros that fill up what a kernel reads must not meet them: the weight's gradient would be nan in other taps."""
    x = np.random.default_rng(0).standard_normal((2, 3, 18, 17), np.float32)
    x[0, 0, 0] = x[1, 2, 9, 16] = x[1, 1, 5, 3] = np.inf
    groups = kwargs.get("groups", 1)
    w = torch.randn(16 // groups * groups, 3 // groups, 3, 3, requires_grad=True)
    torch.conv2d(torch.from_numpy(x), w, **kwargs).sum().backward()
    ours = pf.tensor(w.detach().numpy()).requires_grad_()
    pf.conv2d(pf.tensor(x), ours, **kwargs).sum().backward()
    assert ours.grad is not None
    close(ours.grad, w.grad, pf.float32, f"weight gradient with {kwargs}")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8], ids=lambda d: d.name)
def test_conv_of_integers(dtype: Any) -> None:
    """Integers wrap as they do in NumPy."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 50, shape).astype(dtype.numpy) for shape in ((2, 5, 9, 9), (6, 5, 3, 3)))
    got = pf.conv2d(pf.tensor(x), pf.tensor(w), padding=1)
    want = torch.nn.functional.conv2d(
        torch.from_numpy(x.astype(np.int64)), torch.from_numpy(w.astype(np.int64)), padding=1
    )
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy().astype(dtype.numpy))


def test_conv_of_views() -> None:
    """Channels-last, sliced, flipped and broadcast operands reach the kernel as strides."""
    rng = np.random.default_rng(0)
    x, w = values(rng, 2, 9, 8, 6), values(rng, 5, 3, 3, 3)
    last = pf.tensor(np.ascontiguousarray(x[..., ::2])).permute(0, 3, 1, 2)
    want = torch.nn.functional.conv2d(
        torch.from_numpy(x[..., ::2].copy()).permute(0, 3, 1, 2), torch.from_numpy(w), padding=1
    )
    close(pf.conv2d(last, pf.tensor(w), padding=1), want, pf.float64, "channels last")
    shared = pf.tensor(w[:1]).expand(5, 3, 3, 3)
    close(pf.conv2d(last, shared, padding=1)[:, 4], want[:, 0], pf.float64, "broadcast weight")


@pytest.mark.parametrize("groups", [1, 2])
def test_one_launch_with_bias_and_activation(groups: int) -> None:
    """The bias and what follows it run in the convolution's epilogue."""
    x, w, b = (pf.tensor(np.zeros(s, np.float32)) for s in ((2, 4, 8, 8), (6, 4 // groups, 3, 3), (6,)))
    y = pf.relu(pf.conv2d(x, w, b, groups=groups) * 2.0)
    assert [launch.implementation for launch in plan_of(y).launches] == ["conv"]


def second_derivative(name: str, arrays: list[Any], kwargs: dict[str, Any]) -> None:
    """Gradient of |gradient|^2, in both."""
    results = []
    for lib in (pf, torch):
        made: Any = pf.tensor if lib is pf else torch.from_numpy
        leaves = [made(a.copy()).requires_grad_() for a in arrays]
        fn = getattr(pf if lib is pf else torch.nn.functional, name)
        out = fn(*leaves, **kwargs)
        (out * out).sum().backward(create_graph=True)
        total = sum(((leaf.grad * leaf.grad).sum() for leaf in leaves), start=made(np.zeros(())))
        for leaf in leaves:
            leaf.grad = None
        total.backward()
        results.append([leaf.grad for leaf in leaves])
    for mine, other in zip(*results, strict=True):
        close(mine, other, pf.float64, f"second derivative of {name}", 100)


@pytest.mark.parametrize(
    ("name", "shapes", "kwargs"),
    [
        ("conv2d", [(2, 4, 6, 5), (6, 2, 3, 2)], {"groups": 2, "stride": 2, "padding": 1, "dilation": (1, 2)}),
        ("conv1d", [(2, 3, 8), (4, 3, 3)], {"padding": "same"}),
        ("conv_transpose2d", [(2, 4, 4, 3), (4, 3, 3, 2)], {"stride": 2, "output_padding": 1, "groups": 2}),
        ("conv3d", [(1, 2, 3, 4, 3), (2, 2, 2, 2, 2)], {}),
        ("avg_pool2d", [(2, 3, 6, 7)], {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("max_pool2d", [(2, 3, 6, 7)], {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("adaptive_avg_pool2d", [(2, 3, 6, 7)], {"output_size": (4, 3)}),
    ],
)
def test_second_derivatives(name: str, shapes: Any, kwargs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    second_derivative(name, [values(rng, *s) for s in shapes], kwargs)


# --- pooling ------------------------------------------------------------------------------------------------------


@st.composite
def poolings(draw: Any, kind: str) -> tuple[str, Any, dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    most = (40, 20, 7)[rank - 1]
    size = draw(st.tuples(*[st.integers(1, most)] * rank))
    batch = draw(st.sampled_from([(), (0,), (1,), (3,)]))
    shape = (*batch, draw(st.integers(1, 3)), *size)
    kernel = draw(per_axis(rank, 1, 5))
    kwargs: dict[str, Any] = {"kernel_size": kernel, "stride": draw(st.one_of(st.none(), per_axis(rank, 1, 4)))}
    kwargs["padding"] = draw(per_axis(rank, 0, 2))
    kwargs["ceil_mode"] = draw(st.booleans())
    if kind == "max":
        kwargs["dilation"] = draw(per_axis(rank, 1, 3))
    else:
        kwargs["count_include_pad"] = draw(st.booleans())
        if rank > 1 and draw(st.booleans()):
            kwargs["divisor_override"] = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.permutation(int(np.prod(shape))).reshape(shape) / 8.0
    if draw(st.booleans()):
        x = np.floor(x) % 3  # many ties
    return f"{kind}_pool{rank}d", x, kwargs


def comparable(x: Any, kwargs: dict[str, Any], rank: int) -> bool:
    """torch reads outside of the input where a dilated window lies in the padding only; we refuse that."""
    each = {k: v if isinstance(v, tuple) else (v,) * rank for k, v in kwargs.items()}
    for axis in range(rank):
        stride = each["kernel_size" if kwargs["stride"] is None else "stride"][axis]
        options = [each[k][axis] for k in ("kernel_size", "padding", "dilation")]
        window = Window(x.shape[axis - rank], 0, options[0], stride, options[1], options[2]).counted(
            kwargs["ceil_mode"]
        )
        if any(first >= end for first, end, _ in window.spans()):
            return False
    return True


@SETTINGS
@given(poolings("max"), st.sampled_from([pf.float64, pf.float32]))
def test_max_pool(case: Any, dtype: Any) -> None:
    name, x, kwargs = case
    assume(comparable(x, kwargs, int(name[-2])))
    compare(name, [x], kwargs, dtype)


@SETTINGS
@given(poolings("avg"), st.sampled_from([pf.float64, pf.float32]))
def test_avg_pool(case: Any, dtype: Any) -> None:
    name, x, kwargs = case
    if name == "avg_pool3d":  # torch wants the unpadded input to be as large as the kernel, in 3-d only
        kernel = kwargs["kernel_size"]
        assume(
            all(
                s >= k
                for s, k in zip(x.shape[-3:], kernel if isinstance(kernel, tuple) else (kernel,) * 3, strict=True)
            )
        )
    compare(name, [x], kwargs, dtype)


@SETTINGS
@given(st.data())
def test_adaptive_pool(data: Any) -> None:
    rank = data.draw(st.integers(1, 3))
    kind = data.draw(st.sampled_from(["avg", "max"]))
    size = data.draw(st.tuples(*[st.integers(1, 12)] * rank))
    out = data.draw(st.one_of(st.integers(1, 14), st.tuples(*[st.integers(1, 9)] * rank)))
    batch = data.draw(st.sampled_from([(), (0,), (2,)]))
    x = np.random.default_rng(0).permutation(int(np.prod((*batch, 3, *size)))).reshape((*batch, 3, *size)) / 8.0
    compare(f"adaptive_{kind}_pool{rank}d", [x], {"output_size": out})


@pytest.mark.slow
@SETTINGS
@given(poolings("max"))
def test_max_pool_indices(case: Any) -> None:
    name, x, kwargs = case
    assume(comparable(x, kwargs, int(name[-2])))
    if x.size:
        x.reshape(-1)[:: max(3, x.size // 4)] = np.nan
        x.reshape(-1)[1 :: max(3, x.size // 5)] = -np.inf
    try:
        want = getattr(torch.nn.functional, name)(torch.from_numpy(x), **kwargs, return_indices=True)
    except RuntimeError:
        assume(False)
    got = getattr(pf, name)(pf.tensor(x), **kwargs, return_indices=True)
    np.testing.assert_array_equal(got[0].numpy(), want[0].numpy())
    np.testing.assert_array_equal(got[1].numpy(), want[1].numpy())


@pytest.mark.parametrize("dtype", [pf.float64, pf.float32, pf.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3, 8, 70), (1, 1, 2, 2), (3, 6, 34)])
def test_gradient_of_maxima_of_squares(shape: tuple[int, ...], dtype: Any) -> None:
    """Windows of 2 x 2 that tile planes: of equal maxima the first one has the gradient, of NaN the last one."""
    x = np.floor(np.random.default_rng(0).random(shape) * 4)
    compare("max_pool2d", [x], {"kernel_size": 2}, dtype)
    for value in (np.nan, -np.inf):
        x[..., ::3, 1::2] = value
        ours, theirs = pf.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        g = np.random.default_rng(1).random((*shape[:-2], shape[-2] // 2, shape[-1] // 2))
        pf.max_pool2d(ours, 2).backward(pf.tensor(g))
        torch.nn.functional.max_pool2d(theirs, 2).backward(torch.tensor(g))
        assert ours.grad is not None and theirs.grad is not None
        np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


@pytest.mark.parametrize("dtype", [pf.bfloat16, pf.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pool_of_small_floats(name: str, dtype: Any) -> None:
    """Summed in float32 and rounded once, forward and backward."""
    x = np.random.default_rng(0).standard_normal((2, 3, 15, 17))
    compare(name, [x], {"kernel_size": 3, "stride": 2, "padding": 1}, dtype)
    compare(name, [x], {"kernel_size": 3, "stride": 1, "padding": 1}, dtype)


@pytest.mark.parametrize("dtype", [pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8], ids=lambda d: d.name)
def test_max_pool_of_integers(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 200, (2, 3, 9, 8)).astype(dtype.numpy)
    got = pf.max_pool2d(pf.tensor(x), 3, 2, 1)
    want = torch.nn.functional.max_pool2d(torch.from_numpy(x.astype(np.float64)), 3, 2, 1)
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy().astype(dtype.numpy))


def test_large_planes() -> None:
    """Enough rows that several threads share them; strides with and without a vector path."""
    x = np.random.default_rng(0).standard_normal((2, 8, 65, 130))
    for stride in (1, 2, 3):
        compare("max_pool2d", [x], {"kernel_size": 3, "stride": stride, "padding": 1}, pf.float32)
        compare("avg_pool2d", [x], {"kernel_size": 3, "stride": stride, "padding": 1}, pf.float32)


@pytest.mark.parametrize("width", [32, 300, 2000])
@pytest.mark.parametrize("dtype", [pf.float32, pf.bfloat16], ids=lambda d: d.name)
def test_windows_that_tile_their_rows(width: int, dtype: Any) -> None:
    """Several rows of outputs share a line: all of a plane, a number that does not divide it, and one."""
    x = np.random.default_rng(0).permutation(2 * 20 * width).reshape(1, 2, 20, width) % 251 / 8.0
    for kernel, dilation, padding in ((2, 1, 0), (4, 1, (1, 0)), ((3, 1), (1, 2), 0)):
        options = {"kernel_size": kernel, "stride": (3, 4) if kernel == (3, 1) else None, "padding": padding}
        compare("max_pool2d", [x], options | {"dilation": dilation}, dtype)
        compare("avg_pool2d", [x], options, dtype)


# --- bad input ----------------------------------------------------------------------------------------------------

IMAGE = np.zeros((2, 4, 8, 8), np.float32)
WEIGHT = np.zeros((6, 4, 3, 3), np.float32)
BAD: list[tuple[type[Exception], str, Fn]] = [
    (ShapeError, "input \\(\\[batch,\\]", lambda: pf.conv2d(pf.tensor(IMAGE[0, 0]), pf.tensor(WEIGHT))),
    (ShapeError, "weight", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT[0]))),
    (ShapeError, "12 input channels", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), groups=3)),
    (ShapeError, "multiple of groups=4", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT[:, :1]), groups=4)),
    (ShapeError, "bias of shape \\(6,\\)", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), pf.zeros(5))),
    (ShapeError, "fits the padded input", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), dilation=5)),
    (ArgumentError, "stride of at least 1", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), stride=0)),
    (ArgumentError, "stride to be a whole", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), stride=1.5)),
    (ArgumentError, "padding of at least 0", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), padding=(1, 2, 3))),
    (ArgumentError, "'same', 'valid'", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), padding="full")),
    (ArgumentError, "stride 1 with", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), padding="same", stride=2)),
    (ArgumentError, "groups of at least 1", lambda: pf.conv2d(pf.tensor(IMAGE), pf.tensor(WEIGHT), groups=0)),
    (DTypeError, "a tensor as weight", lambda: pf.conv2d(pf.tensor(IMAGE), 3)),
    (DTypeError, "numbers to add up", lambda: pf.conv2d(pf.tensor(IMAGE).to(pf.bool_), pf.tensor(WEIGHT).to(pf.bool_))),
    (
        ArgumentError,
        "output_padding below",
        lambda: pf.conv_transpose2d(pf.zeros(1, 6, 4, 4), pf.tensor(WEIGHT), output_padding=1),
    ),
    (
        ShapeError,
        "at least one element",
        lambda: pf.conv_transpose2d(pf.zeros(1, 6, 1, 1), pf.tensor(WEIGHT), padding=2),
    ),
    (ShapeError, "axes of at least 1", lambda: pf.max_pool2d(pf.zeros(2, 2), 2)),
    (ShapeError, "axes of at least 1", lambda: pf.max_pool2d(pf.zeros(2, 2, 0, 3), 2)),
    (ArgumentError, "half the kernel", lambda: pf.max_pool2d(pf.tensor(IMAGE), 2, padding=2)),
    (ArgumentError, "kernel_size of at least 1", lambda: pf.max_pool2d(pf.tensor(IMAGE), 0)),
    (ShapeError, "fits the padded input", lambda: pf.max_pool2d(pf.tensor(IMAGE), 9)),
    (ShapeError, "hold an element", lambda: pf.max_pool1d(pf.zeros(1, 1, 2), 2, stride=1, padding=1, dilation=3)),
    (ArgumentError, "ceil_mode", lambda: pf.max_pool2d(pf.tensor(IMAGE), 2, ceil_mode="yes")),
    (ArgumentError, "divisor_override", lambda: pf.avg_pool2d(pf.tensor(IMAGE), 2, divisor_override=0)),
    (DTypeError, "floats", lambda: pf.avg_pool2d(pf.tensor(IMAGE).to(pf.int32), 2)),
    (ArgumentError, "output_size", lambda: pf.adaptive_avg_pool2d(pf.tensor(IMAGE), (1, 2, 3))),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD)
def test_errors_name_what_is_wrong(error: type[Exception], words: str, call: Callable[[], Tensor]) -> None:
    with pytest.raises(error, match=words):
        call()
