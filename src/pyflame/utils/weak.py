"""torch.utils.weak by its path: what is known of objects as long as they live, by identity, not by value."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref[Any]):
    """A reference that is equal to another if both are to one object, whatever `==` of that object means.

    >>> x = pf.ones(2)
    >>> {WeakIdRef(x): 1}[WeakIdRef(x)]
    1
    """

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self()
        return self is other or (mine is not None and isinstance(other, weakref.ref) and mine is other())


TensorWeakRef = WeakIdRef


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict whose keys are objects by what they are, and that holds none of them.

    >>> known = WeakIdKeyDictionary()
    >>> x = pf.ones(2)
    >>> known[x] = "x"
    >>> known[x], len(known), pf.ones(2) in known
    ('x', 1, False)
    """

    def __init__(self, dict: Mapping[Any, Any] | Iterable[Any] | None = None, ref_type: type = WeakIdRef) -> None:
        self.ref_type = ref_type
        self.data: Any = {}
        self.update(dict or {})

    def _gone(self, key: Any) -> None:
        self.data.pop(key, None)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._gone)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __iter__(self) -> Iterator[Any]:
        alive = [key() for key in list(self.data)]
        return iter([key for key in alive if key is not None])

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        return self.ref_type(key) in self.data


WeakTensorKeyDictionary = WeakIdKeyDictionary
