"""Decorators that declare ops. The decorated function's name, signature and docstring become the public ones.

    @elementwise("pf_exp({x})", reference=np.exp, grad=lambda g, out: g * out, dtype="float", cost=8)
    def exp(x: Node) -> Node:
        \"\"\"e to the power of each element.\"\"\"

- `elementwise`: the function has no body; promotion and broadcasting are automatic. With a keyword `alpha` its second
  argument is multiplied by that first.
- `primitive`: the function turns public arguments into `(sources, attributes)`; `infer` gives shape and dtype.
- `composite`: the function computes with other ops and returns the result; it never becomes a Node itself.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

from pyflame.core.dtype import (
    DType,
    bool_,
    complex_of,
    default,
    float32,
    outranks,
    promote_scalar,
    promote_types,
)
from pyflame.core.errors import DTypeError, type_name
from pyflame.core.parameters import parameters, positional
from pyflame.core.shape import broadcast_shapes
from pyflame.core.state import state
from pyflame.core.traced import Number, real
from pyflame.ir.node import NODES, Meta, Node
from pyflame.ir.opdef import CONST, ELEMENTWISE, INLINE, OPS, OpDef, Rule, apply, register, signature

Fn = TypeVar("Fn", bound=Callable[..., Any])

# How ops compute with complex numbers: from their parts (see ops/complex.py). A form may decline by giving None.
COMPLEX: dict[str, Callable[..., Any]] = {}


def _complex_form(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Node:
    """An elementwise op of complex numbers, from its parts."""
    form = COMPLEX.get(name)
    if form is None:
        raise DTypeError(
            f"[{name}] expected real numbers but got complex ones, for which it is not defined here; compute with "
            ".real and .imag"
        )
    return form(*args, **(kwargs or {}))  # type: ignore[no-any-return]


_const_sigs: dict[DType, tuple[Meta, int]] = {}


def const(value: float | int | bool | complex, dtype: DType) -> Node:
    """A number as a Node. Its value is data of the plan, not part of its structure."""
    found = _const_sigs.get(dtype)
    if found is None:
        if dtype.is_complex:
            parts = [const(part, dtype.real) for part in (complex(value).real, complex(value).imag)]
            return OPS["complex"].fn(*parts)  # type: ignore[no-any-return]
        meta = Meta((), dtype, None)
        found = _const_sigs[dtype] = (meta, signature("const", meta))
    if dtype.is_float:
        value = value if type(value) is float else real(value)
    elif dtype is bool_:
        value = bool(value)
    else:
        value = wrap_int(value if type(value) is int or _is_whole(value) else int(value), dtype)  # type: ignore[arg-type]
    return NODES.new(OPS["const"], (), (), found[0], found[1], value)  # type: ignore[no-any-return]


def wrap_int(value: int, dtype: DType) -> int:
    """Two's complement, as C casts."""
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def _is_whole(value: Any) -> bool:
    """Whether it is a traced integer: what is made of shapes while a plan is traced is data of the plan too."""
    return isinstance(value, Number) and type(value.value) is int


def as_signed(value: Any) -> Any:
    """A number as a uniform, a word of 64 bits: a uint64 from 2**63 on is the int64 of the same bits."""
    return value - (1 << 64) if isinstance(value, int) and value >= 1 << 63 else value


def is_number(value: object) -> bool:
    return type(value) in (int, float, bool) or isinstance(value, (numbers.Real, Number))


def is_complex_number(value: object) -> bool:
    """Whether a number has an imaginary part, be it 0."""
    return isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)


def as_number(value: Any) -> Any:
    """A Python number for any number type (NumPy scalars too)."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Number):
        return value.fixed()
    if is_complex_number(value):
        return complex(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    item = value.item() if hasattr(value, "item") else float(value)
    return item if isinstance(item, (bool, int, float)) else float(item)


def common_dtype(op: str, args: tuple[Any, ...]) -> DType:
    """PyTorch's result type: tensors with axes outrank 0-d tensors, which outrank numbers, within a category."""
    same = args[0].meta.dtype if args and type(args[0]) is Node else None
    for arg in args:
        if type(arg) is not Node or arg.meta.dtype is not same:
            break
    else:
        if same is not None:
            return same
    ranked: list[DType | None] = [None, None]
    scalars = []
    for arg in args:
        if isinstance(arg, Node):
            level = 0 if arg.meta.shape else 1
            have = ranked[level]
            ranked[level] = arg.meta.dtype if have is None else promote_types(have, arg.meta.dtype)
        elif is_number(arg) or is_complex_number(arg):
            scalars.append(arg.value if isinstance(arg, Number) else as_number(arg))
        else:
            raise DTypeError(
                f"[{op}] expected tensors or numbers but got {type_name(arg)} {arg!r}; wrap it in pf.tensor(...)"
            )
    dims, zero = ranked
    result = dims or zero
    if dims is not None and zero is not None and outranks(zero, dims):
        result = complex_of(dims) if zero.is_complex and dims.is_float else zero
    for value in scalars:
        result = (
            (default.float if isinstance(value, float) else promote_scalar(bool_, value))
            if result is None
            else promote_scalar(result, value)
        )
    assert result is not None
    return result


