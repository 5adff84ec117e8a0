"""Interpolation. aten passes the size and, where the user gave them, scale factors, which move the sampled points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row


def _resized(x: Any, size: Any, mode: str, align: bool | None, scales: tuple[Any, ...]) -> Any:
    for n, out, scale in zip(x.shape[2:], size, scales, strict=True):
        if scale is not None and n * scale != out:
            raise pf.NotSupportedError(
                f"[upsample] expected a size that is the input's times the scale factor but got {n} * {scale} and {out}"
            )
    return pf.nn.functional.interpolate(x, tuple(size), mode=mode, align_corners=align)


def _nearest(mode: str) -> Callable[..., Any]:
    def forward(x: Any, size: Any, *scales: Any) -> Any:
        return _resized(x, size, mode, None, scales or (None,) * len(size))

    return forward


def _linear(mode: str) -> Callable[..., Any]:
    def forward(x: Any, size: Any, align: bool, *scales: Any) -> Any:
        return _resized(x, size, mode, align, scales or (None,) * len(size))

    return forward


def _backward(forward: Callable[..., Any]) -> Callable[..., Any]:
    def backward(g: Any, size: Any, input_size: Any, *rest: Any) -> Any:
        # linear, so its gradient is the same everywhere
        return gradients(lambda t: forward(t, size, *rest), [pf.zeros(tuple(input_size), dtype=g.dtype)], g)[0]

    return backward


_FORWARDS = {
    "upsample_nearest1d": _nearest("nearest"),
    "upsample_nearest2d": _nearest("nearest"),
    "upsample_nearest3d": _nearest("nearest"),
    "_upsample_nearest_exact2d": _nearest("nearest-exact"),
    "upsample_linear1d": _linear("linear"),
    "upsample_bilinear2d": _linear("bilinear"),
    "upsample_trilinear3d": _linear("trilinear"),
    "upsample_bicubic2d": _linear("bicubic"),
}


def _of_factors(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The overload that takes the size or scale factors, and is what torch.export gives."""

    def forward_of(x: Any, size: Any, *rest: Any) -> Any:
        *align, factors = rest
        wanted = size or [int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
        return forward(x, wanted, *align, *(factors or ()))

    return forward_of


for _name, _forward in _FORWARDS.items():
    row(_name)(_forward)
    row(f"{_name}.vec")(_of_factors(_forward))
    row(f"{_name}_backward")(_backward(_forward))

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@row("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    return pf.nn.functional.grid_sample(x, grid, _MODES[mode], _PADDINGS[padding], align)


@row("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    g: Any, x: Any, grid: Any, mode: int, padding: int, align: bool, wanted: Any
) -> tuple[Any, ...]:
    return tuple(gradients(lambda a, b: grid_sampler(a, b, mode, padding, align), [x, grid], g, wanted))
