"""The few names of torch._C that programs use."""

from pyflame.tensor.overrides import DisableTorchFunctionSubclass
from pyflame.tensor.overrides import disabled_torch_function as _disabled_torch_function_impl

DisableTorchFunction = DisableTorchFunctionSubclass

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "_disabled_torch_function_impl"]
