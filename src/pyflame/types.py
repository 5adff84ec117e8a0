"""torch.types by its path: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Union

from pyflame.core.dtype import DType as _dtype  # noqa: F401  what programs import
from pyflame.core.shape import Size
from pyflame.tensor.devices import device as _device
from pyflame.tensor.storage import UntypedStorage as Storage
from pyflame.tensor.tensor import Tensor

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_size = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007  programs ask isinstance of its arguments
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
Number = Union[int, float, bool]  # noqa: UP007
Device = Union[_device, str, int, None]  # noqa: UP007
FileLike = Union[str, os.PathLike[str], IO[bytes]]  # noqa: UP007

__all__ = ["Device", "FileLike", "Number", "Storage"]
