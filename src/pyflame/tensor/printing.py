"""How tensors print: like PyTorch's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.errors import ArgumentError

if TYPE_CHECKING:
    from pyflame.tensor.tensor import Tensor


_DEFAULT: dict[str, Any] = dict(precision=4, threshold=1000, edgeitems=3, max_line_width=None, formatter=None)
_PROFILES = {"default": {}, "short": dict(precision=2, edgeitems=2), "full": dict(threshold=sys.maxsize)}
_options = dict(_DEFAULT)


def set_options(
    precision: int | None,
    threshold: int | None,
    edgeitems: int | None,
    linewidth: int | None,
    profile: str | None,
    sci_mode: bool | None,
) -> None:
    """Change how tensors print; None leaves an option as it is."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(f"[set_printoptions] expected a profile of {', '.join(_PROFILES)} but got {profile!r}")
        _options.update(_DEFAULT | _PROFILES[profile])
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, max_line_width=linewidth)
    _options.update({name: value for name, value in given.items() if value is not None})
    if sci_mode is not None:
        digits = _options["precision"]
        kinds = {"float_kind": lambda v: f"{v:.{digits}{'e' if sci_mode else 'f'}}"}
        _options["formatter"] = kinds


def format_tensor(tensor: Tensor) -> str:
    """tensor([1., 2.]) with the dtype where it is not the default, and the device where it is not the CPU."""
    if not tensor.device.id.computes:
        return f"tensor(..., shape={tensor.shape}, dtype={tensor.dtype.name}, device={str(tensor.device)!r})"
    array = tensor._snapshot().numpy()
    if tensor.dtype.compute is not tensor.dtype:
        array = array.astype(np.float32)
    body = np.array2string(array, separator=", ", prefix="tensor(", floatmode="maxprec", **_options)
    notes = []
    if tensor.dtype.name not in ("float32", "int64", "bool_"):
        notes.append(f"dtype={tensor.dtype.name}")
    if tensor.numel() == 0:
        notes.append(f"shape={tensor.shape}")
    if tensor.device != "cpu":
        notes.append(f"device={str(tensor.device)!r}")
    if tensor.requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
