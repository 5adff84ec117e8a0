"""Loading data: datasets, the order of their items, batches, and worker processes that load ahead.

    >>> from pyflame.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(images, labels), batch_size=256, shuffle=True, seed=0)
    >>> for x, y in loader:
    ...     train(x, y)

Imports tensor and below; knows nothing of layers or optimisers. Worker processes live in `pool.py` (the parent's side),
`worker.py` and `outbox.py` (theirs).
"""

from pyflame.data.collate import default_collate, default_convert
from pyflame.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from pyflame.data.errors import DataError, WorkerError, WorkerTimeoutError
from pyflame.data.info import WorkerInfo, get_worker_info
from pyflame.data.loader import DataLoader
from pyflame.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataError",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerError",
    "WorkerInfo",
    "WorkerTimeoutError",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]
