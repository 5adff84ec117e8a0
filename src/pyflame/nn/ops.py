"""The ops of the catalogue by name, as layers call them: over Tensors, and typed. (Almost all give one tensor.)"""

from __future__ import annotations

from collections.abc import Callable

from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS

F: dict[str, Callable[..., Tensor]] = FUNCTIONS
