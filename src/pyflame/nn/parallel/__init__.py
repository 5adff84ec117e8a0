"""nn.parallel: a model on many processes, or piece by piece on several devices."""

from pyflame.core.torch_paths import below
from pyflame.nn.parallel.data_parallel import DataParallel, DistributedDataParallel
from pyflame.nn.parallel.pieces import gather, parallel_apply, replicate, scatter

__getattr__ = below("nn.parallel")

__all__ = ["DataParallel", "DistributedDataParallel", "gather", "parallel_apply", "replicate", "scatter"]
