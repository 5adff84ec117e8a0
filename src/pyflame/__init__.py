"""PyFlame: one deep-learning stack for AMD and NVIDIA GPUs and the CPU.

    >>> import pyflame as pf
    >>> x = pf.randn(3, 4)
    >>> pf.softmax(x @ x.T, axis=-1)
"""

import pyflame.ops as _ops  # noqa: F401  declares the catalogue
from pyflame.tensor import Tensor
from pyflame.tensor.creation import full, ones, tensor, zeros
from pyflame.tensor.dispatch import FUNCTIONS as _functions

globals().update(_functions)
__version__ = "0.1.0"
