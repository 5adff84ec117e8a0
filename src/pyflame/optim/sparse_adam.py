"""SparseAdam: said plainly to be missing, as sparse gradients are."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import NotSupportedError
from pyflame.optim.optimizer import Optimizer


class SparseAdam(Optimizer):
    """Raises: gradients are dense here. Adam takes the gradients of embeddings.

    >>> optim.SparseAdam([weight])    # doctest: +SKIP
    """

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError("[SparseAdam] expected dense gradients, the only ones there are here; use optim.Adam")
