"""Typed errors for calls that Python itself refuses: what a function expects, what it got, and the nearest keyword."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, PyFlameError, suggest, type_name
from pyflame.core.maker import InC
from pyflame.core.parameters import parameters, positional, starred
from pyflame.ops.names import TENSORS_FIRST, TENSORS_ONLY
from pyflame.tensor.builtin import IN_PYTHON, builtin
from pyflame.tensor.out import into
from pyflame.tensor.overrides import CLASSES, ask, overriding_call
from pyflame.tensor.synonyms import torch_names
from pyflame.tensor.tensor import Tensor

Fn = TypeVar("Fn", bound=Callable[..., Any])

_ABSENT: Any = object()
_TENSORS = (Tensor, np.ndarray)
_WANTED = {"Node": False, "Node | None": True, "Tensor": False, "Tensor | None": True}


def tensor_parameters(fn: Callable[..., Any]) -> list[tuple[int, str, bool]]:
    """(position, name, may be None) of the parameters that must be tensors."""
    kinds = inspect.unwrap(fn).__annotations__
    return [(i, p, _WANTED[kind]) for i, p in enumerate(parameters(fn)) if (kind := kinds.get(p)) in _WANTED]


def required_tensors(name: str, fn: Callable[..., Any], takes_numbers: bool) -> list[tuple[int, str, bool]]:
    """(position, name, may be None) of the parameters that must be tensors; elementwise ops may take numbers."""
    if name in TENSORS_FIRST or name in TENSORS_ONLY:
        names = positional(fn)[: 1 if name in TENSORS_FIRST else 2]
        return [(i, parameter, False) for i, parameter in enumerate(names)]
    return [] if takes_numbers else tensor_parameters(fn)


_NUMBERS_ALONE = {"add", "sub", "mul", "div", "floor_div"}  # PyTorch takes torch.mul(5, 5)


def with_some_tensor(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The positional arguments, the first one made a tensor where all are numbers; raises where PyTorch does."""
    if (args and isinstance(args[0], _TENSORS)) or any(isinstance(a, _TENSORS) for a in (*args, *kwargs.values())):
        return args
    if op in _NUMBERS_ALONE and args and isinstance(args[0], (bool, int, float, complex)):
        from pyflame.tensor.creation import tensor

        return (tensor(args[0]), *args[1:])
    got = ", ".join(type_name(a) for a in args) or "nothing"
    raise DTypeError(f"[{op}] expected at least one tensor but got {got}; wrap it in pf.tensor(...)")


