"""Node: one value of the graph. Immutable but for `data`, which the engine fills in when the value is computed.

A Node knows no device driver and no Tensor. Nodes with equal `sig` are the same operation on values of the same
shape, dtype and device, so a graph's structure is a short tuple of small integers.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from pyflame.core.device import DeviceId
from pyflame.core.dtype import DType
from pyflame.core.locks import lock
from pyflame.core.maker import Maker
from pyflame.core.shape import Shape, check_size

if TYPE_CHECKING:
    from pyflame.ir.opdef import OpDef


class Meta:
    """Shape, dtype and place of a value; equal ones are one object. `device` None: a constant, at home anywhere."""

    __slots__ = ("__weakref__", "committed", "device", "dtype", "shape", "size")
    _all: ClassVar[dict[tuple[Any, ...], ref[Meta]]] = {}
    _lock: ClassVar[Any] = lock()

    shape: Shape
    dtype: DType
    device: DeviceId | None
    committed: bool
    size: int

    def __new__(cls, shape: Shape, dtype: DType, device: DeviceId | None, committed: bool = False) -> Meta:
        key = (shape, dtype, device, committed)
        known = cls._all.get(key)
        found = None if known is None else known()
        return cls._made(key) if found is None else found

    @classmethod
    def _made(cls, key: tuple[Any, ...]) -> Meta:
        new = object.__new__(cls)
        new.size = check_size("tensor", key[0])
        new.shape, new.dtype, new.device, new.committed = key
        with cls._lock:  # two threads make one
            known = cls._all.get(key)
            found = None if known is None else known()
            if found is None:
                # the callback is in C: an interrupt within one in Python would be lost
                cls._all[key] = ref(new, partial(cls._all.pop, key))
        return found or new

    def __getnewargs__(self) -> tuple[Any, ...]:
        """What makes an equal one."""
        return self.shape, self.dtype, self.device, self.committed

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}@{self.device}"


SERIALS = itertools.count()
next_serial = SERIALS.__next__


class Node:
    """`op` applied to `srcs` with `attrs`; `data`: a constant's number, or the evaluated buffer of anything else; in a
    graph that is planned, which of the caller's numbers tells where an assignment begins.

    `serial` counts nodes as they are made: sorted by it they stand in the order of the program.
    """

    __slots__ = ("__weakref__", "attrs", "data", "line", "meta", "op", "serial", "sig", "srcs")

    def __init__(
        self, op: OpDef, srcs: tuple[Node, ...], attrs: tuple[Any, ...], meta: Meta, sig: int, data: Any = None
    ) -> None:
        self.op = op
        self.srcs = srcs
        self.attrs = attrs
        self.meta = meta
        self.sig = sig
        self.data = data
        self.line: str | None = None
        self.serial = next_serial()

    @property
    def shape(self) -> Shape:
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def ndim(self) -> int:
        return len(self.meta.shape)

    @property
    def size(self) -> int:
        return self.meta.size

    def __repr__(self) -> str:
        return f"Node({self.op.name}, {self.meta})"

    if TYPE_CHECKING:  # declare.py installs these: rules read as algebra

        def __add__(self, other: Any) -> Node: ...
        def __radd__(self, other: Any) -> Node: ...
        def __sub__(self, other: Any) -> Node: ...
        def __rsub__(self, other: Any) -> Node: ...
        def __mul__(self, other: Any) -> Node: ...
        def __rmul__(self, other: Any) -> Node: ...
        def __truediv__(self, other: Any) -> Node: ...
        def __rtruediv__(self, other: Any) -> Node: ...
        def __pow__(self, other: Any) -> Node: ...
        def __rpow__(self, other: Any) -> Node: ...
        def __lt__(self, other: Any) -> Node: ...
        def __le__(self, other: Any) -> Node: ...
        def __gt__(self, other: Any) -> Node: ...
        def __ge__(self, other: Any) -> Node: ...
        def __and__(self, other: Any) -> Node: ...
        def __or__(self, other: Any) -> Node: ...
        def __neg__(self) -> Node: ...


NODES = Maker(Node, ("op", "srcs", "attrs", "meta", "sig", "data", "line"), "serial", SERIALS)


def user_line() -> str:
    """'file.py:12' of the innermost frame outside of PyFlame: where the user called the op."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("pyflame"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
