"""torch.utils.data._utils by its path: `collate` is the file that programs import from."""

import sys

from pyflame.data import collate

__path__: list[str] = []  # a package, as far as `from pyflame.utils.data._utils.collate import ...` is concerned
sys.modules[f"{__name__}.collate"] = collate

__all__ = ["collate"]
