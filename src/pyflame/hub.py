"""torch.hub by its path: said plainly to be missing."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import NotSupportedError

__all__ = ["load", "load_state_dict_from_url"]


def load(*args: Any, **kwargs: Any) -> Any:
    """Raises: torch.hub runs code that it downloads, which nothing here does.

    >>> pf.hub.load("pytorch/vision", "resnet18")    # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    pyflame.core.errors.NotSupportedError: [hub] ...
    """
    raise NotSupportedError(
        "[hub] expected a local model but torch.hub downloads code and runs it, which PyFlame does not; build the "
        "model here and load its weights with pf.load(path)"
    )


def load_state_dict_from_url(*args: Any, **kwargs: Any) -> Any:
    """Raises: nothing is downloaded here."""
    raise NotSupportedError(
        "[hub] expected a local file but got an address; PyFlame downloads nothing: download it, then pf.load(path)"
    )
