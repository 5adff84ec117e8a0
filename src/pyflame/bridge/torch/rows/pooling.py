"""Pooling. aten writes the default stride as an empty list; its backward ops read the input, and so do ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row


def _max_pool(rank: int, returned: bool) -> Callable[..., Any]:
    pool = getattr(pf, f"max_pool{rank}d")

    def forward(x: Any, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Any:
        return pool(x, size, stride or None, padding, dilation, ceil, returned)

    return forward


def _avg_pool(rank: int) -> Callable[..., Any]:
    pool = getattr(pf, f"avg_pool{rank}d")

    def forward(
        x: Any, size: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, whole: bool = True,
        divisor: int | None = None,
    ) -> Any:  # fmt: skip
        return pool(x, size, stride or None, padding, ceil, whole, divisor)

    return forward


def _backward(forward: Callable[..., Any], left_out: int = 0) -> Callable[..., Any]:
    """aten's (g, x, *the forward op's arguments, *`left_out` saved values) as the gradient of our forward function."""

    def backward(g: Any, x: Any, *rest: Any, **named: Any) -> Any:
        given = rest[: len(rest) - left_out]
        return gradients(lambda t: forward(t, *given), [x], g)[0]

    return backward


for _rank in (2, 3):
    row(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, True))
    row(f"max_pool{_rank}d_with_indices_backward", unused=(7,))(_backward(_max_pool(_rank, False), 1))
    row(f"avg_pool{_rank}d")(_avg_pool(_rank))
    row(f"avg_pool{_rank}d_backward")(_backward(_avg_pool(_rank)))
row("avg_pool1d")(_avg_pool(1))


def _pad(mode: str) -> Callable[..., Any]:
    return lambda x, pad: pf.pad(x, tuple(pad), mode)


for _name, _forward in {"reflection": _pad("reflect"), "replication": _pad("replicate")}.items():
    for _rank in (1, 2, 3):
        row(f"{_name}_pad{_rank}d")(_forward)
        row(f"{_name}_pad{_rank}d_backward")(_backward(_forward))


@row("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(x: Any, size: Any) -> Any:
    return getattr(pf, f"adaptive_avg_pool{len(size)}d")(x, tuple(size))


@row("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(g: Any, x: Any) -> Any:
    return gradients(lambda t: pf.adaptive_avg_pool2d(t, g.shape[-2:]), [x], g)[0]


@row("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(g: Any, x: Any) -> Any:
    return gradients(lambda t: pf.adaptive_avg_pool3d(t, g.shape[-3:]), [x], g)[0]


@row("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Any, size: Any) -> Any:
    return getattr(pf, f"adaptive_max_pool{len(size)}d")(x, tuple(size), return_indices=True)


@row("adaptive_max_pool2d_backward", unused=(2,))
def adaptive_max_pool2d_backward(g: Any, x: Any, indices: Any) -> Any:
    return gradients(lambda t: pf.adaptive_max_pool2d(t, g.shape[-2:]), [x], g)[0]


@row("adaptive_max_pool3d_backward", unused=(2,))
def adaptive_max_pool3d_backward(g: Any, x: Any, indices: Any) -> Any:
    return gradients(lambda t: pf.adaptive_max_pool3d(t, g.shape[-3:]), [x], g)[0]


@row("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(x: Any, size: Any, out: Any, samples: Any) -> Any:
    pool = getattr(pf.nn.functional, f"fractional_max_pool{len(out)}d_with_indices")
    return pool(x, tuple(size), tuple(out), _random_samples=samples)


@row("fractional_max_pool2d_backward", "fractional_max_pool3d_backward")
def fractional_max_pool_backward(g: Any, x: Any, size: Any, out: Any, indices: Any) -> Any:
    flat = (*x.shape[: -len(out)], -1)
    spread = pf.zeros_like(x).reshape(flat).scatter_add(-1, indices.reshape(flat), g.reshape(flat))
    return spread.reshape(x.shape)


@row("conv_tbc_backward")
def conv_tbc_backward(g: Any, x: Any, weight: Any, bias: Any, pad: int) -> Any:
    return tuple(gradients(lambda a, w, b: pf.nn.functional.conv_tbc(a, w, b, pad), [x, weight, bias], g))


@row("constant_pad_nd")
def constant_pad(x: Any, pad: Any, value: Any = 0) -> Any:
    return pf.pad(x, tuple(pad), "constant", value)


@row("im2col")
def im2col(x: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return pf.nn.functional.unfold(x, tuple(size), tuple(dilation), tuple(padding), tuple(stride))


@row("col2im")
def col2im(x: Any, out: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return pf.nn.functional.fold(x, tuple(out), tuple(size), tuple(dilation), tuple(padding), tuple(stride))
