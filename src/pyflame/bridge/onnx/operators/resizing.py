"""Resize and Upsample: one axis after the other, by taps and weights that are computed on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyflame.bridge.onnx.operators.shapes import ints
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.nn.functional.interpolation import cubic_kernel, resized
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor


@dataclass
class Axis:
    """One axis that gets another length. `roi`: the part that tf_crop_and_resize takes."""

    call: Call
    old: int
    new: int
    scale: float
    roi: tuple[float, float]

    def places(self) -> Array:
        """Where each new element lies among the old ones."""
        x, mode = np.arange(self.new, dtype=np.float64), self.call.get("coordinate_transformation_mode", "half_pixel")
        mode = "asymmetric" if self.call.op == "Upsample" or self.call.opset < 11 else mode
        if mode == "half_pixel":
            return (x + 0.5) / self.scale - 0.5
        if mode == "half_pixel_symmetric":
            offset = self.old / 2 * (1 - self.new / (self.scale * self.old))
            return offset + (x + 0.5) / self.scale - 0.5
        if mode == "pytorch_half_pixel":
            return (x + 0.5) / self.scale - 0.5 if self.new > 1 else np.zeros(1)
        if mode == "align_corners":
            whole = self.scale * self.old  # not rounded
            return x * ((self.old - 1) / (whole - 1)) if self.new > 1 else np.zeros(self.new)
        if mode == "asymmetric":
            return x / self.scale
        if mode == "tf_half_pixel_for_nn":
            return (x + 0.5) / self.scale
        if mode == "tf_crop_and_resize":
            low, high = (r * (self.old - 1) for r in self.roi)
            return low + x * (high - low) / (self.new - 1) if self.new > 1 else np.full(1, (low + high) / 2)
        raise self.call.refuse(f"has coordinate_transformation_mode {mode}")

    def taps(self, places: Array) -> tuple[Array, Array | None]:
        """For each new element the old ones that it reads, and their weights: two arrays (taps, new length)."""
        mode = self.call.get("mode", "nearest")
        if mode == "nearest":
            return self._nearest(places).clip(0, self.old - 1).astype(np.int64)[None], None
        narrow = min(self.scale, 1.0) if self.call.get("antialias", 0) else 1.0
        reach = 2.0 if mode == "cubic" else 1.0
        side = int(np.ceil(reach / narrow))
        reads = np.floor(places) + np.arange(1 - side, side + 1)[:, None]
        away = (reads - places) * narrow
        slope = self.call.get("cubic_coeff_a", -0.75)
        weights = cubic_kernel(away, slope) if mode == "cubic" else np.maximum(1.0 - np.abs(away), 0.0)
        if self.call.get("exclude_outside", 0):
            weights = np.where((reads >= 0) & (reads < self.old), weights, 0.0)
        return reads.clip(0, self.old - 1).astype(np.int64), weights / weights.sum(0)

    def _nearest(self, places: Array) -> Array:
        if self.call.op == "Upsample" or self.call.opset < 11:
            return np.floor(places)
        mode = self.call.get("nearest_mode", "round_prefer_floor")
        if mode == "round_prefer_floor":
            return np.ceil(places - 0.5)
        if mode == "ceil":
            return np.asarray(np.ceil(places))
        return np.asarray(np.floor(places + 0.5 if mode == "round_prefer_ceil" else places))


def _targets(
    call: Call, x: Tensor, axes: list[int], scales: Array | None, sizes: Array | None
) -> list[tuple[int, float]]:
    """For each axis its new length and scale."""
    if scales is not None and scales.size:
        return [(int(np.floor(x.shape[a] * s)), float(s)) for a, s in zip(axes, np.asarray(scales), strict=True)]
    assert sizes is not None
    wanted = ints(sizes)
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    each = [n / x.shape[a] for n, a in zip(wanted, axes, strict=True)]
    if policy == "stretch":
        return list(zip(wanted, each, strict=True))
    scale = min(each) if policy == "not_larger" else max(each)
    return [(int(np.floor(scale * x.shape[a] + 0.5)), scale) for a in axes]


@operator("Resize", "Upsample", host=[1, 2, 3])
def resize(
    call: Call, x: Tensor, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Tensor:
    if call.op == "Upsample" or call.opset < 11:  # (x, scales)
        roi, scales = None, np.array(call.get("scales")) if roi is None else roi
    axes = [a % x.ndim for a in call.get("axes", range(x.ndim))]
    outside, dtype = None, x.dtype
    given = None if roi is None or not roi.size else np.asarray(roi, np.float64).reshape(2, -1)
    for n, (axis, (new, scale)) in enumerate(zip(axes, _targets(call, x, axes, scales, sizes), strict=True)):
        part = (0.0, 1.0) if given is None else (given[0, n], given[1, n])
        crops = call.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        if new == x.shape[axis] and scale == 1 and (not crops or part == (0.0, 1.0)):
            continue
        plan = Axis(call, x.shape[axis], new, scale, part)
        places = plan.places()
        x = resized(x, axis, *plan.taps(places))
        if crops:
            beyond = tensor((places < 0) | (places > plan.old - 1)).reshape([-1] + [1] * (x.ndim - axis - 1))
            outside = beyond if outside is None else outside | beyond
    return (x if outside is None else F["where"](outside, call.get("extrapolation_value", 0.0), x)).to(dtype)
