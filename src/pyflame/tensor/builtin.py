"""Functions that are no methods where they stand in a class: `act = torch.tanh`, as C functions of torch are none.

Python binds every function written in Python to the object that it is found on, and nothing at all that is bound
already. So a public function is bound to the room that it is of, as torch's are. That costs a call of a function
nothing, and one of a method, which has the parameter for the room too, 1 to 3%. Any other object that may be called
takes longer to call than a function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any


class _Room:
    """What the functions of a module are bound to: pickle finds them there by name. There is one for each module.

    `prefix`: what the functions' own names have before those in the module.
    """

    def __init__(self, module: str, prefix: str) -> None:
        self.module = module
        self.prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what pickle and copy look for
            raise AttributeError(name)
        return getattr(import_module(self.module), name.removeprefix(self.prefix))

    def __reduce__(self) -> Any:
        return room, (self.module, self.prefix)

    def __deepcopy__(self, memo: Any) -> _Room:
        return self

    def __repr__(self) -> str:
        return self.module


@functools.cache
def room(module: str, prefix: str) -> _Room:
    """What the functions of this module are bound to."""
    return _Room(module, prefix)


class _Bound:
    """What inspect.signature reads of a bound function: a parameter more, which it leaves out."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.__wrapped__ = plain

    @property
    def __signature__(self) -> inspect.Signature:
        plain = inspect.signature(self.__wrapped__)
        first = inspect.Parameter("room", inspect.Parameter.POSITIONAL_ONLY)
        return plain.replace(parameters=[first, *plain.parameters.values()])


def builtin(function: Any, module: str = "pyflame", prefix: str = "") -> Any:
    """A function `(*args, _room=None, **kwargs)` as one that no class makes a method of.

    The parameter for the room is filled by keyword only there, and by position here: both lie in the same place.
    """
    code = function.__code__.replace(co_argcount=1, co_posonlyargcount=1, co_kwonlyargcount=0)
    own = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    functools.update_wrapper(own, function)
    vars(own).pop("__signature__", None)  # of what is wrapped, which says it itself
    own.__wrapped__ = _Bound(function.__wrapped__)  # type: ignore[attr-defined]
    return MethodType(own, room(module, prefix))


def unbound(method: Callable[..., Any]) -> Any:
    """A method of Tensor as a function of a module: `pf.relu_`."""

    @functools.wraps(method)
    def function(*args: Any, _room: Any = None, **kwargs: Any) -> Any:
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        return method(*args, **kwargs)

    return builtin(function)


# Functions that torch has in Python, so that they are methods where they stand in a class.
IN_PYTHON = frozenset(
    (
        "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
        "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid",
        "are_deterministic_algorithms_enabled", "atleast_1d", "atleast_2d", "atleast_3d", "binary_cross_entropy",
        "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "compile",
        "cross_entropy", "dropout1d", "dropout2d", "dropout3d", "einsum", "elu", "fold", "fractional_max_pool2d",
        "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices",
        "from_dlpack", "gaussian_nll_loss", "get_default_device", "get_deterministic_debug_mode",
        "get_float32_matmul_precision", "get_rng_state", "glu", "grid_sample", "gumbel_softmax", "hardsigmoid",
        "hardswish", "hardtanh", "huber_loss", "initial_seed", "interpolate",
        "is_deterministic_algorithms_warn_only_enabled", "is_storage", "is_tensor", "l1_loss", "leaky_relu",
        "linear_cross_entropy", "load", "lobpcg", "local_response_norm", "lp_pool1d", "lp_pool2d", "lp_pool3d",
        "manual_seed", "max_pool2d_with_indices", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d",
        "max_unpool3d", "meshgrid", "mish", "mse_loss", "multi_head_attention_forward", "multi_margin_loss",
        "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize", "pad", "pca_lowrank", "relu6",
        "save", "seed", "set_default_device", "set_default_dtype", "set_default_tensor_type",
        "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_printoptions", "set_rng_state", "silu",
        "smooth_l1_loss", "soft_margin_loss", "softmin", "softsign", "split", "stft", "svd_lowrank", "sym_float",
        "sym_int", "sym_max", "sym_min", "tanhshrink", "tensordot", "triplet_margin_with_distance_loss", "typename",
        "unfold", "unique", "unique_consecutive", "unravel_index", "upsample", "upsample_bilinear", "upsample_nearest",
        "use_deterministic_algorithms", "vmap",
    )
)  # fmt: skip
