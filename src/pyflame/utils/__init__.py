"""torch.utils by its path: `pyflame.utils.data` and `pyflame.utils.checkpoint`."""

from pyflame.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
