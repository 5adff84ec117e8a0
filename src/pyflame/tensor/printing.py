"""How tensors print: like PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyflame.tensor.tensor import Tensor


def format_tensor(tensor: Tensor) -> str:
    """tensor([1., 2.]) with the dtype where it is not the default, and the device where it is not the CPU."""
    if tensor.device.startswith("null"):
        return f"tensor(..., shape={tensor.shape}, dtype={tensor.dtype.name}, device={str(tensor.device)!r})"
    array = tensor.detach().numpy()
    if tensor.dtype.compute is not tensor.dtype:
        array = array.astype(np.float32)
    body = np.array2string(array, separator=", ", precision=4, threshold=1000, prefix="tensor(", floatmode="maxprec")
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
