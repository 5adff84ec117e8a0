"""torch._C.DispatchKey: names by which programs leave autograd or autocast out, in kernels that they register."""

from __future__ import annotations

from typing import Any

from pyflame.core.state import mode


class _Keys(type):
    def __getattr__(cls, name: str) -> DispatchKey:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls(name)  # type: ignore[no-any-return]


class DispatchKey(metaclass=_Keys):
    """A key by its name: `DispatchKey.AutocastCPU`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"DispatchKey.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKey) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class DispatchKeySet:
    """Keys, joined by `|`."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys | other._keys))

    def has(self, key: DispatchKey) -> bool:
        """Whether it is one of them."""
        return key in self._keys


def _ExcludeDispatchKeyGuard(keys: DispatchKeySet) -> Any:
    """A `with` block without what the keys stand for: autocast, or recording for gradients."""
    names = [key.name for key in keys._keys]
    without: dict[str, Any] = {}
    if any(name.startswith("Autocast") for name in names):
        without["autocast"] = None
    if any(name.startswith("Autograd") for name in names):
        without["grad_enabled"] = False
    return mode(**without)


def _AutoDispatchBelowAutograd() -> Any:
    """A `with` block in which nothing is recorded for gradients."""
    return mode(grad_enabled=False)
