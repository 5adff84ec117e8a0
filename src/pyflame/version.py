"""torch.version by its path. `cuda` and `hip` are None: drivers and compilers are the machine's, not this package's."""

from __future__ import annotations

from pyflame import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]

cuda: str | None = None
hip: str | None = None
git_version: str | None = None
debug = False
