"""nn.parallel for one process: wrappers that programs for many GPUs put around a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.errors import NotSupportedError
from pyflame.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A model of a group of one process: it runs the module, and gradients need no averaging.

    Names in its state dict begin with "module.", as in PyTorch.

    >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 3))
    >>> model.module.weight.shape, next(iter(model.state_dict()))
    ((3, 2), 'module.weight')
    """

    module: Module

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, **options: Any) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotSupportedError(
                f"[{type(self).__name__}] expected at most one device but got {list(device_ids)}; PyFlame does not "
                "split batches across devices yet"
            )
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of one process are never averaged: nothing changes within the `with` block."""
        yield


class DataParallel(DistributedDataParallel):
    """A model on one device: it runs the module.

    >>> nn.DataParallel(nn.Linear(2, 3))(pf.ones(4, 2)).shape
    (4, 3)
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__(module, device_ids, output_device)
