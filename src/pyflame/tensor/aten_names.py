"""Ops of torch.ops.aten that have no function of their name in PyTorch, which programs that rewrite ops call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.tensor.creation import full_like, zeros_like
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor


def _to_copy(x: Tensor, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    given = {name: value for name, value in (("dtype", dtype), ("device", device)) if value is not None}
    return x.to(**given, copy=True) if given else x.clone()


def _slice(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _copy(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.to(dtype=x.dtype).expand(x.shape).clone()


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return FUNCTIONS["softmax"](x, dim)  # type: ignore[no-any-return]


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return FUNCTIONS["log_softmax"](x, dim)  # type: ignore[no-any-return]


def _padded(mode: str) -> Callable[..., Any]:
    return lambda x, padding: FUNCTIONS["pad"](x, padding, mode=mode)


def _resized(mode: str, aligns: bool) -> Callable[..., Any]:
    """`upsample_*`: the size, with `align_corners` behind it where the mode has it, and scales."""

    def resize(x: Tensor, output_size: Any, *rest: Any) -> Any:
        scales = [scale for scale in rest[aligns:] if scale is not None] or None
        if scales and isinstance(scales[0], (list, tuple)):
            scales = list(scales[0])
        interpolate = importlib.import_module("pyflame.nn.functional").interpolate
        size = None if output_size is None else list(output_size)
        given = {"scale_factor": scales} if size is None else {"size": size}
        return interpolate(x, **given, mode=mode, align_corners=rest[0] if aligns else None)

    return resize


def _sparse_addmm(x: Tensor, sparse: Any, dense: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    out: Tensor = beta * x + alpha * (sparse @ dense)
    return out


NAMES: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": lambda x: x.item(),
    "_log_softmax": _log_softmax,
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "_reshape_alias": lambda x, size, stride: x.as_strided(size, stride),
    "_softmax": _softmax,
    "_sparse_addmm": _sparse_addmm,
    "_to_copy": _to_copy,
    "_unsafe_view": lambda x, size: x.reshape(size),
    "alias": lambda x: x.view(x.shape),
    "copy": _copy,
    "fill": lambda x, value: full_like(x, value),
    "index": _index,
    "lift_fresh": lambda x: x,
    "slice": _slice,
    "sym_numel": lambda x: x.numel(),
    "sym_size": lambda x, dim=None: x.size(dim),
    "sym_storage_offset": lambda x: x.storage_offset(),
    "sym_stride": lambda x, dim=None: x.stride(dim),
    "zero": zeros_like,
}
for _name, _mode in (("reflection", "reflect"), ("replication", "replicate")):
    NAMES.update((f"{_name}_pad{_n}d", _padded(_mode)) for _n in (1, 2, 3))
for _name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
    NAMES[f"upsample_{_name}"] = _resized(_name[:-2], aligns=True)
for _n in (1, 2, 3):
    NAMES[f"upsample_nearest{_n}d"] = _resized("nearest", aligns=False)
    NAMES[f"_upsample_nearest_exact{_n}d"] = _resized("nearest-exact", aligns=False)
