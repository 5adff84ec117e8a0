"""torch.sparse by its path: what `tensor/sparse.py` and `tensor/sparse_functions.py` define."""

import importlib as _importlib

from pyflame.tensor import sparse as _tensors
from pyflame.tensor import sparse_csr as _rows
from pyflame.tensor import sparse_functions as _functions
from pyflame.tensor.sparse import *  # noqa: F403
from pyflame.tensor.sparse_csr import *  # noqa: F403
from pyflame.tensor.sparse_functions import *  # noqa: F403

__all__ = [*_tensors.__all__, *_rows.__all__, *_functions.__all__]


def __getattr__(name: str) -> object:
    if name == "torch":  # old programs write torch.sparse.torch.eye
        return _importlib.import_module("pyflame")
    raise AttributeError(f"module 'pyflame.sparse' has no attribute {name!r}")
