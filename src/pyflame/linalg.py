"""torch.linalg by its path: what `tensor/linalg.py` defines."""

from pyflame.tensor.linalg import *  # noqa: F403
from pyflame.tensor.linalg import __all__ as __all__