def check_tensors(op: str, wanted: list[tuple[int, str, bool]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise for an argument that should be a tensor and is not."""
    for position, name, optional in wanted:
        value = args[position] if position < len(args) else kwargs.get(name, _ABSENT)
        if not isinstance(value, _TENSORS) and value is not _ABSENT and not (optional and value is None):
            got = type_name(value)
            raise DTypeError(f"[{op}] expected a tensor as {name} but got {got}; wrap it in pf.tensor(...)")


_NUMBERS = {"int": False, "int | None": False, "int | Sequence[int]": True}


def number_parameters(fn: Callable[..., Any]) -> list[tuple[int, str, bool]]:
    """(position, name, whether several) of the parameters that must be whole numbers."""
    kinds = inspect.unwrap(fn).__annotations__
    return [(i, p, _NUMBERS[kind]) for i, p in enumerate(parameters(fn)) if (kind := kinds.get(p)) in _NUMBERS]


def with_numbers(
    op: str, wanted: list[tuple[int, str, bool]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with numbers for tensors of them, which are evaluated: `x.narrow(0, start, 2)`."""
    for position, name, several in wanted:
        value = args[position] if position < len(args) else kwargs.get(name)
        if not isinstance(value, Tensor):
            continue
        if not value.dtype.is_int or value.ndim > several:
            raise ArgumentTypeError(
                f"[{op}] expected {'whole numbers' if several else 'a whole number'} as {name} but got a tensor of "
                f"{value.dtype.name} with shape {value.shape}"
            )
        number = value.tolist() if several else value.item()
        if position < len(args):
            args = (*args[:position], number, *args[position + 1 :])
        else:
            kwargs = {**kwargs, name: number}
    return args, kwargs


def as_number_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], kept: set[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments with numbers for 0-d tensors of whole numbers, as in `x.view(lengths.max(), -1)`; None without any.

    Those whose position or name is kept are tensors, and stay.
    """
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    numbers = {k: v if k in kept else whole_number(v) for k, v in given.items()}
    if all(numbers[k] is v for k, v in given.items()):
        return None
    return tuple(numbers[i] for i in range(len(args))), {k: numbers[k] for k in kwargs}


# Ops that take a factor by keyword, which PyTorch's old programs write before the tensors that it is of.
_FACTOR = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
_PRODUCTS = frozenset(("addbmm", "addmm", "addmv", "addr", "baddbmm"))


def in_new_order(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of PyTorch's old forms, which it still takes: `x.add(alpha, y)`, `x.addcmul(value, y, z)`,
    `x.addmm(beta, alpha, y, z)`, `addmm(beta, x, alpha, y, z)`; None for all others.
    """
    words = ("beta", "alpha") if name in _PRODUCTS else (_FACTOR[name],) if name in _FACTOR else ()
    count = 2 if words == ("alpha",) else 3
    tensors = tuple(a for a in args if isinstance(a, _TENSORS))
    numbers = [a for a in args if not isinstance(a, _TENSORS)]
    if not 1 <= len(numbers) <= len(words) or len(tensors) != count or (count == 2 and args[0] is numbers[0]):
        return None
    if not all(isinstance(a, _TENSORS) for a in args[1 - count :]) or any(word in kwargs for word in words):
        return None
    return tensors, {**kwargs, **dict(zip(words, numbers, strict=False))}


def whole_number(value: Any) -> Any:
    """The number in a 0-d tensor of a whole number, also in a list of them; everything else comes back as it is."""
    if type(value) in (list, tuple):
        numbers = type(value)(whole_number(v) for v in value)
        return numbers if any(n is not v for n, v in zip(numbers, value, strict=True)) else value
    return value.item() if isinstance(value, Tensor) and value.ndim == 0 and value.dtype.is_int else value


def unusable(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: Exception,
    synonyms: Iterable[str] = (),
) -> PyFlameError:
    """What to raise for arguments that Python could not use, and why it could not."""
    signature = inspect.signature(fn)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    if bare and bare[0].name == "self":
        bare, args = bare[1:], args[1:]
    given = [_summary(a) for a in args] + [f"{k}={_summary(v)}" for k, v in kwargs.items()]
    shown = signature.replace(parameters=bare, return_annotation=signature.empty)
    hint = "" if any(p.kind is p.VAR_KEYWORD for p in bare) else _nearest(kwargs, [*(p.name for p in bare), *synonyms])
    message = f"[{name}] expected {name}{shown} but got {name}({', '.join(given)}): {error}{hint}"
    return ArgumentTypeError(message) if isinstance(error, TypeError) else ArgumentError(message)


def _nearest(given: Iterable[str], known: list[str]) -> str:
    unknown = [word for word in given if word not in known]
    return suggest(unknown[0], known) if unknown else ""


def _summary(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]


def _own_parameters(fn: Any) -> tuple[str, ...]:
    """The names that a function itself takes, not those of one that it wraps."""
    code = fn.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]  # type: ignore[no-any-return]


def in_our_names(
    fn: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """The keywords in the names that the function has, where they are PyTorch's and can be used; else None."""
    words = torch_names(fn, name)
    if words.keys().isdisjoint(kwargs):
        return None
    renamed = {words.get(k, k): v for k, v in kwargs.items()}
    many = starred(fn)
    try:
        inspect.signature(fn).bind(*args, **{k: v for k, v in renamed.items() if k != many})
    except TypeError:
        return None
    return renamed


def typed(
    fn: Fn,
    module: str | None = None,
    public: str | None = None,
    quick: InC | None = None,
    unbound: bool = False,
    prefix: str = "",
) -> Fn:
    """A function whose wrong calls raise typed errors: arguments too many, missing, unknown, or no tensors.

    `module`: where users find it; `public`: by which name; `quick`: a method's result in C, None where there is none;
    `unbound`: it is no method where it stands in a class; `prefix`: what `__torch_function__` sees before its name.
    What the function itself raises is left alone.
    """
    own = public or fn.__name__
    name = own.strip("_")

    @functools.wraps(fn)
    def function(*args: Any, _room: Any = None, **kwargs: Any) -> Any:
        if CLASSES and (found := overriding_call(own, args, kwargs)):
            return ask(function, found, args, kwargs)
        if kwargs:
            if (many := starred(fn)) in kwargs:  # zeros(2, 3) may be written zeros(size=(2, 3)) too
                args = (*args, kwargs.pop(many))
            if "out" in kwargs and "out" not in _own_parameters(fn):
                return into(name, kwargs.pop("out"), function(*args, **kwargs))
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)  # an empty dict costs as much as the call
        except (TypeError, AttributeError) as error:
            if found := overriding_call(own, args, kwargs):
                return ask(function, found, args, kwargs)
            if isinstance(error, PyFlameError):
                raise
            # now, since some functions take more than they say
            renamed = in_our_names(fn, own, args, kwargs)
            if renamed is not None:
                return function(*args, **renamed)
            check_tensors(name, tensor_parameters(fn), args, kwargs)
            try:
                inspect.signature(fn).bind(*args, **kwargs)
            except TypeError as mismatch:
                raise unusable(name, fn, args, kwargs, mismatch) from None
            raise

    if quick is not None:
        general = function

        @functools.wraps(fn)
        def function(self: Any, *args: Any, **kwargs: Any) -> Any:
            if quick.made is not None and not args and not kwargs and (found := quick.made(self)) is not None:
                return found
            return general(self, *args, **kwargs)

    function.__module__ = module or fn.__module__
    if public is not None:
        function.__name__ = prefix + public
    if unbound:
        function = builtin(function, function.__module__, prefix)
    return function  # type: ignore[return-value]


def typed_init(init: Fn) -> Fn:
    """An `__init__` whose wrong calls raise typed errors that name the class."""

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if isinstance(error, PyFlameError):
                raise
            try:
                inspect.signature(init).bind(self, *args, **kwargs)
            except TypeError as mismatch:
                raise unusable(type(self).__name__, init, (self, *args), kwargs, mismatch) from None
            raise

    return checked  # type: ignore[return-value]


def publish(names: Iterable[str], members: dict[str, Any], module: str, prefix: str = "") -> None:
    """Make the functions among a module's public names typed. `prefix`: what `__torch_function__` sees before
    their names, as it does in PyTorch."""
    for name in names:
        value = members.get(name)
        if isinstance(value, (types.FunctionType, types.MethodType)) and (prefix or value.__module__ != module):
            members[name] = typed(value, module, name, unbound=name not in IN_PYTHON, prefix=prefix)
