"""The names of torch.jit, as attributes of `pf.jit`. Scripting is not needed: what it is given runs as it is."""

from __future__ import annotations

import sys
import typing
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


def is_tracing() -> bool:
    """Whether pf.jit is tracing."""
    return state.tracer is not None


def save(*args: Any, **kwargs: Any) -> Any:
    """Raises: programs are saved by pf.aot."""
    raise NotSupportedError("[jit.save] expected another format but TorchScript is not written; pf.aot saves programs")


def load(*args: Any, **kwargs: Any) -> Any:
    """Raises: TorchScript programs are not read."""
    raise NotSupportedError("[jit.load] expected weights but TorchScript is not read; pf.load reads a state_dict()")


def install(jit: Any) -> None:
    """Make these attributes of the function `pf.jit`, and let `from pyflame.jit import Final` find them there."""
    for function in (script, trace, ignore, export, annotate, is_scripting, is_tracing, save, load):
        setattr(jit, function.__name__, function)
    jit.Final = Final
    sys.modules["pyflame.jit"] = jit
    sys.modules["pyflame.jit.annotations"] = typing  # programs take List and Tuple from there
    jit.unused = export
    jit.script_if_tracing = script
