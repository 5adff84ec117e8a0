"""nn.parallel: a model on many processes, or piece by piece on several devices."""

from pyflame.nn.parallel.data_parallel import DataParallel, DistributedDataParallel
from pyflame.nn.parallel.pieces import gather, parallel_apply, replicate, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "gather", "parallel_apply", "replicate", "scatter"]
