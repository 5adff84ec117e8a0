"""torch.utils.data.dataloader by its path."""

from collections.abc import Generator

from pyflame.data import DataLoader, default_collate, default_convert, get_worker_info

# what iter(loader) gives; programs annotate with these, and ask whether something is one
_BaseDataLoaderIter = _SingleProcessDataLoaderIter = _MultiProcessingDataLoaderIter = Generator

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
