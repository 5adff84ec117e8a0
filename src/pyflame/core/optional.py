"""Packages that only some uses need: imported when first used, and missed by the name of the extra that brings them."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from pyflame.core.errors import NotSupportedError


def optional(module: str, extra: str, op: str) -> ModuleType:
    """The module, or an error that says how to install it.

    >>> optional("json", "llm", "chat").__name__
    'json'
    """
    try:
        if stands_in(module):
            raise ImportError(f"{module!r} is pyflame under another name")
        return importlib.import_module(module)
    except ImportError as error:
        raise NotSupportedError(
            f"[{op}] expected the package {module.partition('.')[0]} but got: {error}; pip install "
            f"'pyflame-rocm[{extra}]'"
        ) from None


def stands_in(module: str) -> bool:
    """Whether a program has put PyFlame in this package's place, so that what imports torch gets PyFlame.

    >>> stands_in("json")
    False
    """
    found = sys.modules.get(module.partition(".")[0])
    return found is not None and found is sys.modules.get("pyflame")
