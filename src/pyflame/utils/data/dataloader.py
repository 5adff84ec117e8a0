"""torch.utils.data.dataloader by its path."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from pyflame.data import DataLoader, default_collate, default_convert, get_worker_info
from pyflame.utils.data.dataset import *  # noqa: F403  programs take them from here, too
from pyflame.utils.data.sampler import *  # noqa: F403

# what iter(loader) gives; programs annotate with these, and ask whether something is one
_BaseDataLoaderIter = _SingleProcessDataLoaderIter = _MultiProcessingDataLoaderIter = Generator
_T = TypeVar("_T")
_collate_fn_t = Callable[[list[_T]], Any]

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
