"""Containers of modules: in a row, by position and by key."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar

from pyflame.core.errors import IndexError
from pyflame.nn.module import Module
from pyflame.nn.printing import grouped, tree

R = TypeVar("R", bound="_Row")


def position_of(kind: str, index: Any, length: int) -> int:
    """A position counted from the front, of one that may be counted from behind."""
    at = operator.index(index)
    if not -length <= at < length:
        raise IndexError(f"[{kind}] expected a position in [{-length}, {length}) but got {at}")
    return at % length


class _Row(Module):
    """Modules in order, under their numbers as names. Sequential may give them other names."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def _keys(self) -> list[str]:
        return list(self._modules)

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return self._modules[self._keys()[position_of(type(self).__name__, index, len(self))]]

    def _part(self: R, items: list[tuple[str, Module]]) -> R:
        return type(self)([module for _, module in items])

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._keys()[position_of(type(self).__name__, index, len(self))], module)

    def __delitem__(self, index: Any) -> None:
        keys = self._keys()
        gone = keys[index] if isinstance(index, slice) else [keys[position_of(type(self).__name__, index, len(self))]]
        self._renumber([module for key, module in self._modules.items() if key not in gone])

    def append(self: R, module: Module) -> R:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: R, modules: Iterable[Module]) -> R:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self: R, index: int, module: Module) -> R:
        """Put a module before a position."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int = -1) -> Module:
        """Take a module out."""
        module: Module = self[index]
        del self[index]
        return module

    def __add__(self: R, other: Iterable[Module]) -> R:
        return self._part([("", module) for module in (*self, *other)])

    def __iadd__(self: R, other: Iterable[Module]) -> R:
        return self.extend(other)


class Sequential(_Row):
    """Modules one after another: the output of each is the input of the next.

    Takes modules, or one OrderedDict that names them.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model(pf.randn(3, 4)).shape
    (3, 2)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = modules[0].items() if len(modules) == 1 and isinstance(modules[0], Mapping) else enumerate(modules)
        for name, module in named:
            self.add_module(str(name), module)

    def _part(self, items: list[tuple[str, Module]]) -> Sequential:
        names = [name for name, _ in items]
        if len(set(names)) < len(names):  # a sum of two: numbered anew
            return type(self)(*[module for _, module in items])
        return type(self)(OrderedDict(items))

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Row):
    """A list of modules whose parameters are found. It has no forward of its own.

    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:  # a subclass may have an extend of its own, which PyTorch does not call for nothing
            self.extend(modules)

    def __repr__(self) -> str:
        return tree(self._get_name(), [], grouped([repr(module) for module in self]))


class ModuleDict(Module):
    """A dict of modules whose parameters are found. It has no forward of its own.

    >>> heads = nn.ModuleDict({"price": nn.Linear(4, 1), "volume": nn.Linear(4, 1)})
    >>> list(heads)
    ['price', 'volume']
    """

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __setitem__(self, key: str, value: Module) -> None:
        self.register_module(key, value)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> KeysView[str]:
        """The keys, in the order of insertion."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """The values, in the order of insertion."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """(key, value) pairs, in the order of insertion."""
        return self._modules.items()

    def update(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace values, from a dict or from pairs."""
        for key, value in dict(values).items():
            self[key] = value

    def pop(self, key: str) -> Module:
        """Take a value out."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Take all values out."""
        self._modules.clear()
