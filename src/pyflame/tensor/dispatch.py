"""From Tensors to Nodes and back: how every op of the catalogue becomes a function and a method."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.autograd import entry_of, record
from pyflame.core import knobs
from pyflame.core.dtype import outranks
from pyflame.core.errors import DTypeError, PyFlameError, type_name
from pyflame.core.parameters import parameters, positional, starred
from pyflame.core.state import state
from pyflame.core.undo import Undo
from pyflame.engine.on_demand import evaluate
from pyflame.ir import Node, OpDef
from pyflame.ir.opdef import COMPOSITE, ELEMENTWISE, OPS
from pyflame.ops.names import ALIASES
from pyflame.tensor import known_views
from pyflame.tensor.arguments import (
    as_number_arguments,
    check_tensors,
    in_new_order,
    number_parameters,
    required_tensors,
    tensor_parameters,
    unusable,
    with_numbers,
    with_some_tensor,
)
from pyflame.tensor.builtin import IN_PYTHON, builtin
from pyflame.tensor.known_calls import CALLS, learned
from pyflame.tensor.known_views import READS
from pyflame.tensor.out import into
from pyflame.tensor.overrides import CLASSES, ask, overriding
from pyflame.tensor.paths import Step, path_between
from pyflame.tensor.synonyms import by_position, torch_names
from pyflame.tensor.tensor import TENSORS, Tensor, alias, read
from pyflame.tensor.views import link_view

_MAX_PENDING = knobs.MAX_PENDING.integer()


_WHOLE = (ELEMENTWISE, COMPOSITE)
_CONST = OPS["const"]
_PLAIN = frozenset((int, float, bool, str, type(None)))


def unwrap(value: Any, found: dict[Node, Any] | None = None) -> Any:
    """Tensors become Nodes, also inside lists and tuples; arrays become constant tensors.

    `found` gets the places on the tape of those that have one.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Tensor or isinstance(value, Tensor):
        if state.__dict__["tracer"] is None:
            node, entry = value._node, value._entry
        else:
            node, entry = read(value), value._tape
        if entry is not None and found is not None:
            found[node] = entry
        return node
    if kind in (list, tuple):
        return kind([unwrap(v, found) for v in value])
    if isinstance(value, np.ndarray):
        from pyflame.tensor.creation import tensor

        return read(tensor(value))
    return value


Bases = Tensor | list[Any] | None


def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], base: Bases = None) -> Any:
    """Apply a function over Nodes to Tensors, recording its tape where a gradient is wanted.

    `base`: the tensor whose views the results are, or one for each of them.
    """
    here = state.__dict__
    found: dict[Node, Any] = {}
    into = found if here["grad_enabled"] else None
    nodes = [unwrap(a, into) for a in args]
    if kwargs:
        kwargs = {k: unwrap(v, into) for k, v in kwargs.items()}
    if not found:
        return settle(wrap(fn(*nodes, **kwargs), None, nodes, base))
    recorder: list[Node] = []
    put = here.__setitem__
    # the recorder goes back when this tuple is gone: see core/undo.py
    out = (Undo(put, "recorder", here["recorder"]), put("recorder", recorder), fn(*nodes, **kwargs))[2]
    record(recorder, found)
    result = wrap(out, found, nodes, base)
    found.clear()  # what is held when a graph is evaluated is computed along
    recorder.clear()
    return settle(result)


def recorded(made: Any, given: Sequence[Any], tape: dict[Node, Any]) -> Tensor | None:
    """The Tensor of a Node and its place on the tape; None where it is not made of the given Nodes and numbers alone.

    It was made without a recorder. `tape`: places of what is given.
    """
    if type(made) is not Node or (op := made.op).grad is None or op.kind not in _WHOLE or not op.differentiable:
        return None
    if made.meta.dtype.category not in "fc" or _among(made, given):
        return None
    srcs = made.srcs
    for source in srcs:
        if source not in tape and source.op is not _CONST and not _among(source, given):  # a cast, perhaps
            return None
    parents = tuple(map(tape.get, srcs))
    return TENSORS.new(made, entry_of(made, parents) if any(parents) else None)  # type: ignore[no-any-return]


