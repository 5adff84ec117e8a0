"""Packages that only some uses need: imported when first used, and missed by the name of the extra that brings them."""

from __future__ import annotations

import importlib
from types import ModuleType

from pyflame.core.errors import NotSupportedError


def optional(module: str, extra: str, op: str) -> ModuleType:
    """The module, or an error that says how to install it.

    >>> optional("json", "llm", "chat").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotSupportedError(
            f"[{op}] expected the package {module.partition('.')[0]} but got: {error}; pip install "
            f"'pyflame-rocm[{extra}]'"
        ) from None
