"""The few names of torch._C that programs use."""

from pyflame.core.state import state
from pyflame.core.torch_paths import below
from pyflame.tensor.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from pyflame.tensor.overrides import disabled_torch_function as _disabled_torch_function_impl
from pyflame.tensor.tensor import Tensor

__path__: list[str] = []  # torch has files below this path, and core/torch_paths.py finds them
__getattr__ = below("_C")
_TensorMeta = type(Tensor)


def _log_api_usage_once(event: str) -> None:
    """Nothing: nobody is told what a program uses."""


def _are_functorch_transforms_active() -> bool:
    """False: `vmap` and `grad` run functions of tensors."""
    return False


def _get_tracing_state() -> object:
    """What traces, or None."""
    return state.tracer


__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "_are_functorch_transforms_active",
    "_disabled_torch_function_impl",
    "_get_tracing_state",
    "_log_api_usage_once",
]
