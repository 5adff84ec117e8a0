"""torch.utils.dlpack by its path: tensors from and to other libraries, without a copy."""

from pyflame.tensor.dlpack import from_dlpack
from pyflame.tensor.torch_functions import to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
