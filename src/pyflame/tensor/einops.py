"""einops on our tensors: `einops.rearrange(x, "b c h w -> b (h w) c")`.

einops asks every class that derives from its AbstractBackend whether it knows a tensor. Ours is made when einops is
imported (core/when_imported.py); it is a base class of another library, so it cannot stand at the top of this file.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pyflame.tensor.creation import arange, tensor
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.tensor import Tensor

_REDUCTIONS = {"min": "amin", "max": "amax", "sum": "sum", "mean": "mean", "prod": "prod", "any": "any", "all": "all"}


def register(backends: ModuleType) -> None:
    """Derive a backend from einops' base class."""

    base: Any = backends.AbstractBackend

    class PyFlameBackend(base):  # type: ignore[misc]
        framework_name = "pyflame"

        def is_appropriate_type(self, value: Any) -> bool:
            return isinstance(value, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            made = tensor(x)
            return made.requires_grad_() if made.dtype.is_float else made

        def to_numpy(self, x: Tensor) -> Any:
            return x.detach().numpy()

        def arange(self, start: int, stop: int) -> Tensor:
            return arange(start, stop)

        def reduce(self, x: Tensor, operation: str, axes: Any) -> Any:
            if operation in ("prod", "any", "all"):  # one axis at a time
                for axis in sorted(axes, reverse=True):
                    x = F[operation](x, axis)
                return x
            return F[_REDUCTIONS[operation]](x, tuple(axes))

        def transpose(self, x: Tensor, axes: Any) -> Any:
            return F["permute"](x, tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Any:
            return F["stack"](tensors)

        def add_axis(self, x: Tensor, new_position: int) -> Any:
            return F["unsqueeze"](x, new_position)

        def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Any:
            sizes = [-1] * n_axes
            for position, length in pos2len.items():
                x = self.add_axis(x, position)
                sizes[position] = length
            return F["expand"](x, tuple(sizes))

        def tile(self, x: Tensor, repeats: Any) -> Any:
            return F["tile"](x, tuple(repeats))

        def concat(self, tensors: list[Tensor], axis: int) -> Any:
            return F["cat"](tensors, axis)

        def is_float_type(self, x: Tensor) -> bool:
            return x.dtype.is_float

        def einsum(self, pattern: str, *x: Tensor) -> Any:
            return F["einsum"](pattern, *x)

    PyFlameBackend.__module__ = __name__
    # einops finds it by way of its base class, which holds subclasses weakly
    backends.PyFlameBackend = PyFlameBackend  # type: ignore[attr-defined]
