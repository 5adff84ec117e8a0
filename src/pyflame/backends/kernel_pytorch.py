"""`kernel_pytorch`, the name under which the seed's programs import these backends. It is an alias and nothing more.

PyFlame installs no package of that name. `install()` lets this process import it, unless there is a real one.

    >>> install()
    >>> from kernel_pytorch.core.config import AMDConfig
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from pyflame.core.errors import ArgumentError

_PATHS = ("backends", "backends.amd", "backends.amd.amd_exceptions", "backends.nvidia", "core", "core.config")


def install() -> None:
    """Make `import kernel_pytorch` give PyFlame's backends, in this process."""
    known = sys.modules.get("kernel_pytorch")
    if known is not None and getattr(known, "__alias_of__", "") == "pyflame":
        return
    if known is not None or importlib.util.find_spec("kernel_pytorch") is not None:
        raise ArgumentError(
            "[install] expected no package kernel_pytorch but there is one; import pyflame.backends.amd by its own name"
        )
    alias = ModuleType("kernel_pytorch", "An alias of pyflame, for programs written for kernel_pytorch.")
    vars(alias).update(__alias_of__="pyflame", __path__=[])
    sys.modules["kernel_pytorch"] = alias
    for path in _PATHS:
        module = importlib.import_module(f"pyflame.{path}")
        sys.modules[f"kernel_pytorch.{path}"] = module
        if "." not in path:
            setattr(alias, path, module)
