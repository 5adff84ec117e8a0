"""The seed of tests that try something else for every state of the code, and the same for the same state."""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyflame

FOLDER = Path(pyflame.__file__).parent


@functools.cache
def code_seed() -> int:
    """32 bits of the texts of all that is installed: a failure can be repeated, and what passed passes elsewhere."""
    found = hashlib.sha256()
    for path in sorted(p for p in FOLDER.rglob("*") if p.suffix in (".py", ".h", ".c", ".hip", ".def")):
        found.update(path.read_bytes())
    return int.from_bytes(found.digest()[:4], "little")


def share(names: Iterable[str], part: int) -> set[str]:
    """Every `part`th of them, of all kinds: which ones follows from the state of the code."""
    mixed = sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
    return set(mixed[code_seed() % part :: part])