def _one_node_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call` for an op that is one Node, which needs no recorder."""
    here = state.__dict__
    if (
        here["recorder"] is here["tracer"] is here["autocast"] is None
        and not here["eager"]
        and here["pending"] <= _MAX_PENDING
    ):
        tape: dict[Node, Any] = {}
        into = tape if here["grad_enabled"] else None
        nodes = [unwrap(a, into) for a in args]
        if not kwargs or not [v for v in kwargs.values() if type(v) not in _PLAIN]:
            made = fn(*nodes, **kwargs)
            out = recorded(made, nodes, tape) if tape else wrap(made, None, nodes)
            if out is not None:
                return out
    return call(fn, args, kwargs)


def settle(result: Any) -> Any:
    """The same Tensors: evaluated in eager mode, or when many nodes are pending."""
    here = state.__dict__
    if (here["pending"] > _MAX_PENDING or here["eager"]) and here["tracer"] is None:
        evaluate(_nodes(result))
    return result


def _nodes(values: Any) -> list[Node]:
    if isinstance(values, (list, tuple)):
        return [node for v in values for node in _nodes(v)]
    return [values._node] if isinstance(values, Tensor) else []


def _among(node: Node, values: Any) -> bool:
    for v in values:  # noqa: SIM110  every op comes through here, and a generator takes twice as long
        if v is node or (isinstance(v, (list, tuple)) and _among(node, v)):
            return True
    return False


def wrap(out: Any, entries: dict[Node, Any] | None, given: Any = (), base: Bases = None) -> Any:
    """Nodes become Tensors, also inside lists and tuples. `given`: arguments of the op, which it may return.

    `base`: the tensor whose views they are, or one for each of them.
    """
    if type(out) is Node:
        entry = entries.get(out) if entries else None
        path = None if base is None or not isinstance(base, Tensor) else path_between(read(base), out)
        if entry is None and _among(out, given):
            out = alias(out)
        result = Tensor(out, entry) if state.__dict__["tracer"] is not None else TENSORS.new(out, entry)
        if path is not None:
            link_view(result, base, path)  # type: ignore[arg-type]
        return result
    if isinstance(out, (list, tuple)):
        bases = base if isinstance(base, list) and len(base) == len(out) else [base] * len(out)
        values = [wrap(o, entries, given, b) for o, b in zip(out, bases, strict=True)]
        return type(out)(*values) if hasattr(out, "_fields") else type(out)(values)
    return out


# Ops whose results share memory with their first argument, as in PyTorch.
VIEWS = frozenset(
    (
        "chunk", "diagonal", "dsplit", "expand", "expand_as", "flatten", "hsplit", "imag", "movedim", "narrow",
        "permute", "real", "reshape", "reshape_as", "select", "split", "squeeze", "t", "tensor_split", "transpose",
        "unbind", "unflatten", "unfold", "unsqueeze", "vsplit",
    )
)  # fmt: skip


def _view_call(first: str) -> Callable[..., Any]:
    """`call` for an op whose results are views of its first argument."""

    def view(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0] if args else kwargs.get(first)
        if not isinstance(base, Tensor):
            return call(fn, args, kwargs)
        here = state.__dict__
        modes = here["recorder"] is here["tracer"] is None and not here["eager"]
        if args and modes and here["pending"] <= _MAX_PENDING:
            out = known_views.view(fn, base, args[1:], kwargs)
            if out is not None:
                return out
        return call(fn, args, kwargs, base)

    return view


# Views whose elements are not those of their base: the op is the whole path.
_REINTERPRETING = frozenset(("view_as_complex", "view_as_real"))


def _reinterpreting_call(op: OpDef, first: str) -> Callable[..., Any]:
    """`call` for such an op."""

    def view(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base, out = args[0] if args else kwargs.get(first), call(fn, args, kwargs)
        return link_view(out, base, (Step(op, ()),)) if isinstance(base, Tensor) else out

    return view


# Ops that take several tensors, and give a view of each.
VIEWS_OF_EACH = frozenset(("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid"))


def _views_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call` for such an op. They may come in a list, and one alone may give one."""
    given = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
    return call(fn, args, kwargs, given[0] if len(given) == 1 and isinstance(given[0], Tensor) else given)


class _Signature:
    """What an op's function must know of its arguments, found out at its first call: there are hundreds of ops."""

    def __init__(self, op: OpDef) -> None:
        fn, name = op.fn, op.name
        self.calling = (
            _view_call(parameters(fn)[0]) if name in VIEWS
            else _views_call if name in VIEWS_OF_EACH
            else _reinterpreting_call(op, parameters(fn)[0]) if name in _REINTERPRETING
            else _one_node_call if op.kind in _WHOLE and op.grad is not None
            else call
        )  # fmt: skip
        self.learns = self.calling is call or self.calling is _one_node_call
        self.reads = name in VIEWS
        self.names = torch_names(fn, name)
        self.wanted = required_tensors(name, fn, op.takes_numbers)
        self.mixed = op.takes_numbers or inspect.unwrap(fn).__annotations__.get("x") == "Any"
        self.numbers = number_parameters(fn)
        self.tensors: set[Any] = {0, *(key for i, p, _ in tensor_parameters(fn) for key in (i, p))}
        self.many = starred(fn)  # reshape(2, 3) may be written reshape(shape=(2, 3)) too
        self.order = positional(fn) if op.takes_numbers or self.many is not None else ()


