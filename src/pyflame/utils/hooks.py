"""torch.utils.hooks by its path: what a registered hook is taken away with."""

from pyflame.nn.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
