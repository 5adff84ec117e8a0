"""Parameters of plain functions, read from their code objects: what `inspect.signature` finds, in a tenth of its time.

The catalogue asks for those of every op while pyflame is imported. Decorated functions are those that they wrap.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any


def parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Names in the order of the signature: `(x, *args, axis, **kwargs)`."""
    code = _code(fn)
    named = code.co_argcount + code.co_kwonlyargcount
    starred = named + bool(code.co_flags & inspect.CO_VARARGS)
    total = starred + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames  # code objects list *args behind those that may be given by name
    return (*names[: code.co_argcount], *names[named:starred], *names[code.co_argcount : named], *names[starred:total])


def positional(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Names of those that may be given by position."""
    code = _code(fn)
    return code.co_varnames[: code.co_argcount]


def starred(fn: Callable[..., Any]) -> str | None:
    """The name of `*args`, if there is one."""
    code = _code(fn)
    place = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[place] if code.co_flags & inspect.CO_VARARGS else None


def _code(fn: Any) -> CodeType:
    while (wrapped := getattr(fn, "__wrapped__", None)) is not None:
        fn = wrapped
    code: CodeType = fn.__code__
    return code