def cast(node: Node, dtype: DType) -> Node:
    """The Node itself where it has this dtype already; a constant is rewritten rather than cast."""
    if node.meta.dtype is dtype:
        return node
    if node.meta.dtype.is_complex and not dtype.is_complex and dtype is not bool_:
        raise DTypeError(
            f"[cast] expected real numbers but got {node.meta.dtype.name}, for which this op is not defined here; "
            "compute with .real and .imag"
        )
    if dtype.is_complex or node.meta.dtype.is_complex:
        return COMPLEX["cast"](node, dtype)  # type: ignore[no-any-return]
    if node.op.kind == CONST:
        made = const(node.data, dtype)
        made.attrs = node.attrs  # a number that jit feeds stays that number
        return made
    return apply(OPS["cast"], (node,), (dtype,))


def as_node(value: Any, dtype: DType) -> Node:
    if isinstance(value, Node):
        return cast(value, dtype)
    if not is_number(value) and not (dtype.is_complex and is_complex_number(value)):
        raise DTypeError(f"[tensor] expected a tensor or a number but got {type_name(value)} {value!r}")
    traced: Any = value if isinstance(value, Number) else None
    return const(as_number(value) if traced is None else traced, dtype)


def _result_float(op: str, dtype: DType) -> DType:
    return dtype if dtype.is_float else default.float


def _result_int(op: str, dtype: DType) -> DType:
    if dtype.is_float:
        raise DTypeError(f"[{op}] expected integers or bools but got {dtype.name}; cast with .to(pf.int64)")
    return dtype


def _result_integer(op: str, dtype: DType) -> DType:
    if not dtype.is_int:
        raise DTypeError(f"[{op}] expected integers but got {dtype.name}; cast with .to(pf.int64)")
    return dtype


def _result_number(op: str, dtype: DType) -> DType:
    if dtype is bool_:
        raise DTypeError(f"[{op}] expected numbers but got bools; use logical ops, or cast with .to(pf.int64)")
    return dtype


# How an elementwise op turns the common dtype of its arguments into the one it computes in.
_COMPUTE: dict[str, Callable[[str, DType], DType]] = {
    "same": lambda op, d: d,
    "float": _result_float,
    "int": _result_int,
    "integer": _result_integer,
    "number": _result_number,
    "compare": lambda op, d: d,
}


def broadcast_infer(name: str, dtype: str) -> Callable[..., tuple[tuple[int, ...], DType]]:
    def infer(*metas: Meta) -> tuple[tuple[int, ...], DType]:
        first = metas[0]
        alike = len(metas) == 1 or (len(metas) == 2 and metas[1] is first)
        shape = first.shape if alike else broadcast_shapes(name, *[m.shape for m in metas])
        return shape, bool_ if dtype == "compare" else first.dtype

    return infer


_signature = functools.cache(inspect.signature)


def elementwise(
    c: str,
    *,
    reference: Callable[..., Any],
    grad: Callable[..., Any] | None = None,
    dtype: str = "same",
    no_bools: bool = False,
    **options: Any,
) -> Callable[[Fn], Fn]:
    """Declare an op that computes each element from the elements at the same place. `no_bools`: it takes no tensors of
    bools, though another argument be a number."""
    compute = _COMPUTE[dtype]

    def decorate(fn: Fn) -> Fn:
        name = options.pop("name", fn.__name__)
        names = positional(fn)
        arity = len(names)
        cache: dict[DType, DType] = {}

        def unary(x: Any) -> Node:
            if not isinstance(x, Node):
                x = as_node(x, common_dtype(name, (x,)))
            have = x.meta.dtype
            want = cache.get(have)
            if want is None:
                if have.is_complex:
                    return _complex_form(name, (x,))
                want = compute(name, have)
                if have is want:  # else it may be the default dtype, which changes
                    cache[have] = want
            return apply(op, (x if have is want else cast(x, want),))

        def general(*args: Any, **kwargs: Any) -> Node:
            if no_bools and any(isinstance(a, Node) and a.meta.dtype is bool_ for a in args):
                _result_number(name, bool_)  # raises
            if kwargs or len(args) != arity:
                bound = _signature(fn).bind(*args, **kwargs)
                bound.apply_defaults()
                args, alpha = bound.args, bound.kwargs.get("alpha", 1)
                if alpha != 1:
                    args = (args[0], OPS["mul"].fn(args[1], alpha))
            common = common_dtype(name, args)
            if common.is_complex and not options.get("takes_complex"):
                return _complex_form(name, args)
            want = compute(name, common)
            return apply(op, tuple([as_node(a, want) for a in args]))

        def binary(x: Any, y: Any, *, alpha: Any = 1) -> Node:
            if alpha != 1:
                return general(x, y, alpha=alpha)
            # The two common cases, without the general machinery: equal dtypes, and floats with a number.
            if type(x) is Node:
                have = x.meta.dtype
                if type(y) is Node:
                    if y.meta.dtype is have and cache.get(have) is have:
                        return apply(op, (x, y))
                elif (type(y) is int or (type(y) is float and have.category == "f")) and cache.get(have) is have:
                    return apply(op, (x, const(y, have)))
                if (
                    have not in cache and have is not bool_ and not have.is_complex
                ):  # a bool may meet a number, and then counts as one
                    cache[have] = compute(name, have)
            return general(x, y)

        plain = arity == 2 and not fn.__defaults__
        call = unary if arity == 1 else binary if plain else general
        op = register(
            OpDef(
                name,
                ELEMENTWISE,
                functools.wraps(fn)(call),
                fn.__doc__ or "",
                infer=broadcast_infer(name, dtype),
                reference=reference,
                grad=Rule(grad, names, ()) if grad else None,
                c=c,
                srcs=names,
                takes_numbers=True,
                any_number=plain,
                **{"differentiable": dtype in ("same", "number", "float"), **options},
            )
        )
        return op.fn  # type: ignore[return-value]

    return decorate


