"""nn.parallel: a model on many processes."""

from pyflame.nn.parallel.data_parallel import DataParallel, DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]
