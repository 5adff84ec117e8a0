"""An op of a program's own: a Python function with a name, kernels for devices, and a gradient that is given apart.

Kernels are found by PyTorch's dispatch keys, of which the devices' and these mean something here: Autograd for calls
that record, Autocast inside autocast, Meta for devices that compute nothing, Composite for all others.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyflame.core.errors import GradientError
from pyflame.core.state import mode, state
from pyflame.tensor.custom import Context, attach
from pyflame.tensor.tensor import Tensor

Fn = Callable[..., Any]
_DEVICES = {"CPU": "cpu", "CUDA": "cuda", "HIP": "rocm"}
_COMPOSITE = ("default", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "BackendSelect", "")


class CustomOpDef:
    """What `custom_op` gives: call it, and register what belongs to it."""

    def __init__(self, name: str, fn: Fn, mutates_args: str | Iterable[str]) -> None:
        self._qualname = name
        self._fn = fn
        self._kernels: dict[str, Fn] = {}  # by kind of device
        self._by_key: dict[str, Fn] = {}  # by PyTorch's other dispatch keys
        self._fake: Fn | None = None
        self._backward: Fn | None = None
        self._setup: Fn | None = None
        self._signature = inspect.signature(fn)
        self.mutates_args = mutates_args
        self.default = self  # torch.ops.mylib.op.default
        functools.update_wrapper(self, fn)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_fake(self, fn: Fn) -> Fn:
        """The function that gives results of the right shapes, without values."""
        self._fake = fn
        return fn

    def register_kernel(self, device_types: str | Sequence[str] | None, func: Fn | None = None) -> Any:
        """The function for tensors on these devices ("cpu", "cuda", "rocm"); None: on all."""
        if func is None:
            return functools.partial(self.register_kernel, device_types)
        if device_types is None:
            self._fn = func
        for kind in [device_types] if isinstance(device_types, str) else device_types or ():
            self._kernels[kind] = func
        return func

    def register_autograd(self, backward: Fn, /, *, setup_context: Fn | None = None) -> None:
        """The gradient: `backward(ctx, *gradients)` gives one for each argument; `setup_context(ctx, inputs, output)`
        keeps what it needs."""
        self._backward, self._setup = backward, setup_context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, named = bound.args, bound.kwargs
        needs = tuple(state.grad_enabled and isinstance(a, Tensor) and a.requires_grad for a in given)
        with mode(grad_enabled=False):
            result = self._chosen(given)(*given, **named)
        if not any(needs):
            return result
        context = Context(needs)
        if self._setup is not None:
            with mode(grad_enabled=False):
                extra = {"keyword_only_inputs": named} if named else {}
                self._setup(ctx=context, inputs=given, output=result, **extra)
        backward = functools.partial(self._backward or self._no_backward, context)
        return attach(self._qualname, result, given, backward, context)

    def implement(self, key: str, fn: Fn) -> None:
        """Give it a kernel for a dispatch key or a kind of device."""
        if key in _COMPOSITE:
            self._fn = fn
        elif key.startswith(("Auto", "Meta")):  # Autograd, AutogradCPU, AutocastCUDA, ...
            self._by_key[re.sub("(CPU|CUDA|XPU|HIP)$", "", key)] = fn
        else:
            self._kernels[_DEVICES.get(key, key)] = fn

    def _chosen(self, args: tuple[Any, ...]) -> Fn:
        tensors = [a for a in args if isinstance(a, Tensor)]
        if state.autocast is not None and "Autocast" in self._by_key:
            return self._by_key["Autocast"]
        if "Autograd" in self._by_key and state.grad_enabled and any(t.requires_grad for t in tensors):
            return self._by_key["Autograd"]
        if "Meta" in self._by_key and any(t.device.type in ("meta", "null") for t in tensors):
            return self._by_key["Meta"]
        kinds = [t.device.type for t in tensors]
        if not {"null", "meta"}.isdisjoint(kinds) and self._fake is not None:
            return self._fake
        return next((self._kernels[kind] for kind in kinds if kind in self._kernels), self._fn)

    def _no_backward(self, *args: Any) -> Any:
        raise GradientError(
            f"[{self._qualname}] expected a gradient rule for the backward pass but it has none; give it one with "
            "register_autograd"
        )
