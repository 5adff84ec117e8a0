"""torch.hub by its path: said plainly to be missing."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyflame.core.errors import NotSupportedError

__all__ = ["HASH_REGEX", "download_url_to_file", "get_dir", "load", "load_state_dict_from_url", "urlparse"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # of the hash in a file's name


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


download_url_to_file = load_state_dict_from_url


def _get_torch_home() -> str:
    import platformdirs  # imported here: nothing else of torch's paths needs it

    return platformdirs.user_cache_dir("pyflame")


def get_dir() -> str:
    """Where files of the hub would lie.

    >>> pf.hub.get_dir().endswith("hub")
    True
    """
    return str(Path(_get_torch_home()) / "hub")


def __getattr__(name: str) -> Any:
    if name != "tqdm":
        raise AttributeError(f"module 'pyflame.hub' has no attribute {name!r}")
    return importlib.import_module("tqdm").tqdm  # torch.hub has it for programs
