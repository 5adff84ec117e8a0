"""The few names of torch._C that programs use."""

from typing import Any

from pyflame.core.errors import LinAlgError as _LinAlgError
from pyflame.core.generator import Generator
from pyflame.core.state import state
from pyflame.core.torch_paths import below, refused
from pyflame.tensor.devices import device as as_device
from pyflame.tensor.dispatch_keys import (
    DispatchKey,
    DispatchKeySet,
    _AutoDispatchBelowAutograd,
    _ExcludeDispatchKeyGuard,
)
from pyflame.tensor.methods import parsed_to
from pyflame.tensor.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from pyflame.tensor.overrides import disabled_torch_function as _disabled_torch_function_impl
from pyflame.tensor.tensor import Tensor

_GRAPHS = "pf.explain shows what a function computes"
DeviceObjType, Graph, TensorType, Value = (
    refused(name, _GRAPHS) for name in ("DeviceObjType", "Graph", "TensorType", "Value")
)  # libraries annotate so
__path__: list[str] = []  # torch has files below this path, and core/torch_paths.py finds them
__getattr__ = below("_C")
_TensorMeta = type(Tensor)
_has_xpu = False


def _log_api_usage_once(event: str) -> None:
    """Nothing: nobody is told what a program uses."""


def _jit_set_profiling_executor(on: bool) -> bool:
    """Without effect: nothing is scripted."""
    return True


_jit_set_profiling_mode = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_executor
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_executor


def _are_functorch_transforms_active() -> bool:
    """False: `vmap` and `grad` run functions of tensors."""
    return False


def _get_tracing_state() -> object:
    """What traces, or None."""
    return state.tracer


class _nn:
    """torch._C._nn, of which libraries use one name."""

    @staticmethod
    def _parse_to(
        *args: Any, dtype: object = None, device: object = None, non_blocking: bool = False, memory_format: Any = None
    ) -> tuple[Any, Any, bool, Any]:
        """What arguments of `Module.to` ask for: device, dtype, non_blocking, memory_format."""
        wanted, place = parsed_to(args, dtype, device)
        blocking = [arg for arg in args if isinstance(arg, bool)]
        return (
            None if place is None else as_device(place),
            wanted,
            blocking[0] if blocking else non_blocking,
            memory_format,
        )


__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "DispatchKey",
    "DispatchKeySet",
    "Generator",
    "_AutoDispatchBelowAutograd",
    "_ExcludeDispatchKeyGuard",
    "_LinAlgError",
    "_are_functorch_transforms_active",
    "_disabled_torch_function_impl",
    "_get_tracing_state",
    "_log_api_usage_once",
    "_nn",
]
