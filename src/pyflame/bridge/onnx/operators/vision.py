"""Sampling of images at places that are computed."""

from __future__ import annotations

import numpy as np

from pyflame.bridge.onnx.operators.shapes import ints
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.core.dtype import int64
from pyflame.nn import functional
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor


@operator("AffineGrid", host=[1])
def affine_grid(call: Call, theta: Tensor, size: Array) -> Tensor:
    return functional.affine_grid(theta, ints(size), bool(call.get("align_corners", 0)))


@operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    given = call.get("mode", "linear")  # the names changed with opset 20
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(given, given)
    if mode == "bicubic" and x.ndim != 4:
        raise call.refuse("has mode cubic over other than two axes of space")
    padding = call.get("padding_mode", "zeros")
    return functional.grid_sample(x, grid.to(x.dtype), mode, padding, bool(call.get("align_corners", 0)))


@operator("RoiAlign")
def roi_align(call: Call, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    """Each region as a grid of bins; a bin is the mean or the maximum of samples between pixels."""
    if call.get("sampling_ratio", 0) == 0:
        raise call.refuse("has sampling_ratio 0, so the number of samples depends on values")
    scale, samples = call.get("spatial_scale", 1.0), call.get("sampling_ratio")
    half = call.opset >= 16 and call.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    corners = rois * scale - (0.5 if half else 0.0)
    size = corners[:, 2:] - corners[:, :2]
    size = size if half else size.clamp_min(1.0)
    ys = _samples(corners[:, 1], size[:, 1], call.get("output_height", 1), samples)  # (R, bins * samples)
    xs = _samples(corners[:, 0], size[:, 0], call.get("output_width", 1), samples)
    images = F["index_select"](x, 0, batch.to(int64))
    found = _between(images, ys, xs, call.get("mode", "avg") == "max")
    height, width = call.get("output_height", 1), call.get("output_width", 1)
    bins = found.reshape(*found.shape[:2], height, samples, width, samples, *found.shape[4:])
    if call.get("mode", "avg") == "max":
        return F["amax"](bins, (3, 5))
    return F["mean"](bins, (3, 5))


def _samples(start: Tensor, size: Tensor, bins: int, samples: int) -> Tensor:
    """Where the samples of one axis lie."""
    at = (arange(bins * samples).to(start.dtype) + 0.5) / (bins * samples)
    return start.unsqueeze(1) + size.unsqueeze(1) * at


def _between(images: Tensor, ys: Tensor, xs: Tensor, largest: bool) -> Tensor:
    """(R, C, H, W) at all pairs of ys (R, Y) and xs (R, X): (R, C, Y, X), weighed, or the largest weighed pixel."""
    height, width = images.shape[2:]
    rows, columns = _neighbours(ys, height), _neighbours(xs, width)
    total = None
    flat = images.reshape(*images.shape[:2], height * width)
    for y, wy in rows:
        for x, wx in columns:
            at = (y.unsqueeze(2) * width + x.unsqueeze(1)).reshape(y.shape[0], 1, -1)
            pixels = F["gather"](flat, 2, at.expand(*images.shape[:2], at.shape[2]))
            part = pixels.reshape(*images.shape[:2], y.shape[1], x.shape[1])
            part = part * (wy.unsqueeze(2) * wx.unsqueeze(1)).unsqueeze(1)
            total = part if total is None else F["maximum"](total, part) if largest else total + part
    assert total is not None
    return total


def _neighbours(at: Tensor, length: int) -> list[tuple[Tensor, Tensor]]:
    """The two pixels around each place and their weights; places far outside count nothing."""
    inside = ((at >= -1.0) & (at <= length)).to(at.dtype)
    held = at.clamp(0.0, length - 1.0)
    low = F["floor"](held)
    share = held - low
    high = (low + 1).clamp_max(length - 1.0)
    return [(low.to(int64), (1 - share) * inside), (high.to(int64), share * inside)]


@operator("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """A convolution whose every tap reads at a place of its own, between pixels."""
    n, c, height, width = x.shape
    out_c, _, kh, kw = w.shape
    sh, sw = call.get("strides", [1, 1])
    dh, dw = call.get("dilations", [1, 1])
    pads, groups, parts = call.get("pads", [0] * 4), call.get("group", 1), call.get("offset_group", 1)
    oh, ow = offset.shape[2:]
    moved = offset.reshape(n, parts, kh * kw, 2, oh, ow)
    taps = np.indices((kh, kw)).reshape(2, -1, 1, 1)
    ys = _grid(taps[0] * dh - pads[0], np.arange(oh)[:, None] * sh) + moved[:, :, :, 0]
    xs = _grid(taps[1] * dw - pads[1], np.arange(ow)[None] * sw) + moved[:, :, :, 1]
    images = x.reshape(n * parts, c // parts, height * width)
    count = kh * kw * oh * ow
    read = _bilinear(images, ys.reshape(n * parts, 1, count), xs.reshape(n * parts, 1, count), height, width)
    read = read.reshape(n, parts, c // parts, kh * kw, oh * ow)
    if mask is not None:
        read = read * mask.reshape(n, parts, 1, kh * kw, oh * ow)
    columns = read.reshape(n, groups, c // groups * kh * kw, oh * ow)
    found = F["matmul"](w.reshape(1, groups, out_c // groups, -1), columns).reshape(n, out_c, oh, ow)
    return found if b is None else found + b.reshape(1, -1, 1, 1)


def _grid(taps: Array, steps: Array) -> Tensor:
    return tensor((taps + steps).astype(np.float32))


def _bilinear(images: Tensor, ys: Tensor, xs: Tensor, height: int, width: int) -> Tensor:
    """(N, C, H*W) at (N, 1, K): zero outside of the image."""
    top, left = F["floor"](ys), F["floor"](xs)
    total = None
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = top + dy, left + dx
            weight = (1 - (ys - y).abs()) * (1 - (xs - x).abs())
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            at = y.clamp(0, height - 1).to(int64) * width + x.clamp(0, width - 1).to(int64)
            pixels = F["gather"](images, 2, at.expand(images.shape[0], images.shape[1], at.shape[2]))
            part = pixels * F["where"](inside, weight, 0.0)
            total = part if total is None else total + part
    assert total is not None
    return total
