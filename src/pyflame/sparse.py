"""torch.sparse by its path: what `tensor/sparse.py` defines."""

from pyflame.tensor.sparse import *  # noqa: F403
from pyflame.tensor.sparse import __all__ as __all__