_signature_of = functools.cache(_Signature)


def public(op: OpDef, name: str | None = None, owner: str = "") -> Callable[..., Any]:
    """The function of an op, over Tensors, by one of its names; `owner`: the class that it is a method of."""
    fn, any_number = op.fn, op.any_number
    known: _Signature | None = None

    @functools.wraps(fn)
    def function(*args: Any, _room: Any = None, **kwargs: Any) -> Any:
        nonlocal known
        if (signature := known) is None:
            signature = known = _signature_of(op)
        if signature.learns and CALLS.made is not None:
            out = CALLS.made[0](op, args, kwargs, state.__dict__, any_number)
            if out is not None:
                return out if out is not True else learned(op, general, args, kwargs)
        elif signature.reads and READS.made is not None:
            out = READS.made[1](fn, args, kwargs, state.__dict__)
            if out is not None:
                return out
        return general(*args, **kwargs)

    def general(*args: Any, **kwargs: Any) -> Any:
        signature = known
        assert signature is not None
        if CLASSES and (found := overriding((*args, *kwargs.values()))):
            return ask(function, found, args, kwargs)
        named = kwargs
        if kwargs:
            names, many = signature.names, signature.many
            kwargs = {names.get(k, k): v for k, v in kwargs.items()}
            if signature.order:
                args, kwargs = by_position(signature.order, args, kwargs)
            if many in kwargs:
                args = (*args, kwargs.pop(many))
            if "out" in kwargs:
                return into(op.name, kwargs.pop("out"), function(*args, **kwargs))
        try:
            if signature.wanted:
                check_tensors(op.name, signature.wanted, args, kwargs)
            elif signature.mixed:
                args = with_some_tensor(op.name, args, kwargs)
            if signature.numbers:
                args, kwargs = with_numbers(op.name, signature.numbers, args, kwargs)
            return signature.calling(fn, args, kwargs)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            if found := overriding((*args, *kwargs.values())):
                return ask(function, found, args, named)
            if isinstance(error, AttributeError):
                raise
            if (new := in_new_order(op.name, args, kwargs)) is not None:
                return function(*new[0], **new[1])
            if (numbers := as_number_arguments(args, kwargs, signature.tensors)) is not None:
                return function(*numbers[0], **numbers[1])
            if isinstance(error, PyFlameError):
                raise
            raise unusable(op.name, fn, args, kwargs, error, signature.names) from error

    name = name or op.name
    _known_as(function, name, owner)
    if not owner and name not in IN_PYTHON:
        function = builtin(function)  # by this name, since it hands itself over
    return function


def _known_as(function: Callable[..., Any], name: str, owner: str = "Tensor.") -> Callable[..., Any]:
    """The function itself, which `__torch_function__` knows by this name."""
    function.__name__, function.__qualname__, function.__module__ = name, owner + name, "pyflame"
    return function


_NAMES = {**{name: op for name, op in OPS.items() if op.public}, **{name: OPS[of] for name, of in ALIASES.items()}}
FUNCTIONS: dict[str, Callable[..., Any]] = {name: public(op, name) for name, op in _NAMES.items()}


_NUMBERS = (Tensor, float, int)
_NO_NAMES: dict[str, Any] = {}


