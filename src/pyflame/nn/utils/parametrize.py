"""Parameters that are computed from others each time they are read: `module.weight` becomes a function of
`module.parametrizations.weight.original`, in PyTorch's names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.state import state
from pyflame.nn.containers import ModuleDict, ModuleList
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


_known: list[dict[Any, Tensor]] = []  # within `cached`: parameters that were computed, by what they are asked of


@contextmanager
def cached() -> Iterator[None]:
    """Within a `with` block a parametrized tensor is computed once, however often it is read.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> with nn.utils.parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    _known.append(_known[-1] if _known else {})  # one memory for all blocks within each other, as in PyTorch
    try:
        yield
    finally:
        _known.pop()


class ParametrizationList(ModuleList):
    """The functions that make a parameter, first to last, and the tensors that they start from.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> sorted(dict(layer.parametrizations.weight.named_parameters()))
    ['original0', 'original1']
    """

    def __init__(self, modules: list[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        start: Any = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):  # it has none: the value itself is the original
                        start = module.right_inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        named = {"original": start} if self.is_tensor else {f"original{i}": t for i, t in enumerate(start)}
        for name, value in named.items():
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(value, original.requires_grad))
            else:
                self.register_buffer(name, value)

    def originals(self) -> list[Tensor]:
        """What the first function takes."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Tensor:
        """The parameter."""
        first, *rest = self
        value: Tensor = first(*self.originals())
        for module in rest:
            value = module(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the parameter becomes this value."""
        start: Any = value
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise ArgumentError(
                        f"[parametrize] expected {type(module).__name__} to define right_inverse, which an assignment "
                        "needs, but it does not"
                    )
                start = module.right_inverse(start)
            for cell, new in zip(self.originals(), [start] if self.is_tensor else start, strict=True):
                cell.copy_(new)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a parameter or buffer be what `parametrization` makes of it. Further ones apply to the result.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_further(parametrization, getattr(module, tensor_name), tensor_name)
        module.parametrizations[tensor_name].append(parametrization)
        return module
    held = module._parameters if tensor_name in module._parameters else module._buffers
    original = held.get(tensor_name)
    if original is None:
        raise ArgumentError(f"[register_parametrization] expected a parameter or buffer but got {tensor_name!r}")
    made = ParametrizationList([parametrization], original, unsafe)
    if not unsafe and made().shape != original.shape:
        raise ShapeError(
            f"[register_parametrization] expected a result of shape {original.shape} but got {made().shape}; pass "
            "unsafe=True if that is meant"
        )
    del held[tensor_name]
    _let_be_computed(module, tensor_name)
    module.parametrizations[tensor_name] = made
    return module


def _check_further(parametrization: Module, value: Tensor, name: str) -> None:
    """A further function must give what it takes, and so must its right_inverse, if it has one."""
    made = parametrization(value)
    results = [("result", made)]
    if hasattr(parametrization, "right_inverse"):
        with contextlib.suppress(NotImplementedError), no_grad():
            results.append(("right_inverse", parametrization.right_inverse(made)))
    for what, got in results:
        if not isinstance(got, Tensor) or (got.shape, got.dtype) != (value.shape, value.dtype):
            shown = f"{got.dtype.name} {got.shape}" if isinstance(got, Tensor) else type(got).__name__
            raise ShapeError(
                f"[register_parametrization] expected a {what} of {value.dtype.name} {value.shape} for {name!r} but "
                f"got {shown}; pass unsafe=True if that is meant"
            )


def _let_be_computed(module: Module, name: str) -> None:
    """Give the module a class of its own, in which the tensor is a property."""
    if "parametrizations" not in module._modules:
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {"_unparametrized": kind})
        module.parametrizations = ModuleDict()

    def get(self: Any) -> Tensor:
        made: ParametrizationList = self.parametrizations[name]
        if not _known:
            return made()  # type: ignore[no-any-return]
        key = made, state.tracer  # what is computed while tracing is no value outside
        if key not in _known[-1]:
            _known[-1][key] = made()
        return _known[-1][key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)
        for known in _known:
            known.clear()

    setattr(type(module), name, property(get, put))


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of this tensor."""
    found = module._modules.get("parametrizations")
    return isinstance(found, ModuleDict) and (tensor_name is None or tensor_name in found)


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class of a module, before it was given one of its own."""
    return getattr(type(module), "_unparametrized", type(module))


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor a plain parameter again: of the value it has, or of the original one.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> type(nn.utils.parametrize.remove_parametrizations(layer, "weight").weight).__name__
    'Parameter'
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"[remove_parametrizations] expected a parametrized tensor but got {tensor_name!r}")
    made: ParametrizationList = module.parametrizations[tensor_name]
    if not leave_parametrized and not made.is_tensor:
        raise ArgumentError(
            f"[remove_parametrizations] expected leave_parametrized=True for {tensor_name!r}, which is made of "
            f"{made.ntensors} tensors"
        )
    original = made.originals()[0]
    with no_grad():
        value = made() if leave_parametrized else original
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, Parameter(value, original.requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type_before_parametrizations(module)
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module the parametrizations of another, and their tensors: of one parameter, or of all.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> other = nn.utils.parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 3))
    >>> bool((other.weight == layer.weight).all())
    True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in [tensor_name] if tensor_name is not None else list(from_module.parametrizations):
        source: ParametrizationList = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        first, *rest = source
        register_parametrization(to_module, name, first)
        target: ParametrizationList = to_module.parametrizations[name]
        target.extend(rest)
        names = ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]
        for original in names:
            setattr(target, original, getattr(source, original))
    return to_module
