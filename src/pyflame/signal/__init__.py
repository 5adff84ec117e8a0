"""torch.signal by its path: windows."""

from pyflame.signal import windows

__all__ = ["windows"]