def _binary(own: str, name: str, shown: str = "", swap: bool = False) -> Callable[[Any, Any], Any]:
    """Python's method `own` of an op. `shown`: the method that `__torch_function__` is given instead of it."""
    op = OPS[name]
    fn, any_number = op.fn, op.any_number

    def method(self: Tensor, other: Any) -> Any:
        if CALLS.made is not None and isinstance(other, _NUMBERS):
            args = (other, self) if swap else (self, other)
            out = CALLS.made[0](op, args, _NO_NAMES, state.__dict__, any_number)
            if out is not None:
                return out if out is not True else learned(op, general, args, _NO_NAMES)
        elif not isinstance(other, (*_NUMBERS, np.ndarray, np.generic, complex)):
            if found := overriding((self, other)):
                return ask(vars(Tensor)[shown or own], found, (self, other), {})
            kind = type(other)
            if kind.__name__ == "Tensor":  # another library's, which Python's own message would call by the same name
                raise DTypeError(
                    f"[{name}] expected a tensor or a number but got {type_name(other)}; pf.tensor(...) takes it"
                )
            return NotImplemented
        if CLASSES and (found := overriding((self, other))):
            return ask(vars(Tensor)[shown or own], found, (self, other), {})
        return call(fn, (other, self) if swap else (self, other), {})

    def general(*args: Any) -> Any:
        return call(fn, args, {})

    return _known_as(method, _PYTHONS_NAMES.get(own, own))


# Python's operator -> its op, and what PyTorch gives to `__torch_function__` for x + y, y + x and x += y, where that is
# not __add__, __radd__ and __iadd__.
OPERATORS = {
    "add": ("add", "add", "add", "add_"),
    "sub": ("sub", "sub", "", "sub_"),
    "mul": ("mul", "mul", "mul", "mul_"),
    "truediv": ("div", "div", "", "div_"),
    "floordiv": ("floor_div", "", "", "floor_divide_"),
    "mod": ("mod", "remainder", "", "remainder_"),
    "pow": ("pow", "", "", ""),
    "matmul": ("matmul", "matmul", "", ""),
    "and": ("bitwise_and", "", "bitwise_and", ""),
    "or": ("bitwise_or", "", "bitwise_or", ""),
    "xor": ("bitwise_xor", "", "bitwise_xor", ""),
    "lshift": ("left_shift", "", "", ""),
    "rshift": ("right_shift", "", "", ""),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# What PyTorch calls them.
_PYTHONS_NAMES = {"__pow__": "pow", "__ipow__": "pow_", "__rtruediv__": "__rdiv__", "__itruediv__": "__idiv__"}


def in_place(name: str, own: str, shown: str = "") -> Callable[..., Any]:
    """The method that replaces a tensor's value by the result of an op, in the tensor's dtype."""
    function = FUNCTIONS[name]

    @functools.wraps(OPS[ALIASES.get(name, name)].fn)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if CLASSES and (found := overriding((self, *args, *kwargs.values()))):
            return ask(vars(Tensor)[shown] if shown else method, found, (self, *args), kwargs)
        return replaced(name, self, function(self, *args, **kwargs))

    return _known_as(method, _PYTHONS_NAMES.get(own, own))


def replaced(name: str, input: Tensor, out: Tensor) -> Tensor:
    """The tensor itself with the result of an op for its value, in its dtype."""
    if outranks(out.dtype, input.dtype):
        raise DTypeError(
            f"[{name}_] expected a result that {input.dtype.name} can hold but got {out.dtype.name}; "
            f"cast the tensor first, or use {name} not in place"
        )
    return input._rebind(out if out.dtype is input.dtype else FUNCTIONS["cast"](out, input.dtype))


def install() -> None:
    """Give Tensor its methods and operators, from the catalogue."""
    for name, op in _NAMES.items():
        if op.method and not hasattr(Tensor, name):
            setattr(Tensor, name, public(op, name, "Tensor."))
    for symbol, (name, plain, reflected, writing) in OPERATORS.items():
        own = [f"__{kind}{symbol}__" for kind in ("", "r", "i")]
        setattr(Tensor, own[0], _binary(own[0], name, plain))
        setattr(Tensor, own[1], _binary(own[1], name, reflected, swap=True))
        setattr(Tensor, own[2], in_place(name, own[2], writing))
    for name in COMPARISONS:
        setattr(Tensor, f"__{name}__", _binary(f"__{name}__", name, "" if name == "eq" else name))
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
    Tensor.__invert__ = public(OPS["bitwise_not"], "__invert__", "Tensor.")  # type: ignore[method-assign]
    same = {"__neg__": "neg", "__abs__": "abs", "__div__": "__truediv__", "__rdiv__": "__rtruediv__"}
    for name, of in same.items():
        setattr(Tensor, name, vars(Tensor)[of])


install()
