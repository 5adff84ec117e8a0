"""Containers of parameters: by position and by key. Tensors become parameters; other objects are held beside them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any

from pyflame.core.errors import ArgumentTypeError, PyFlameError, type_name
from pyflame.nn.containers import position_of
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor


class _Parameters(Module):
    """Values by name, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, None] = {}
        self._others: dict[str, Any] = {}

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self._others.pop(name, None)
            self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))
        else:
            self._parameters.pop(name, None)
            self._others[name] = value
        self._names[name] = None

    def _value_of(self, name: str) -> Any:
        return self._others[name] if name in self._others else self._parameters[name]

    def _drop(self, name: str) -> None:
        self._others.pop(name, None)
        self._parameters.pop(name, None)

    def __len__(self) -> int:
        return len(self._names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise PyFlameError(f"[{type(self).__name__}] expected to be read from but got called: it has no forward")

    def extra_repr(self) -> str:
        return "\n".join(f"  ({name}): {self._described(self._value_of(name))}" for name in self._names)

    def _described(self, value: Any) -> str:
        if not isinstance(value, Tensor):
            return f"Object of type: {type(value).__name__}"
        sizes = "x".join(str(n) for n in value.shape)
        place = "" if value.device == "cpu" else f" ({value.device})"
        return f"Parameter containing: [{self._kind(value)} of size {sizes}{place}]"

    def _kind(self, value: Tensor) -> str:
        return str(value.dtype)


class ParameterList(_Parameters):
    """A list of parameters. Tensors become parameters.

    >>> weights = nn.ParameterList([pf.zeros(2), pf.ones(3)])
    >>> [p.shape for p in weights]
    [(2,), (3,)]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def __iter__(self) -> Iterator[Any]:
        return iter([self._value_of(name) for name in self._names])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._value_of(str(position_of("ParameterList", index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        self._put(str(position_of("ParameterList", index, len(self))), value)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self._put(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ArgumentTypeError(f"[ParameterList] expected parameters in a row but got {type_name(values)}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)


class ParameterDict(_Parameters):
    """A dict of parameters. Tensors become parameters. Of a plain dict the keys are sorted, as in PyTorch.

    >>> nn.ParameterDict({"scale": pf.ones(2)})["scale"].shape
    (2,)
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def _kind(self, value: Tensor) -> str:
        return str(value.type())

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"[ParameterDict] expected a text as key but got {type(key).__name__}")
        self._put(key, value)

    def __getitem__(self, key: str) -> Any:
        return self._value_of(key)

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        self._drop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def keys(self) -> KeysView[str]:
        """The keys, in their order."""
        return self._names.keys()

    def values(self) -> list[Any]:
        """The values, in the order of the keys."""
        return [self._value_of(name) for name in self._names]

    def items(self) -> list[tuple[str, Any]]:
        """(key, value) pairs, in the order of the keys."""
        return [(name, self._value_of(name)) for name in self._names]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._value_of(key) if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is the default from now on if it had none."""
        if key not in self._names:
            self[key] = default
        return self[key]

    def update(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] | ParameterDict) -> None:
        """Add or replace values, from a dict or from pairs."""
        pairs = dict(values.items() if isinstance(values, (Mapping, ParameterDict)) else values)
        plain = isinstance(values, Mapping) and not isinstance(values, OrderedDict)
        for key in sorted(pairs) if plain else pairs:
            self[key] = pairs[key]

    def pop(self, key: str) -> Any:
        """Take a value out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last key and its value out."""
        key = next(reversed(self._names))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take all values out."""
        for key in list(self._names):
            del self[key]

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another dict that has the default under each of these keys."""
        return ParameterDict([(key, default) for key in keys])

    def __or__(self, other: Any) -> ParameterDict:
        out = self.copy()
        out.update(other)
        return out

    def __ror__(self, other: Any) -> ParameterDict:
        out: ParameterDict = other.copy()
        out.update(self)
        return out

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self
