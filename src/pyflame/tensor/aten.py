"""torch.ops by its path: `pf.ops.aten.add.Tensor(x, y)`, for each op that has a function or a method here, and
`pf.ops.load_library`.
"""

from __future__ import annotations

import importlib
from typing import Any

from pyflame import ops
from pyflame.core.errors import ForeignLibraryError, suggest
from pyflame.tensor.aten_names import NAMES
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor


class Packet:
    """An op, and each of its overloads: they are one function here, which looks at its arguments."""

    def __init__(self, name: str, fn: Any) -> None:
        self.__name__, self._fn = name, fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def __getattr__(self, overload: str) -> Packet:
        if overload.startswith("_"):
            raise AttributeError(overload)
        return self

    def __repr__(self) -> str:
        return f"aten.{self.__name__}"


# What an op's name begins with where PyTorch has its function in a module of its own.
_MODULES = {"fft": "fft_", "linalg": "linalg_", "special": "special_"}


def _found(name: str) -> Any:
    """The function or method that an op is: of its own name, or of a module."""
    found = NAMES.get(name) or FUNCTIONS.get(name) or getattr(Tensor, name, None)
    if found is not None:
        return found
    for module, prefix in _MODULES.items():
        if name.startswith(prefix):
            return getattr(importlib.import_module(f"pyflame.{module}"), name.removeprefix(prefix), None)
    functional = importlib.import_module("pyflame.nn.functional")
    return getattr(functional, name, None) or getattr(importlib.import_module("pyflame"), name, None)


class Aten:
    """The namespace. An op is looked up among functions, then methods, then modules, and kept."""

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _found(name)
        if not callable(found):
            raise AttributeError(f"module 'pyflame.ops.aten' has no attribute {name!r}{suggest(name, FUNCTIONS)}")
        packet = self.__dict__[name] = Packet(name, found)
        return packet


def load_library(path: str) -> None:
    """Raises: a library of ops for PyTorch calls libtorch. Programs catch the OSError and do without."""
    raise ForeignLibraryError(
        f"[load_library] expected ops made here but got {path!r}, which was compiled for PyTorch; define them with "
        "pf.library.custom_op"
    )


vars(ops).update(aten=Aten(), load_library=load_library)
