"""The few names of torch._C that programs use."""

from pyflame.core.state import state
from pyflame.tensor.overrides import DisableTorchFunctionSubclass
from pyflame.tensor.overrides import disabled_torch_function as _disabled_torch_function_impl

DisableTorchFunction = DisableTorchFunctionSubclass


def _log_api_usage_once(event: str) -> None:
    """Nothing: nobody is told what a program uses."""


def _get_tracing_state() -> object:
    """What traces, or None."""
    return state.tracer


__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "_disabled_torch_function_impl",
    "_get_tracing_state",
    "_log_api_usage_once",
]
