"""torch.utils by its path: `pyflame.utils.data`, `benchmark`, `checkpoint`, `dlpack`, `hooks`, `model_zoo`
and `_pytree`."""

from pyflame.core.torch_paths import below
from pyflame.utils import _pytree, benchmark, checkpoint, data, dlpack, hooks, model_zoo

__getattr__ = below("utils")

__all__ = ["_pytree", "benchmark", "checkpoint", "data", "dlpack", "hooks", "model_zoo"]
