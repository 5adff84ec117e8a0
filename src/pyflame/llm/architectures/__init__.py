"""The architectures, one file each. A file says what differs from Llama; `find` knows them by GGUF's and HF's names."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pyflame.core.errors import NotSupportedError, suggest
from pyflame.llm.architectures.base import Architecture, Fields

__all__ = ["Architecture", "Fields", "find", "known"]


@cache
def known() -> dict[tuple[str, str], Architecture]:
    """("gguf" or "hf", name) -> architecture. A file that holds an ARCHITECTURE is found by being there."""
    found: dict[tuple[str, str], Architecture] = {}
    for file in sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"):
        one: Architecture = importlib.import_module(f"{__name__}.{file}").ARCHITECTURE
        found.setdefault(("gguf", one.name), one)  # Mixtral's GGUF files are Llama's
        found |= {("hf", name): one for name in one.model_types}
    return found


def find(kind: str, name: str) -> Architecture:
    """The architecture that a GGUF file (`general.architecture`) or a config.json (`model_type`) names."""
    table = known()
    if (kind, name) not in table:
        names = sorted(n for k, n in table if k == kind)
        raise NotSupportedError(
            f"[load] expected an architecture of {', '.join(names)} but got {name!r}{suggest(name, names)}"
        )
    return table[kind, name]
