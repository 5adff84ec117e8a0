"""torch.fft by its path: what `tensor/fft.py` defines."""

from pyflame.tensor.fft import *  # noqa: F403
from pyflame.tensor.fft import __all__ as __all__
