"""torch.utils.data by its path: everything of `pyflame.data`, and DistributedSampler."""

from pyflame.data import *  # noqa: F403
from pyflame.data import __all__ as _names
from pyflame.utils.data import dataloader, dataset, distributed, sampler
from pyflame.utils.data.distributed import DistributedSampler

__all__ = [*_names, "DistributedSampler", "dataloader", "dataset", "distributed", "sampler"]
