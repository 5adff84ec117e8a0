"""What needs no plan: elements of what is in memory, whole numbers made of a few of them, and small tensors put
together of others.

`values[i].item()` and `text[i : i + 32]` with a tensor i are reads of a few bytes; planned, locked, bound and launched
they would cost a hundred times as much. Whole numbers are exact in Python, so what is computed here is what a kernel
would have given.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from math import prod
from typing import Any

from pyflame.core.device import CPU
from pyflame.core.dtype import (
    DType,
    bool_,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pyflame.core.shape import start_of
from pyflame.engine.devices import cpu, get_device
from pyflame.engine.value import Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, Node
from pyflame.ir.declare import wrap_int
from pyflame.ir.opdef import CONST, LEAF, MOVEMENT

_TYPES: dict[DType, Any] = {
    bool_: ctypes.c_bool, uint8: ctypes.c_uint8, int8: ctypes.c_int8, int16: ctypes.c_int16, int32: ctypes.c_int32,
    int64: ctypes.c_int64, uint16: ctypes.c_uint16, uint32: ctypes.c_uint32, uint64: ctypes.c_uint64,
    float32: ctypes.c_float, float64: ctypes.c_double,
}  # fmt: skip
_READERS = {dtype: kind.from_address for dtype, kind in _TYPES.items()}
_WHOLE = {OPS["add"]: operator.add, OPS["sub"]: operator.sub, OPS["mul"]: operator.mul}
_SLICE, _RESHAPE, _LEAF = OPS["slice"], OPS["reshape"], OPS["leaf"]
_MOVED = (LEAF, MOVEMENT)
in_c: Callable[[Node], Any] | None = None  # `number` for what is most often asked for (reads.c), once the engine has it
fetch_in_c: Callable[[bytes, int, int, int], bool] | None = None  # a few bytes of a GPU's memory (gpu_run.c)
IN_C = float32, float64, int64, int32, bool_  # dtypes that it reads
_DEEP = 4  # ops above each other
SMALL = 1 << 20  # bytes that are copied while others wait


def number(node: Node) -> Any:
    """The value of a Node with one element, as a Python number; None where that takes more than reading memory."""
    if in_c is not None and (found := in_c(node)) is not None:
        return found  # as most are
    meta, op = node.meta, node.op
    read = _READERS.get(meta.dtype)
    if read is None or meta.device is not CPU or (op.kind not in _MOVED and op not in _WHOLE):
        return None
    lock = get_device(CPU).lock
    # A plan may be overwriting it that has begun before somebody held it. One that begins now sees who holds it.
    if not lock.taken():
        value = node.data
        if op is _LEAF and isinstance(value, Value) and (storage := value.storage) is not None and storage.on_host:
            return read(storage.address + value.offset).value
        if (address := _element(node)) is not None:
            return read(address).value
    with lock:
        return _number(node, _DEEP)


def _number(node: Node, deep: int) -> Any:
    if node.op.kind == CONST:
        return node.data
    address = _address(node)
    return _computed(node, deep) if address is None else _READERS[node.meta.dtype](address).value


def _computed(node: Node, deep: int) -> Any:
    """A whole number that is made of others."""
    compute, srcs, dtype = _WHOLE.get(node.op), node.srcs, node.meta.dtype
    if compute is None or not dtype.is_int or not deep or len(srcs) != 2:
        return None
    one, other = _number(srcs[0], deep - 1), _number(srcs[1], deep - 1)
    return None if one is None or other is None else wrap_int(compute(one, other), dtype)


def fetched(node: Node) -> Any:
    """The value of a Node with one element in a GPU's memory, or of a whole number that is made of one; None where a
    kernel must compute it, and for other dtypes."""
    device = get_device(node.meta.device or CPU)
    if (gpu := device.gpu) is None:
        return None
    with device.lock:  # a plan may be turning it into a leaf
        element, steps = _steps(node)
        kind, value = _TYPES.get(element.meta.dtype), view_of_memory(element)
    if kind is None or value is None:
        return None
    there = kind()
    place = ctypes.addressof(there), value.address, ctypes.sizeof(there)
    calls = None if fetch_in_c is None else gpu.direct_calls
    if calls is None or not fetch_in_c(calls, *place):  # type: ignore[misc]
        gpu.download(*place)
    else:
        gpu.check()
    found = there.value
    for compute, left, right in reversed(steps):
        numbers = (n.data if n.op.kind == CONST else found for n in (left, right))
        found = wrap_int(compute(*numbers), element.meta.dtype)
    return found


def _steps(node: Node) -> tuple[Node, list[tuple[Callable[[int, int], int], Node, Node]]]:
    """What a whole number is made of with a few constants, and the steps from there, the last one first."""
    steps: list[tuple[Callable[[int, int], int], Node, Node]] = []
    while (compute := _WHOLE.get(node.op)) and node.meta.dtype.is_int and len(steps) < _DEEP:
        left, right = node.srcs
        source = left if right.op.kind == CONST else right
        if (left.op.kind == CONST) == (right.op.kind == CONST) or source.meta.dtype is not node.meta.dtype:
            break
        steps.append((compute, left, right))
        node = source
    return node, steps


def joined(node: Node) -> Value | None:
    """A cat of parts that lie in the host's memory, one behind the other; None where that takes more than a few copies.

    For each number of parts there would be another plan, each with that many pointers. The caller holds the lock.
    """
    srcs, meta = node.srcs, node.meta
    if meta.device is not CPU or not 0 < meta.nbytes <= SMALL or prod(meta.shape[: node.attrs[0]]) != 1:
        return None
    places: list[Any] = [_dense(s) for s in srcs if s.meta.dtype is meta.dtype]
    if len(places) != len(srcs) or None in places:
        return None
    storage = cpu().allocate(meta.nbytes)
    at, width, move = storage.address, meta.dtype.itemsize, ctypes.memmove
    for source, address in zip(srcs, places, strict=True):
        nbytes = source.meta.size * width
        move(at, address, nbytes)
        at += nbytes
    return Value(storage)


def _dense(node: Node) -> int | None:
    """Where the elements of a Node lie in memory, one behind the other; None where they do not."""
    leaf = node
    while leaf.op is _RESHAPE:
        leaf = leaf.srcs[0]
    value: Any = leaf.data if leaf.op is _LEAF else view_of_memory(node)
    if not isinstance(value, Value) or value.storage is None or value.strides is not None:
        return None
    return value.host_address


def _element(node: Node) -> int | None:
    """Where the one element of a Node lies that is a leaf or a part of one, as most are."""
    srcs, attrs, op = node.srcs, node.attrs, node.op  # the op last: another thread may make the Node a leaf meanwhile
    while op is _RESHAPE:
        node = srcs[0]
        srcs, attrs, op = node.srcs, node.attrs, node.op
    if op is _SLICE:
        node = srcs[0]
    elif op is not _LEAF:
        return None
    value = node.data
    if not isinstance(value, Value) or (storage := value.storage) is None or not storage.on_host:
        return None
    at = start_of(attrs[0], node.meta.shape, value.strides) if op is _SLICE else 0
    return storage.address + value.offset + at * node.meta.dtype.itemsize


def _address(node: Node) -> int | None:
    """Where the one element of a Node lies, if it is in memory. The caller holds the lock."""
    if node.op.kind not in _MOVED:
        return None
    found = _element(node)
    if found is None and (value := view_of_memory(node)) is not None:
        return value.host_address
    return found
