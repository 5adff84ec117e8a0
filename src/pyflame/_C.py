"""The few names of torch._C that programs use."""

from pyflame.tensor.overrides import DisableTorchFunctionSubclass
from pyflame.tensor.overrides import disabled_torch_function as _disabled_torch_function_impl

DisableTorchFunction = DisableTorchFunctionSubclass


def _log_api_usage_once(event: str) -> None:
    """Nothing: nobody is told what a program uses."""


__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "_disabled_torch_function_impl",
    "_log_api_usage_once",
]
