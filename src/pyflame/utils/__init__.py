"""torch.utils by its path: `pyflame.utils.data`, `benchmark`, `checkpoint`, `hooks` and `_pytree`."""

from pyflame.utils import _pytree, benchmark, checkpoint, data, hooks

__all__ = ["_pytree", "benchmark", "checkpoint", "data", "hooks"]
