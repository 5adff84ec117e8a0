"""`convert`: a torch module becomes one of ours, with the same names and values in its state dict.

Layers of torch.nn become the class of the same name in pyflame.nn, containers of them too. Any other module is exported
(torch.export) and its aten graph runs through the same table as `torch.compile`'s, with gradients of our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pyflame import nn
from pyflame.bridge.torch.classes import by_class
from pyflame.bridge.torch.exported import ConvertedModule, exported
from pyflame.core.errors import ArgumentTypeError, NotSupportedError, type_name

__all__ = ["ConvertedModule", "convert"]


def convert(
    module: torch.nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> nn.Module:
    """A torch module as one of ours. `args` and `kwargs` are example inputs, for modules that are not made of layers
    of torch.nn alone; `dynamic_shapes` is torch.export's, for sizes that may change.

    >>> ours = pyflame.bridge.torch.convert(torch.nn.Linear(4, 2))  # doctest: +SKIP
    >>> torch_linear.load_state_dict({k: v.to_torch() for k, v in ours.state_dict().items()})  # doctest: +SKIP
    """
    if not isinstance(module, torch.nn.Module):
        raise ArgumentTypeError(f"[convert] expected a torch.nn.Module but got {type_name(module)}")
    found, why = by_class(module)
    if found is not None:
        return found
    if args is None and kwargs is None:
        raise NotSupportedError(
            f"[convert] expected example inputs for torch.export, since {why}; call convert(module, (x,))"
        )
    return exported(module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes)
