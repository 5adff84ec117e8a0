"""torch.utils.data.dataloader by its path."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from pyflame.data import DataLoader, default_collate, default_convert, get_worker_info

# what iter(loader) gives; programs annotate with these, and ask whether something is one
_BaseDataLoaderIter = _SingleProcessDataLoaderIter = _MultiProcessingDataLoaderIter = Generator
_T = TypeVar("_T")
_collate_fn_t = Callable[[list[_T]], Any]

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
