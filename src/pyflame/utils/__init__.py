"""torch.utils by its path: `pyflame.utils.data`, `pyflame.utils.checkpoint` and `pyflame.utils._pytree`."""

from pyflame.utils import _pytree, checkpoint, data

__all__ = ["_pytree", "checkpoint", "data"]
