"""The names of torch.jit, as attributes of `pf.jit`. Scripting is not needed: what it is given runs as it is."""

from __future__ import annotations

import copy
import sys
import typing
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, UnionType
from typing import Any, Final

from pyflame.core.errors import NotSupportedError
from pyflame.core.state import state


def script(obj: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself.

    >>> pf.jit.script(pf.relu) is pf.relu
    True
    """
    return script if obj is None else obj


def trace(func: Any, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself: `pf.jit(fn)` traces when it is first called."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; also as `@ignore(drop=True)`."""
    return drop if callable(drop) else lambda fn: fn


def export(fn: Any) -> Any:
    """The function itself."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


def is_scripting() -> bool:
    """False: nothing is scripted."""
    return False


def is_instance(obj: Any, target_type: Any) -> bool:
    """`pf.jit.isinstance`: whether an object is of a type, or of one of several; also of a container's inner types.

    >>> pf.jit.isinstance([1, 2], typing.List[int]), pf.jit.isinstance([1, 2], typing.List[str])
    (True, False)
    """
    if isinstance(target_type, tuple):
        return any(is_instance(obj, one) for one in target_type)
    kind, inner = typing.get_origin(target_type), typing.get_args(target_type)
    if kind is None:
        return isinstance(obj, type(None) if target_type is None else target_type)
    if kind in (typing.Union, UnionType):
        return any(is_instance(obj, one) for one in inner)
    if not isinstance(obj, kind):
        return False
    if kind is dict:
        return all(is_instance(k, inner[0]) and is_instance(v, inner[1]) for k, v in obj.items())
    if kind is tuple:
        return len(obj) == len(inner) and all(map(is_instance, obj, inner))
    return all(is_instance(x, inner[0]) for x in obj)


def is_tracing() -> bool:
    """Whether pf.jit is tracing."""
    return state.tracer is not None


def save(*args: Any, **kwargs: Any) -> Any:
    """Raises: programs are saved by pf.aot."""
    raise NotSupportedError("[jit.save] expected another format but TorchScript is not written; pf.aot saves programs")


def load(*args: Any, **kwargs: Any) -> Any:
    """Raises: TorchScript programs are not read."""
    raise NotSupportedError("[jit.load] expected weights but TorchScript is not read; pf.load reads a state_dict()")


def trace_module(mod: Any, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return mod


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A copy of a module in eval mode, whose parameters are constants: they require no gradients, and what later
    becomes of the module's does not reach them.

    >>> pf.jit.freeze(pf.nn.Linear(2, 2).eval()).weight.requires_grad
    False
    """
    if mod.training:
        raise NotSupportedError("[jit.freeze] expected a module in eval mode but got one in training; call .eval()")
    return copy.deepcopy(mod).requires_grad_(False)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module, frozen: plans fold and fuse what can be without being asked.

    >>> pf.jit.optimize_for_inference(pf.nn.Linear(2, 2).eval()).training
    False
    """
    return freeze(mod)


class Future:
    """What `fork` gives: the result of a function that has run."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def done(self) -> bool:
        """True: it has run."""
        return True

    def wait(self) -> Any:
        """The result."""
        return self._result

    value = wait


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Call a function; `wait` gives its result. The call builds a graph only, and graphs of several calls that are
    evaluated together run as one plan.

    >>> pf.jit.wait(pf.jit.fork(pf.relu, pf.tensor([-1.0, 1.0])))
    tensor([0., 1.])
    """
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The result of a `fork`."""
    return future.wait()


class _NeverMade:
    """Base of TorchScript's classes: nothing is an instance, since nothing is scripted."""

    def __init_subclass__(cls, made_here: bool = False) -> None:
        if not made_here:
            raise NotSupportedError(
                f"[jit] expected a subclass of nn.Module but {cls.__name__} is one of TorchScript's"
            )

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(f"[jit.{cls.__name__}] expected an nn.Module or a function: nothing is scripted")


class ScriptModule(_NeverMade, made_here=True):
    """For `isinstance` questions: no module is one."""


class ScriptFunction(_NeverMade, made_here=True):
    """For `isinstance` questions: no function is one."""


class TracerWarning(Warning):
    """For filters of warnings: nothing here warns so."""


class Error(RuntimeError):
    """For `except` clauses: nothing is scripted, so nothing raises it."""


_FUNCTIONS = (
    script, trace, ignore, export, annotate, is_scripting, is_tracing, save, load, trace_module, freeze,
    optimize_for_inference, fork, wait, Future, ScriptModule, ScriptFunction, TracerWarning, Error,
)  # fmt: skip


def _annotations() -> ModuleType:
    """torch.jit.annotations: programs take List and Tuple from there, and BroadcastingList2, which is List."""
    module = ModuleType("pyflame.jit.annotations", "What PyTorch's programs annotate scripted functions with.")
    vars(module).update((name, getattr(typing, name)) for name in typing.__all__)
    vars(module).update((f"BroadcastingList{n}", typing.List) for n in range(1, 7))  # noqa: UP006
    return module


def install(jit: Any) -> None:
    """Make these attributes of the function `pf.jit`, and let `from pyflame.jit import Final` find them there."""
    for function in _FUNCTIONS:
        setattr(jit, function.__name__, function)
    jit.Final, jit.isinstance = Final, is_instance
    sys.modules["pyflame.jit.annotations"] = _annotations()
    jit.__path__ = []  # so that it is imported under other names of the package, too
    jit.__spec__ = ModuleSpec("pyflame.jit", None, is_package=True)
    jit.unused = jit.interface = jit.script_method = jit._overload = jit._overload_method = export
    jit.script_if_tracing = jit._script_if_tracing = script
