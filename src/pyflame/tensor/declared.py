"""Ops that are declared by a schema before they have kernels, as libraries of PyTorch declare theirs.

A schema reads `(Tensor x, float by=2.0, *, int[2]? size=None) -> Tensor`.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.tensor.custom_op import CustomOpDef
from pyflame.tensor.tensor import Tensor

_SCHEMA = re.compile(r"\s*\((?P<arguments>.*)\)\s*->\s*\S.*", re.DOTALL)
_COMMA = re.compile(r",(?![^\[(]*[\])])")  # not the commas of `int[2] k=[1, 2]`
_DECLARED = re.compile(r"(?P<type>.+?)\s+(?P<name>\w+)\s*(=\s*(?P<default>.+))?", re.DOTALL)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # the name of a constant
        return text


def signature_of(op: str, schema: str) -> inspect.Signature:
    """The arguments that a schema declares.

    >>> signature_of("f", "(Tensor x, float by=2.0, *, int[2]? k=[1, 2]) -> Tensor")
    <Signature (x, by=2.0, *, k=[1, 2])>
    """
    found = _SCHEMA.fullmatch(schema)
    if found is None:
        raise ArgumentError(f"[define] expected a schema like '(Tensor x) -> Tensor' for {op} but got {schema!r}")
    parameters = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for text in filter(None, (part.strip() for part in _COMMA.split(found["arguments"]))):
        if text == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        declared = _DECLARED.fullmatch(text)
        if declared is None:
            raise ArgumentError(f"[define] expected arguments like 'Tensor x' for {op} but got {text!r}")
        default = inspect.Parameter.empty if declared["default"] is None else _value(declared["default"])
        parameters.append(inspect.Parameter(declared["name"], kind, default=default))
    return inspect.Signature(parameters)


class DeclaredOp(CustomOpDef):
    """An op whose arguments are known, and that does what it is given kernels for."""

    def __init__(self, name: str, schema: str) -> None:
        super().__init__(name, self._no_kernel, ())
        self._signature = signature_of(name, schema)
        self._schema = f"{name}{schema}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"[{self._qualname}] {error}; it is declared as {self._schema}") from None
        bound.apply_defaults()
        if self._backward is None:
            return self._chosen(bound.args)(*bound.args, **bound.kwargs)
        return super().__call__(*bound.args, **bound.kwargs)

    def _no_kernel(self, *args: Any, **kwargs: Any) -> Any:
        kinds = sorted({a.device.type for a in args if isinstance(a, Tensor)}) or ["cpu"]
        raise NotSupportedError(
            f"[{self._qualname}] expected a kernel for {', '.join(kinds)} but has those for "
            f"{', '.join([*self._kernels, *self._by_key]) or 'nothing'}; give it one with pf.library.impl"
        )


class OpPacket:
    """The overloads of an op by their names; a call takes the first that has such arguments."""

    def __init__(self, name: str) -> None:
        self._name, self._overloads = name, dict[str, DeclaredOp]()

    def add(self, overload: str, op: DeclaredOp) -> None:
        """Let it have this overload."""
        self._overloads[overload] = op

    def overloads(self) -> list[str]:
        """Their names."""
        return list(self._overloads)

    def __getattr__(self, name: str) -> DeclaredOp:
        if name in ("_overloads", "__wrapped__") or name not in self._overloads:
            raise AttributeError(f"{self.__dict__.get('_name', 'op')} has no overload {name!r}")
        return self._overloads[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first, *others = self._overloads.values()
        for op in (first, *others):
            try:
                op._signature.bind(*args, **kwargs)
            except TypeError:
                continue
            return op(*args, **kwargs)
        return first(*args, **kwargs)  # which says what it expects

    def __repr__(self) -> str:
        return self._name