def _following_autocast(fn: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """The function, its float tensors cast first while pf.autocast is on: 16-bit for "low" ops, float32 for "high" ones
    and the widest dtype among them for those that "promote"."""

    def fitted(value: Any, low: DType, widest: DType) -> Any:
        if isinstance(value, Node):
            have = value.meta.dtype
            if kind == "low":
                return cast(value, low) if have in (float32, low) else value
            return cast(value, widest) if have.is_float and have.itemsize < widest.itemsize else value
        return type(value)([fitted(v, low, widest) for v in value]) if type(value) in (list, tuple) else value

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        low = state.autocast
        if low is None:
            return fn(*args, **kwargs)
        widest = float32
        if kind == "promote":
            floats = [v.dtype for v in (*args, *kwargs.values()) if isinstance(v, Node) and v.dtype.is_float]
            widest = max(floats, key=lambda dtype: dtype.itemsize, default=low)
        return fn(*[fitted(a, low, widest) for a in args], **{k: fitted(v, low, widest) for k, v in kwargs.items()})

    return call


def primitive(
    kind: str,
    *,
    infer: Callable[..., tuple[tuple[int, ...], DType]],
    attrs: tuple[str, ...] = (),
    srcs: tuple[str, ...] | None = None,
    grad: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Fn], Fn]:
    """Declare an op that is a Node of its own. The function returns `(sources, attributes)`, or a finished Node."""

    def decorate(fn: Fn) -> Fn:
        name = options.pop("name", fn.__name__)
        names = srcs if srcs is not None else parameters(fn)[:1]

        prepare = _following_autocast(fn, options["autocast"]) if options.get("autocast") else fn

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Node:
            if name in COMPLEX:
                for arg in args:
                    if type(arg) is Node and arg.meta.dtype.category == "c":
                        found = COMPLEX[name](*args, **kwargs)
                        if found is not None:
                            return found  # type: ignore[no-any-return]
                        break
            prepared = (fn if state.autocast is None else prepare)(*args, **kwargs)
            return prepared if type(prepared) is Node else apply(op, *prepared)

        op = register(
            OpDef(
                name,
                kind,
                call,
                fn.__doc__ or "",
                infer=infer,
                attrs=attrs,
                srcs=names,
                grad=Rule(grad, names, attrs) if grad else None,
                **options,
            )
        )
        return op.fn  # type: ignore[return-value]

    return decorate


def composite(*, reference: Callable[..., Any] | None = None, **options: Any) -> Callable[[Fn], Fn]:
    """Declare a function over other ops. Its gradient follows from theirs."""

    def decorate(fn: Fn) -> Fn:
        name = options.pop("name", fn.__name__)
        call = _following_autocast(fn, options["autocast"]) if options.get("autocast") else fn
        register(
            OpDef(
                name,
                INLINE,
                call,
                fn.__doc__ or "",
                reference=reference,
                srcs=parameters(fn),
                **options,
            )
        )
        return call  # type: ignore[return-value]

    return decorate


def _operator(name: str, swap: bool = False) -> Callable[[Node, Any], Node]:
    def call(self: Node, other: Any) -> Node:
        fn = OPS[name].fn
        return fn(other, self) if swap else fn(self, other)  # type: ignore[no-any-return]

    return call


# Rules read as algebra: Nodes take the arithmetic operators (never ==, which stays identity).
_SYMBOLS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}
for _symbol, _name in _SYMBOLS.items():
    setattr(Node, f"__{_symbol}__", _operator(_name))
    setattr(Node, f"__r{_symbol}__", _operator(_name, swap=True))
for _symbol, _name in {
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "and": "bitwise_and",
    "or": "bitwise_or",
}.items():
    setattr(Node, f"__{_symbol}__", _operator(_name))
setattr(Node, "__neg__", lambda self: OPS["neg"].fn(self))  # noqa: B010  beside its siblings
