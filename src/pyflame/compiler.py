"""torch.compiler by its path, and `pf.compile`.

Ops build graphs here that are planned, fused and compiled whenever they are evaluated, and plans are kept by their
structure: a model needs no compiling to run compiled. So `compile` gives back what it is given; nothing can break a
graph, and gradients flow as before. `pf.jit` goes further, a whole training step as one plan, and asks for more: see
docs/jit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from pyflame.core.errors import ArgumentTypeError, type_name
from pyflame.core.state import state
from pyflame.core.torch_paths import below

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset", "set_stance",
    "substitute_in_graph",
]  # fmt: skip
__path__: list[str] = []  # torch has files below _dynamo and _inductor, which this is too

__getattr__ = below("_dynamo")

Fn = TypeVar("Fn", bound=Callable[..., Any])


class _Remembered:
    """Settings of torch's compiler: any may be set and read again, and none has an effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, _Remembered())


config = _Remembered()  # torch._dynamo.config and torch._inductor.config


def is_compile_supported(device_type: str) -> bool:
    """Whether graphs can be compiled for a kind of device: always."""
    return True


class OptimizedModule:
    """What torch.compile gives for a module; pf.compile gives the module, so nothing is one."""


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function or module itself: it runs compiled already. PyTorch's options are taken and change nothing.

    >>> @pf.compile(mode="max-autotune")
    ... def double(x):
    ...     return x * 2
    >>> double(pf.ones(2))
    tensor([2., 2.])
    """
    if model is None:
        return compile
    if not callable(model):
        raise ArgumentTypeError(f"[compile] expected a function or a module but got {type_name(model)}")
    return model


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself."""
    return disable if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = nested_compile_region = allow_in_graph
run = disallow_in_graph = forbid_in_graph = allow_in_graph


def reset() -> None:
    """Plans are kept by structure and forgotten when they are not used: there is nothing to do."""


reset_code_caches = reset


def cudagraph_mark_step_begin() -> None:
    """Results of a replay are never overwritten while they are held: there is nothing to mark."""


def mark_dynamic(t: Any, index: Any = None, **options: Any) -> None:
    """Plans fit every size: there is nothing to mark."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The one that there is, by the name that programs ask for.

    >>> pf.compiler.list_backends()
    ['inductor']
    """
    return ["inductor"]


class set_stance(nullcontext[None]):
    """Taken and without effect: functions are not compiled by calls, so none can be told when to be. It decorates, too.

    >>> with pf.compiler.set_stance("force_eager"):
    ...     pass
    """

    def __init__(self, stance: str = "default", **options: Any) -> None:
        super().__init__()

    def __call__(self, fn: Fn) -> Fn:
        return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Fn], Fn]:
    """A decorator that changes nothing: functions are run, not traced."""
    return lambda fn: fn


def optimize(*args: Any, **options: Any) -> Callable[[Fn], Fn]:
    """`torch._dynamo.optimize`, the older name of compile: a decorator that gives back what it is given."""
    return lambda fn: fn


def graph_break(msg: str = "") -> None:
    """Nothing can break a graph."""


mark_static = maybe_mark_dynamic = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """A replay finds state wherever it lies: there is nothing to mark."""


def is_compiling() -> bool:
    """Whether pf.jit is tracing."""
    return state.tracer is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: programs are exported by running them, as pf.onnx.export does.

    >>> pf.compiler.is_exporting()
    False
    """
    return False
